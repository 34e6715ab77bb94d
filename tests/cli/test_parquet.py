"""Parquet through a Python that is not as it should be: the data is whole, or there is none, and no process remains.
(With pyarrow itself: tests/oracle/parquet_oracle.py.)"""
import json
import os
import signal
import stat
import sys
import time

import tool

STUB = b"PAR1" + bytes(8) + b"PAR1"  # begins and ends as Parquet does; only fakes read it
ROWS = [{"text": f"row {i}"} for i in range(30)]
LINES = [json.dumps(row) for row in ROWS]


class Parquet(tool.Case):
    def setUp(self):
        super().setUp()
        self.write("in.parquet", STUB)
        self.env["ATOM_PYTHON"] = self.path("python")

    def fake(self, body, first="#!/bin/sh"):
        """What ATOM_PYTHON names."""
        os.chmod(self.write("python", f"{first}\n{body}\n"), stat.S_IRWXU)

    def fake_rows(self, *more, promised=len(ROWS), end="\n"):
        self.write("rows", f"{promised}\n" + "\n".join(LINES) + end)
        self.fake(f"cat {self.path('rows')}\n" + "\n".join(more))

    def fake_pyarrow(self, parquet, version="26.0.1"):
        """A real Python, whose pyarrow is this module."""
        os.mkdir(self.path("pyarrow"))
        self.write("pyarrow/__init__.py", f"__version__ = '{version}'\nclass ArrowException(Exception): pass\n")
        self.write("pyarrow/parquet.py", parquet)
        self.env.update(ATOM_PYTHON=sys.executable, PYTHONPATH=self.dir)

    def prepare(self, name="in.parquet"):
        return ["data", "prepare", "-i", name, "-o", "data", "--tokenizer", "bpe:300"]

    def refused(self, code, *says, name="in.parquet"):
        self.fails(code, *self.prepare(name), says=[name, *says])
        self.assertFalse(os.path.exists(self.path("data", "dataset.json")))

    def gone(self, pid):
        """Does the process end? (A dead one that nobody waits for counts.)"""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return True
            except FileNotFoundError:
                return True
            time.sleep(0.02)
        return False

    def test_rows_are_lines(self):
        """The same data as from the lines, with or without a last newline, however much is said beside them."""
        self.write("in.jsonl", "\n".join(LINES) + "\n")
        self.ok(*self.prepare("in.jsonl"))
        want = {name: self.read("data", name) for name in os.listdir(self.path("data"))}
        noise = "head -c 300000 /dev/zero | tr '\\0' n >&2"
        for more, end in (((), "\n"), ((), ""), ((noise,), "\n")):
            self.fake_rows(*more, end=end)
            self.ok(*self.prepare(), "--force")
            self.assertEqual({name: self.read("data", name) for name in os.listdir(self.path("data"))}, want)

    def test_how_it_is_started(self):
        """No shell: the path is one argument, whatever is in it. Its stdin is empty."""
        name = "-a '$(touch x)';\n\"b\".parquet"
        self.write(name, STUB)
        self.fake("import json, sys\n"
                  "assert sys.stdin.read() == '' and sys.argv[1] == '-c' and 'text' in sys.argv[4:]\n"
                  "print('1\\n' + json.dumps({'text': sys.argv[3]}))", first="#!" + sys.executable)
        self.ok("data", "prepare", "--input", "./" + name, "-o", "data", "--val-fraction", 0)
        self.assertIn("./" + name, self.ok("data", "inspect", "data", "--json").json()["preview"])
        self.assertFalse(os.path.exists(self.path("x")))

    def test_no_python(self):
        self.refused(2, "pip install pyarrow", "python: No such file")
        self.assertIn("No such file", json.loads(self.ok("doctor", "--json").out)["parquet"]["reason"])
        self.assertIn("parquet     not read: atom reads", self.ok("doctor").out)

    def test_no_pyarrow(self):
        self.fake_pyarrow("raise ImportError('there is none')")
        self.refused(2, "pip install pyarrow", "there is none")

    def test_old_pyarrow(self):
        self.fake_pyarrow("", version="14.0.0")
        self.refused(2, "its pyarrow is 14.0.0, and 15 or later is needed")

    def test_doctor(self):
        self.fake_pyarrow("")
        self.assertEqual(self.ok("doctor", "--json").json()["parquet"], {"pyarrow": "26.0.1", "reason": None})
        self.assertIn("parquet     read by pyarrow 26.0.1\n", self.ok("doctor").out)

    def test_nothing_from_here(self):
        """What lies in the current directory is not imported."""
        self.fake_pyarrow("raise ImportError('there is none')")
        for module in ("json", "threading", "select"):
            self.write(module + ".py", "open('x', 'w')")
        del self.env["PYTHONPATH"]
        self.run_atom(*self.prepare())
        self.assertFalse(os.path.exists(self.path("x")))

    def test_bad_ends(self):
        """Every row has come, and it still is no data set."""
        for more, code, says in ((["echo first >&2; echo last words >&2; exit 7"], 1, ["code 7 after row 30 of 30: last words"]),
                                 (["kill -9 $$"], 1, ["ended by signal 9", "after row 30 of 30"]),
                                 (["echo ': it is damaged' >&2; exit 3"], 3, ["in.parquet: it is damaged"]),
                                 (["printf 'no\\033[2J\\nroom\\n\\n' >&2; exit 4"], 4, ["no memory to read it: room"])):
            self.fake_rows(*more)
            self.refused(code, *says)
        for promised in (29, 31, 10**15):
            self.fake_rows(promised=promised)
            self.refused(1, f"gave 30 of its {promised} rows")
        for first, says in (("", "is not a usable Python"), ("hello\n", "did not say how many rows"), ("-1\n", "how many"),
                            ("9" * 40, "is not a usable Python"), ("12", "is not a usable Python")):
            self.write("rows", first)
            self.fake(f"cat {self.path('rows')}")
            self.refused(1, says)

    def test_bad_rows(self):
        """Rows are numbered; a line that was cut is none."""
        for row, says in (('{"story": "a"}', 'no string "text"; its keys are "story"'), ('{"text": "a', "row:31:")):
            LINES.append(row)
            try:
                self.fake_rows(promised=31, end="")
            finally:
                LINES.pop()
            self.refused(3, "in.parquet, row:31:", says)

    def test_line_without_end(self):
        """As long as a line of JSONL may be, and no longer."""
        self.fake(f"echo $$ > {self.path('pid')}; echo 1; exec tr '\\0' x < /dev/zero")
        self.refused(3, "row:1: there are more than 1024 MiB", "a line's end")
        self.assertTrue(self.gone(int(self.read("pid"))))

    def test_no_process_remains(self):
        """atom is ended while Python does not answer: Python ends, too, though atom tells it nothing."""
        self.fake_pyarrow("import os, time\n"
                          "def ParquetFile(*args, **more):\n"
                          "    with open('pid.part', 'w') as f: f.write(str(os.getpid()))\n"
                          "    os.rename('pid.part', 'pid')\n"
                          "    time.sleep(600)\n")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            atom = self.start_atom(*self.prepare())
            until = time.monotonic() + 60
            while not os.path.exists(self.path("pid")) and time.monotonic() < until:
                time.sleep(0.02)
            pid = int(self.read("pid"))
            atom.send_signal(number)
            atom.communicate(timeout=60)
            self.assertEqual(atom.returncode, -number)
            self.assertTrue(self.gone(pid), number)
            os.remove(self.path("pid"))

    def test_files_that_are_none(self):
        """Said without any Python."""
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
        os.mkdir(self.path("d.parquet"))
        for name, content, code, says in (("a.parquet", "", 3, "not Parquet"), ("a.parquet", "PAR", 3, "incomplete"),
                                          ("a.parquet", "PAR1", 3, "incomplete"),
                                          ("a.parquet", STUB[:-2], 3, "incomplete"), ("a.parquet", "x" * 99, 3, "not Parquet"),
                                          ("a.parquet", pointer, 3, "LFS"), ("a.parquet.gz", STUB, 2, "unpack it"),
                                          ("d.parquet", None, 2, "is a directory"), ("b.parquet", None, 3, "no such file")):
            if content is not None:
                self.write(name, content)
            self.refused(code, says, name=name)


if __name__ == "__main__":
    tool.main()
