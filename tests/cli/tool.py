"""Runs the built program the way other programs do: by its command line, exit code, stdout and stderr."""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ATOM = os.environ.get("ATOM", "build/release/atom")
SANITIZED = "SANITIZED" in os.environ  # ATOM is slow: what it does in other tests too, fewer do (tests/lib/sanitized.h)

WORDS = ("the of and to in that he shall unto for it his with not be is they which them this all from upon "
         "thou lord god king son man people house day came said went hand land men before one children").split()


def english(n_bytes, seed=1):
    """Text with some structure to learn, the same for the same arguments."""
    pick = random.Random(seed)
    lines, size = [], 0
    while size < n_bytes:
        line = " ".join(pick.choice(WORDS) for _ in range(pick.randint(4, 12))).capitalize() + ".\n"
        lines.append(line)
        size += len(line)
    return "".join(lines)[:n_bytes - 1] + "\n"


class Result:
    def __init__(self, args, done):
        self.args, self.code, self.out, self.err = args, done.returncode, done.stdout, done.stderr

    def json(self):
        """stdout must be exactly one JSON object."""
        value = json.loads(self.out)
        if not isinstance(value, dict):
            raise ValueError("stdout is not one object")
        return value

    def __str__(self):
        return f"{' '.join(self.args)}\nexit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Case(unittest.TestCase):
    """A test with a directory of its own, where the program's cache lives as well."""

    maxDiff = None

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="atom-cli-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.env = dict(os.environ, XDG_CACHE_HOME=self.shared_cache(), LC_ALL="C.UTF-8")
        self.env.pop("NO_COLOR", None)

    def shared_cache(self):
        """That of all tests of a build, so that each need not measure the machine and compile anew; or its own."""
        return os.environ.get("TESTS_CACHE") or os.path.join(self.dir, "cache")

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def write(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        return self.path(name)

    def read(self, *parts):
        with open(self.path(*parts), "rb") as f:
            return f.read()

    def run_atom(self, *args, env=None, timeout=300, prefix=(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE):
        args = list(prefix) + [ATOM] + [str(a) for a in args]
        done = subprocess.run(args, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True,
                              env=dict(self.env, **(env or {})), timeout=timeout, cwd=self.dir, check=False)
        return Result(args, done)

    def start_atom(self, *args, env=None, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, prefix=()):
        return subprocess.Popen(list(prefix) + [ATOM] + [str(a) for a in args], stdin=stdin,
                                stdout=subprocess.PIPE, stderr=stderr, text=True,
                                env=dict(self.env, **(env or {})), cwd=self.dir)

    def ok(self, *args, **more):
        result = self.run_atom(*args, **more)
        self.assertEqual(result.code, 0, str(result))
        return result

    def fails(self, code, *args, says=(), **more):
        """Exits with `code`, and explains it in one line on stderr that has all words of `says`."""
        result = self.run_atom(*args, **more)
        self.assertEqual(result.code, code, str(result))
        errors = [line for line in result.err.splitlines() if line.startswith("atom: error: ")]
        self.assertEqual(len(errors), 1, str(result))
        for word in (says,) if isinstance(says, str) else says:
            self.assertIn(word, errors[0], str(result))
        self.assertEqual(result.err.splitlines()[-1], errors[0], "the error comes last\n" + str(result))
        return result

    def said(self, name):
        with open(self.path(name), encoding="utf-8") as f:
            return f.read()

    def fails_at_last(self, *args, says, prefix=()):
        """Its last checkpoint finds no room; nobody waits until there is some. Returns all that it said."""
        with open(self.path("said"), "wb") as err:
            process = self.start_atom(*args, stderr=err, prefix=prefix)
        deadline = time.monotonic() + 60
        while "tried again for" not in self.said("said") and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 4, self.said("said"))
        for words in says:
            self.assertIn(words, self.said("said").splitlines()[-1])
        return self.said("said")


class DataCase(Case):
    """Tests of one class that share a data set, a config.json and a cache; each has its own directory."""

    MODEL = {}  # what is in config.json

    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="atom-cli-shared-")
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.data = os.path.join(cls.shared, "data")
        cls.config = os.path.join(cls.shared, "tiny.json")
        with open(cls.config, "w", encoding="ascii") as f:
            json.dump(cls.MODEL, f)
        cls.prepare(cls.data, english(60000))

    @classmethod
    def prepare(cls, out, text):
        """Makes the token shards of a text."""
        book = os.path.join(cls.shared, "book.txt")
        with open(book, "w", encoding="ascii") as f:
            f.write(text)
        case = Case("run_atom")
        case.dir, case.env = cls.shared, dict(os.environ)
        case.ok("data", "prepare", "--input", book, "--output", out)

    def shared_cache(self):
        return os.environ.get("TESTS_CACHE") or os.path.join(self.shared, "cache")


def main():
    if not os.path.exists(ATOM):
        sys.exit(f"no program at {ATOM}; set ATOM")
    globals()["ATOM"] = os.path.abspath(ATOM)
    unittest.main(module="__main__", verbosity=2)
