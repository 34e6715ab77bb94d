/*
 * The program that turns a Parquet file into JSONL: python3 -c SCRIPT FILE KEY... -- KEY... writes the number of
 * rows on a line, then each row on one line, an object of those of its columns that are named by a KEY; by one behind
 * the -- only in a file without a column of texts, of which nothing else is learned. Pictures and sounds are dots.
 * Without arguments it writes pyarrow's version.
 *
 * It ends when whoever reads it has gone. What it cannot do is the last line on stderr, to be put
 * behind the file's name. Needs pyarrow 15: before 14.0.1 a file could make it run code (CVE-2023-47248).
 */
#ifndef ATOM_TEXT_PARQUET_SCRIPT_H
#define ATOM_TEXT_PARQUET_SCRIPT_H

/* Its exit codes beside 0; Python has 1 and 2 for itself. */
enum { TEXT_PARQUET_BAD_FILE = 3, TEXT_PARQUET_NO_MEMORY = 4, TEXT_PARQUET_NO_PYARROW = 5 };

/* clang-format off */
static const char text_parquet_script[] =
    "import sys\n"
    "sys.path = [p for p in sys.path if p]\n" /* nothing is imported from the current directory */
    "import os, select, threading\n"
    "def fail(code, words):\n"
    "    sys.stderr.write('\\n' + ' '.join(words.split())[:700] + '\\n')\n"
    "    sys.stderr.flush()\n"
    "    os._exit(code)\n"
    /* Nobody reads stdout any more: poll says so, also while pyarrow is busy or a disk hangs. */
    "def watch():\n"
    "    reader = select.poll()\n"
    "    reader.register(1, 0)\n"
    "    reader.poll()\n"
    "    os._exit(1)\n"
    "threading.Thread(target=watch, daemon=True).start()\n"
    "try:\n"
    "    import json, pyarrow, pyarrow.parquet\n"
    "except ImportError as error:\n"
    "    fail(5, str(error))\n"
    "if int(pyarrow.__version__.split('.')[0]) < 15:\n"
    "    fail(5, 'its pyarrow is %s, and 15 or later is needed' % pyarrow.__version__)\n"
    "def plain(value):\n"
    "    if isinstance(value, bytes):\n"
    "        return value.decode()\n"
    "    raise TypeError('it holds a value of type ' + type(value).__name__)\n"
    "encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=plain).encode\n"
    "def quoted(names):\n"
    "    return ', '.join(map(json.dumps, names))\n"
    "def has_map(kind):\n"
    "    return pyarrow.types.is_map(kind) or (pyarrow.types.is_dictionary(kind) and has_map(kind.value_type)) or any(\n"
    "        has_map(kind.field(i).type) for i in range(kind.num_fields))\n"
    "media = {'image', 'images', 'video', 'videos', 'audio', 'audios'}\n"
    "def texts(name, column, first):\n"
    "    key = json.dumps(name) + ': '\n"
    "    if name in media:\n" /* that they are there is all that anybody asks */
    "        return [key + ('\"...\"' if value.as_py() else 'null') for value in column]\n"
    "    try:\n"
    "        return [key + encode(value) for value in column.to_pylist()]\n"
    "    except (ValueError, TypeError, OverflowError):\n"
    "        pass\n"
    "    for i in range(len(column)):\n" /* which row was it? */
    "        try:\n"
    "            encode(column[i].as_py())\n"
    "        except UnicodeDecodeError:\n"
    "            fail(3, ', row:%d: column %s is not UTF-8; convert the column' % (first + i, quoted([name])))\n"
    "        except (ValueError, TypeError, OverflowError) as error:\n"
    "            fail(3, ', row:%d: column %s (%.80s) cannot be written as JSON: %.90s; convert the column' % (\n"
    "                first + i, quoted([name]), column.type, error))\n"
    "    raise RuntimeError('values of column %s could be read one by one only' % name)\n"
    "def run(path, keys, beside, out):\n"
    "    table = pyarrow.parquet.ParquetFile(\n"
    "        open(path, 'rb'), buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True)\n"
    "    schema, meta = table.schema_arrow, table.metadata\n"
    "    names = [name for name in schema.names if name in keys]\n"
    "    if not names:\n"
    "        fail(3, ': it has none of the columns that atom reads (%s, ...); its own are %s' % (\n"
    "            quoted(keys[:3]), quoted(schema.names)))\n"
    "    names += [name for name in schema.names if name in beside and 'text' not in names]\n"
    "    for name in names:\n"
    "        if names.count(name) > 1:\n"
    "            fail(3, ': two columns are called %s; rename one of them' % quoted([name]))\n"
    "        if name not in media and has_map(schema.field(name).type):\n"
    "            fail(3, ': column %s holds maps, which have no one form in JSON; make them structs' % quoted([name]))\n"
    "    out.write(b'%d\\n' % meta.num_rows)\n"
    "    first = 1\n"
    "    for i in range(meta.num_row_groups):\n" /* at once, pyarrow cannot read dictionaries in structs */
    "        group = meta.row_group(i)\n"
    "        rows = max(1, min(4096, (4 << 20) * group.num_rows // max(1, group.total_byte_size)))\n" /* some 4 MiB */
    "        for batch in table.iter_batches(rows, row_groups=[i], columns=names, use_threads=False):\n"
    "            columns = [texts(name, batch.column(name), first) for name in names]\n"
    "            out.write(''.join('{' + ', '.join(row) + '}\\n' for row in zip(*columns)).encode())\n"
    "            first += batch.num_rows\n"
    "    out.flush()\n"
    "try:\n"
    "    if len(sys.argv) > 1:\n"
    "        end = sys.argv.index('--')\n"
    "        run(sys.argv[1], sys.argv[2:end], sys.argv[end + 1:], sys.stdout.buffer)\n"
    "    else:\n"
    "        print(pyarrow.__version__, flush=True)\n"
    "except BrokenPipeError:\n"
    "    os._exit(1)\n"
    "except MemoryError as error:\n"
    "    fail(4, str(error))\n"
    "except (OSError, ValueError, pyarrow.ArrowException) as error:\n"
    "    if getattr(error, 'errno', None):\n"
    "        raise\n"
    "    fail(3, ': damaged, or not as pyarrow reads it: ' + str(error).rstrip('. ') + '; copy or download it again')\n";
/* clang-format on */

#endif
