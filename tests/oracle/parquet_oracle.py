#!/usr/bin/env python3
"""`atom data prepare` and `atom eval --choices` on Parquet, as a user runs them, against JSONL of the same rows.

  parquet_oracle.py ATOM [--first S] [--seeds N] [--canary]     ATOM: the program
  --canary    the JSONL has its last two rows the other way round; succeeds if that is noticed

Rows are made here, written by pyarrow in types and layouts drawn at random (row groups, pages, codecs, dictionaries) and
by json as lines. The two data sets must be the same, byte for byte; a template that prints whole messages sees every
value in them. What JSON has no form for is refused with its column and row. Files that are cut or have a bit turned,
pages under checksums, are refused, or give the same data. Exit 77: pyarrow is not installed.
"""
import argparse
import datetime
import decimal
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

LETTERS = "abcdefgh \n\t\"\\/\u00e4\u4e2d\U0001f600\u2028\x00\x7f"
TEMPLATE = ("{{ tools | tojson }}{{ documents | tojson }}{{ mood }}{% for m in messages %}{{ m | tojson }}{{ m.tool_calls is none }}{% if m.role == 'assistant' %}"
            "{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}")
CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 512, "n_embd": 16, "n_layer": 1, "n_head": 1}


def words(r, most=40):
    return "".join(r.choice(LETTERS) for _ in range(r.randint(1, most)))


def maybe(r, value):
    return value if r.random() < 0.6 else None


def string_type(r):
    return r.choice([pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.string())])


def list_type(r, of):
    return r.choice([pa.list_, pa.large_list])(of)


def texts(r):
    text = string_type(r)
    return [{"text": words(r, r.choice([3, 3000]))} for _ in range(r.randint(1, 300))], {"text": text}, []


def messages(r):
    call = pa.struct([("name", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("deep", list_type(r, list_type(r, pa.bool_())))])
    message = pa.struct([("role", pa.dictionary(pa.int8(), pa.string())), ("content", pa.large_string()), ("weight", pa.int8()),
                         ("tool_calls", list_type(r, call))])
    rows = []
    for _ in range(r.randint(1, 60)):
        chat = []
        for _ in range(r.randint(1, 4)):
            calls = [{"name": words(r), "n": r.randint(-2**63, 2**63 - 1), "x": maybe(r, r.gauss(0, 10.0 ** r.randint(-30, 30))),
                      "deep": [[maybe(r, True) for _ in range(r.randint(0, 2))] for _ in range(r.randint(0, 2))]}
                     for _ in range(r.randint(0, 2))]
            chat += [{"role": "user", "content": words(r), "weight": None, "tool_calls": None},
                     {"role": "assistant", "content": words(r), "weight": maybe(r, 1), "tool_calls": maybe(r, calls)}]
        rows.append({"messages": chat, "tools": maybe(r, [{"name": words(r)}]), "documents": maybe(r, [words(r)]),
                     "chat_template_kwargs": maybe(r, {"mood": words(r)})})
    return rows, {"messages": list_type(r, message), "tools": list_type(r, pa.struct([("name", pa.string())])),
                  "documents": list_type(r, string_type(r)), "chat_template_kwargs": pa.struct([("mood", pa.string())])}, []


def sharegpt(r):
    said = pa.struct([("from", pa.string()), ("value", string_type(r))])
    rows = [{"conversations": [{"from": "human", "value": words(r)}, {"from": "gpt", "value": words(r)}],
             "system": maybe(r, words(r)), "images": None} for _ in range(r.randint(1, 60))]
    picture = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return rows, {"conversations": list_type(r, said), "system": string_type(r), "images": list_type(r, picture)}, ["--template", "plain"]


def alpaca(r):
    rows = [{"instruction": words(r), "input": r.choice([None, "", words(r)]), "output": words(r),
             "history": maybe(r, [[words(r), words(r)] for _ in range(r.randint(0, 2))])} for _ in range(r.randint(1, 60))]
    return rows, {"instruction": string_type(r), "input": string_type(r), "output": string_type(r),
                  "history": list_type(r, pa.list_(pa.string(), r.choice([-1, 2])))}, ["--template", "plain"]


def prompts(r):
    rows = [{"prompt": words(r), "completion": words(r)} for _ in range(r.randint(1, 60))]
    return rows, {"prompt": string_type(r), "completion": string_type(r)}, ["--template", "plain"]


def questions(r):
    """Four shapes in turn; each file has one, since all rows of Parquet have the same keys."""
    n, kind = r.randint(2, 10), r.randrange(4)
    if kind == 0:
        return [{"ctx": words(r), "endings": [words(r) for _ in range(4)], "label": str(r.randrange(4))} for _ in range(n)], \
            {"ctx": string_type(r), "endings": list_type(r, pa.string()), "label": pa.string()}
    if kind == 1:
        return [{"question": words(r), "choices": {"text": [words(r), words(r)], "label": ["A", "B"]}, "answerKey": r.choice("AB")}
                for _ in range(n)], {"question": string_type(r), "answerKey": pa.string(), "choices": pa.struct(
                    [("text", list_type(r, pa.string())), ("label", pa.list_(pa.string()))])}
    if kind == 2:
        return [{"goal": words(r), "sol1": words(r), "sol2": words(r), "label": r.randrange(2)} for _ in range(n)], \
            {"goal": string_type(r), "sol1": string_type(r), "sol2": string_type(r), "label": pa.int8()}
    return [{"prompt": words(r), "choices": [words(r), words(r)], "answer": r.randrange(2)} for _ in range(n)], \
        {"prompt": string_type(r), "choices": list_type(r, pa.string()), "answer": pa.uint16()}


def bytes_of(value, kind):
    """The value as a column of this type wants it: binary takes bytes."""
    if value is not None and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return value.encode()
    if isinstance(value, list):
        return [bytes_of(v, kind.value_type) for v in value]
    if isinstance(value, dict):
        return {k: bytes_of(v, kind.field(k).type) for k, v in value.items()}
    return value


def write(r, path, rows, kinds, **more):
    """With columns beside them that JSON could not hold, in an order of their own."""
    columns = {name: pa.array([bytes_of(row[name], kind) for row in rows], kind) for name, kind in kinds.items()}
    columns["url.text"] = pa.array([b"\xff"] * len(rows))
    columns["date"] = pa.array([1] * len(rows), pa.timestamp("ns"))
    names = r.sample(list(columns), len(columns))
    how = {"row_group_size": r.choice([1, 3, 50, 10**6]), "compression": r.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
           "use_dictionary": r.random() < 0.5, "data_page_version": r.choice(["1.0", "2.0"]), "data_page_size": r.choice([100, 10**6])}
    pq.write_table(pa.table({name: columns[name] for name in names}), path, **dict(how, **more))


def write_lines(path, rows):
    with open(path, "w", encoding="ascii") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)


class Atom:
    def __init__(self, program, work):
        self.program, self.work = os.path.abspath(program), work
        self.env = dict(os.environ, ATOM_PYTHON=sys.executable, LC_ALL="C.UTF-8",
                        XDG_CACHE_HOME=os.environ.get("TESTS_CACHE") or os.path.join(work, "cache"))

    def __call__(self, *args):
        done = subprocess.run([self.program, *map(str, args)], cwd=self.work, env=self.env, capture_output=True, text=True,
                              timeout=300, check=False)
        return done.returncode, done.stdout, done.stderr

    def good(self, *args):
        code, out, err = self(*args)
        if code:
            raise SystemExit(f"{args}: exit {code}: {err}")
        return out

    def prepare(self, name, *more):
        """The files of the data set."""
        self.good("data", "prepare", "-i", name, "-o", "out", "--force", *more)
        return self.files()

    def files(self):
        found = {}
        for name in os.listdir(os.path.join(self.work, "out")):
            with open(os.path.join(self.work, "out", name), "rb") as f:
                found[name] = f.read()
        return found


def compare(atom, r, seed, canary):
    """How many kinds of rows gave other data."""
    differ = 0
    for make in (texts, messages, sharegpt, alpaca, prompts):
        rows, kinds, more = make(r)
        write(r, os.path.join(atom.work, "a.parquet"), rows, kinds)
        write_lines(os.path.join(atom.work, "a.jsonl"), rows[:-2] + rows[:-3:-1] if canary else rows)
        how = more + ["--tokenizer", "model/tokenizer.json"]
        if atom.prepare("a.parquet", *how) != atom.prepare("a.jsonl", *how):
            differ += 1
            if not canary:
                print(f"seed {seed}: {make.__name__} differ")
    rows, kinds = questions(r)
    write(r, os.path.join(atom.work, "q.parquet"), rows, kinds)
    write_lines(os.path.join(atom.work, "q.jsonl"), rows[:-1] if canary else rows)
    told = []
    for name in ("q.parquet", "q.jsonl"):
        told.append(json.loads(atom.good("eval", "--model", "run/checkpoint-1", "--choices", name, "--device", "cpu", "--json")))
        for key in ("tokens_per_second", "seconds", "choices"):
            told[-1].pop(key, None)
    if told[0] != told[1]:
        differ += 1
        if not canary:
            print(f"seed {seed}: questions differ: {told}")
    return differ


def refusals(atom):
    """How many of them are not said as they should be."""
    at, day, bad = [None] * 6, datetime.datetime(2020, 1, 1), 0
    pairs = pa.map_(pa.string(), pa.int64())
    for columns, says in (
            ({"text": at + [day]}, [", row:7: column \"text\" (timestamp[us])", "datetime"]),
            ({"text": pa.array(at + [1], pa.timestamp("ns"))}, [", row:7: column \"text\" (timestamp[ns])"]),
            ({"text": at + [decimal.Decimal("1.5")]}, [", row:7: column \"text\" (decimal128(2, 1))", "Decimal"]),
            ({"text": list("abcdefg"), "weight": [1.0] * 6 + [float("nan")]}, [", row:7: column \"weight\" (double)", "float"]),
            ({"messages": [[]] * 6 + [[{"x": float("inf")}]]}, [", row:7: column \"messages\" (list<", "float"]),
            ({"text": [b"a"] * 6 + [b"\xff"]}, [", row:7: column \"text\" is not UTF-8"]),
            ({"text": pa.array([b"a"] * 6 + [b"\xff"]).view(pa.string())}, [", row:7: column \"text\" is not UTF-8"]),
            ({"text": ["a"], "tools": pa.array([[[("a", 1)]]], pa.list_(pairs))}, [": column \"tools\" holds maps"]),
            ({"conversations": [[{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]], "image": [{"bytes": b"\xff"}]},
             [", row:1: there is \"image\" beside the text"]),
            ({"instruction": ["a"], "output": ["b"], "context": ["c"]}, [", row:1: there is a \"context\" beside the chat"]),
            ({"text": list("abcdef") + [None]}, [", row:7: there is no string \"text\""]),
            ({"story": ["a"], "t\n": ["b"]}, [": it has none of the columns", "\"story\", \"t\\n\""]),
            ({}, [": it has none of the columns"])):
        for size in (1, 3, 100):
            pq.write_table(pa.table(columns), os.path.join(atom.work, "bad.parquet"), row_group_size=size)
            code, _, err = atom("data", "prepare", "-i", "bad.parquet", "-o", "none")
            if code != 3 or not all(word in err for word in ["atom: error: bad.parquet" + says[0], *says[1:]]):
                bad += 1
                print(f"exit {code}, not as it should: {err}{says}")
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, ["text"] * 2)
    pq.write_table(twice, os.path.join(atom.work, "bad.parquet"))
    code, _, err = atom("data", "prepare", "-i", "bad.parquet", "-o", "none")
    return bad + (code != 3 or 'bad.parquet: two columns are called "text"' not in err)


def damage(atom, r, times):
    """How many damaged files gave other data, or an error that is none of a file."""
    rows, bad, path = [{"text": words(r)} for _ in range(60)], 0, os.path.join(atom.work, "d.parquet")
    write(r, path, rows, {"text": pa.string()}, write_page_checksum=True, row_group_size=20)
    with open(path, "rb") as f:
        whole = f.read()
    want = atom.prepare("d.parquet")
    for i in range(times):
        data = bytearray(whole)
        at = r.randrange(len(data))
        if i % 4 == 0:
            data = data[:at]
        elif i % 4 == 1:
            data[at:at] = r.randbytes(3)
        else:
            data[at] ^= 1 << r.randrange(8)
        with open(path, "wb") as f:
            f.write(data)
        code, _, err = atom("data", "prepare", "-i", "d.parquet", "-o", "out", "--force")
        lines = [line for line in err.splitlines() if line.startswith("atom: error: d.parquet")]
        if code not in (0, 3) or (code == 0 and atom.files() != want) or (code == 3 and (len(lines) != 1 or len(lines[0]) > 900)):
            bad += 1
            print(f"damage {i} at {at}: exit {code}: {err}")
    return bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--damages", type=int, default=20)
    parser.add_argument("--canary", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="atom-oracle-") as work:
        atom = Atom(args.atom, work)
        with open(os.path.join(work, "a.txt"), "w", encoding="ascii") as f:
            f.write("hello " * 100)
        with open(os.path.join(work, "tiny.json"), "w", encoding="ascii") as f:
            json.dump(CONFIG, f)
        atom.good("data", "prepare", "-i", "a.txt", "-o", "model")
        with open(os.path.join(work, "model", "chat_template.jinja"), "w", encoding="ascii") as f:
            f.write(TEMPLATE)
        atom.good("train", "--model", "tiny.json", "--data", "model", "-o", "run", "--max-steps", 1, "--sequence-len", 16,
                  "--device", "cpu")
        differ = sum(compare(atom, random.Random(seed), seed, args.canary) for seed in range(args.first, args.first + args.seeds))
        if args.canary:
            print(f"{differ} of {6 * args.seeds} comparisons noticed")
            sys.exit(differ < 3 * args.seeds)
        bad = refusals(atom) + damage(atom, random.Random(args.first), args.damages)
    print(f"{6 * args.seeds} comparisons, {differ} differ; {bad} refusals are wrong")
    sys.exit(differ + bad > 0)


if __name__ == "__main__":
    main()
