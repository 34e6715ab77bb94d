#!/usr/bin/python3
"""Puts small bugs into the product's own C, one at a time, and sees whether a test notices.

  mutate.py --n 200 --seed 1                 200 mutants over all folders; by hand: it takes hours
  mutate.py --n 20 --only gossip/agree       of one folder or file
  mutate.py --at swap/cow.c:120              every mutant of one line
  mutate.py --hours 8 --log FILE             a soak: until the time is over; FILE has every verdict
  mutate.py --self-test                      the operators themselves

Works in a copy of the tree under build/mutate, which it makes from HEAD and builds once. A mutant that
compiles to the same code is no mutant and is drawn again. The nearest tests run first (those that are
named after the file, then those of its folder, then the suites that use it, then all quick ones), and
the first test that is red, also alone, ends it; one that hangs counts as red. Prints one line a mutant, then the survivors
with file, line and change. Exit 0: at least --killed percent (90) were noticed.
"""
import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time

FOLDERS = ("atom", "codegen", "gossip", "kernels", "partition", "swap", "tools")
# Not built here, or no part of the product: the CUDA module, and programs that only measure.
LEFT_OUT = ("kernels/cuda/", "tools/bench/", "kernels/null/bench")
# Suites beyond the unit tests, nearest first.
SUITES = {
    "kernels": ["^ops", "^shim", "^swap[.]"],
    "swap": ["^swap[.]", "^store", "^cli[.](train|disk)"],
    "codegen": ["^swap[.]", "^cli[.]"],
    "partition": ["^unit[.]gen_", "^swap[.]", "^cli[.]"],
    "gossip/agree": ["^sim"],
    "gossip": ["^unit[.]gossip_", "^sim", "^net[.]", "^pool[.]"],
    "atom/graph": ["^unit[.](gen|part)_", "^swap[.]", "^oracle"],
    "atom/file": ["^fuzz[.]file", "^pt2", "^unit[.]train_", "^oracle"],
    "atom/text": ["^fuzz[.]text", "^cli[.]", "^oracle"],
    "atom": ["^unit[.]train_", "^cli[.]", "^oracle"],
    "tools": ["^cli[.]", "^pool[.]", "^net[.]walk"],
}
UNIT = {"atom/base": "base", "atom/graph": "graph", "atom/file": "file", "atom/text": "text", "kernels": "kernels",
        "partition": "part", "swap": "swap", "codegen": "gen", "gossip": "gossip", "atom": "train", "tools": "cli"}


# --- mutants ------------------------------------------------------------------------------------------------

def blank(text):
    """The text with comments, strings, characters and preprocessor lines as blanks, same length."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', spaces, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", spaces, text, flags=re.M)


SWAPS = [
    (r" < ", [" <= ", " > "]), (r" <= ", [" < "]), (r" > ", [" >= ", " < "]), (r" >= ", [" > "]),
    (r" == ", [" != "]), (r" != ", [" == "]), (r" && ", [" || "]), (r" \|\| ", [" && "]),
    (r" \+ ", [" - "]), (r" - ", [" + "]), (r" \* (?=[\w(])", [" + "]), (r" / ", [" * "]), (r" % ", [" / "]),
    (r" \+= ", [" = ", " -= "]), (r" -= ", [" += "]), (r" \|= ", [" = "]), (r" &= ", [" = "]),
    (r"\btrue\b", ["false"]), (r"\bfalse\b", ["true"]), (r"(?<=[( ])!(?=[\w(])", [""]),
    (r"\+\+(?=[;)])", ["--"]), (r"\bcontinue;", ["break;"]), (r"\bbreak;(?=\n\s*\})", [";"]),
    (r"(?<![\w.])(\d{1,6})(?![\w.])", None),  # a number: one more
]
# A whole statement: a call whose result nobody takes, or an assignment to something that lasts.
CALL = re.compile(r"^ +[a-z_]\w*\([^;{}]*\);$", re.M)
STORE = re.compile(r"^ +[\w\]\[.>*-]*(?:->|\.|\])[\w\]\[.>-]* [|&+-]?= [^;{}]*;$", re.M)
# What is there to be read by people, or to stop our own bugs: nothing that a test should notice.
QUIET = re.compile(r"ATOM_ASSERT|ATOM_UNREACHABLE|_Static_assert|atom_fail|atom_log|snprintf|printf|atom_note|__builtin_")


def mutants(text):
    """Every mutant of a file as (position, length, replacement)."""
    code = blank(text)
    found = []
    inside = [(m.start(), m.end()) for m in re.finditer(r"^\{\n.*?^\}", code, re.M | re.S)]
    for begin, end in inside:
        for pattern, others in SWAPS:
            for match in re.finditer(pattern, code[begin:end]):
                at = begin + match.start()
                if others is None:
                    found.append((at, len(match.group(0)), str(int(match.group(1)) + 1)))
                else:
                    found += [(at, len(match.group(0)), other) for other in others]
        for pattern in (CALL, STORE):
            for match in pattern.finditer(code, begin, end):
                if not re.match(r" +(return|goto|free|atom_free|fclose|close)\b|.*_close\(", match.group(0)):
                    found.append((match.start(), len(match.group(0)), ""))
    return [m for m in found if not QUIET.search(statement_at(code, m[0], m[1]))]


def statement_at(code, at, length):
    begin = max(code.rfind(";", 0, at), code.rfind("{", 0, at), code.rfind("}", 0, at)) + 1
    end = code.find(";", at + length - 1)
    return code[begin:end if end >= 0 else len(code)]


# --- the copy and its build ---------------------------------------------------------------------------------

class Tree:
    def __init__(self, root, build):
        self.root, self.build = root, build
        self.commands = {}

    def run(self, *command, seconds=900):
        try:
            return subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=seconds, check=False,
                                  stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as late:
            return subprocess.CompletedProcess(command, 124, str(late.stdout or ""), "")

    def prepare(self):
        say(f"building {self.build}")
        flags = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O1", "-DATOM_TESTS=ON"]
        for command in (["cmake", "-G", "Ninja", "-S", self.root, "-B", self.build] + flags,
                        ["cmake", "--build", self.build]):
            done = self.run(*command, seconds=3600)
            if done.returncode:
                sys.exit(f"mutate: {' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        with open(os.path.join(self.build, "compile_commands.json"), encoding="utf-8") as f:
            for row in json.load(f):
                path = os.path.relpath(row["file"], self.root)
                self.commands.setdefault(path, (row["command"], row["directory"]))

    def object_hash(self, path):
        """Hash of the machine code of a file as it stands; None: it does not compile."""
        command, directory = self.commands[path]
        out = os.path.join(self.build, "mutant.o")
        command = re.sub(r" -o \S+", f" -o {out}", command) + " -g0 -w"
        done = subprocess.run(command, shell=True, cwd=directory, capture_output=True, check=False)
        if done.returncode:
            return None
        with open(out, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()

    def tests(self):
        """Names of all quick tests, by ctest's own list."""
        shown = json.loads(self.run("ctest", "--test-dir", self.build, "-L", "quick", "--show-only=json-v1").stdout)
        return [t["name"] for t in shown["tests"] if not re.match(r"walls|headers|mutate|ops[.]canary", t["name"])]


def say(text):
    print(f"mutate: {text}", flush=True)


def folder_key(table, path):
    return next((k for k in sorted(table, key=len, reverse=True) if path.startswith(k + "/")), None)


def nearest(path, tests):
    """Tests in rings around a file, each ring once: named alike, of the folder, of its users, all."""
    stem = os.path.splitext(os.path.basename(path))[0]
    words = [w for w in stem.split("_") if len(w) > 3] or [stem]
    unit = UNIT[folder_key(UNIT, path)]
    rings = [[t for t in tests if t.startswith(f"unit.{unit}_") and any(w[:6] in t for w in words)],
             [t for t in tests if t.startswith(f"unit.{unit}_")]]
    for pattern in SUITES.get(folder_key(SUITES, path), []):
        rings.append([t for t in tests if re.search(pattern, t)])
    rings.append(list(tests))
    seen = set()
    for ring in rings:
        ring = [t for t in ring if t not in seen]
        seen |= set(ring)
        if ring:
            yield ring


def targets_of(ring):
    """Programs of a ring's tests, where their names say so; None: everything."""
    names = [re.sub(r"^unit[.]", "unit_", t) for t in ring if t.startswith("unit.")]
    return names if len(names) == len(ring) else None


def run_tests(tree, names, jobs, limit):
    pattern = "^(" + "|".join(re.escape(t) for t in names) + ")$"
    return tree.run("ctest", "--test-dir", tree.build, "-j", str(jobs), "-R", pattern, "--timeout", str(limit),
                    "--stop-on-failure", seconds=1800)


def reds(tree, ring, jobs):
    """Tests of a ring that are red, as they are found; those behind one that counts are not run."""
    left = list(ring)
    while left:
        done = run_tests(tree, left, jobs, 100)
        found = re.findall(r"Test +#\d+: (\S+) \.*[ *]*(?:Failed|Timeout|Exception|Not Run)", done.stdout)
        if not done.returncode or not found:
            return
        passed = set(re.findall(r"Test +#\d+: (\S+) \.*[ *]*(?:Passed|Skipped)", done.stdout))
        left = [t for t in left if t not in passed and t not in found]
        yield from found


def judge(tree, path, tests, jobs):
    """(verdict, what noticed) of the mutant that stands in the tree."""
    for ring in nearest(path, tests):
        targets = targets_of(ring)
        built = tree.run("cmake", "--build", tree.build, "-j", str(jobs), *(["--target"] + targets if targets else []))
        if built.returncode:
            return "killed", "the build"
        for test in reds(tree, ring, jobs):
            # A machine that does something else, too, makes tests late: only what is red alone counts.
            if run_tests(tree, [test], 1, 300).returncode:
                return "killed", test
    return "survived", ""


# --- the whole ----------------------------------------------------------------------------------------------

def draw(tree, files, rng, taken):
    """A mutant that compiles to something else: (path, text, mutant), at random by lines of code."""
    while True:
        path = rng.choices([f for f, _ in files], [n for _, n in files])[0]
        with open(os.path.join(tree.root, path), encoding="utf-8") as f:
            text = f.read()
        all_of = [m for m in mutants(text) if (path, m) not in taken]
        if not all_of:
            continue
        mutant = rng.choice(all_of)
        taken.add((path, mutant))
        return path, text, mutant


def apply(text, mutant):
    at, length, other = mutant
    return text[:at] + other + text[at + length:]


def describe(path, text, mutant):
    at, length, other = mutant
    line = text.count("\n", 0, at + (len(text[at:at + length]) - len(text[at:at + length].lstrip()))) + 1
    return f"{path}:{line}", f"{text[at:at + length].strip()} -> {other.strip() or '(nothing)'}"


def try_one(tree, path, text, mutant, tests, jobs):
    full = os.path.join(tree.root, path)
    before = tree.object_hash(path)
    try:
        with open(full, "w", encoding="utf-8") as f:
            f.write(apply(text, mutant))
        after = tree.object_hash(path)
        if after is None or after == before:
            return None, ""
        return judge(tree, path, tests, jobs)
    finally:
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)


def self_test():
    text = ('/* a < b */\nint f(int a)\n{\n    if (a < 3 && g("x == y"))\n        return 7;\n    h(a);\n'
            "    ATOM_ASSERT(a == 1);\n    p->x = a;\n    return a + 1;\n}\n")
    made = {(text[a:a + n].strip(), o.strip()) for a, n, o in mutants(text)}
    wanted = {("<", "<="), ("<", ">"), ("&&", "||"), ("3", "4"), ("7", "8"), ("+", "-"), ("1", "2"),
              ("h(a);", ""), ("p->x = a;", "")}
    if made != wanted:
        print("mutate: self test: not made:", wanted - made, "made:", made - wanted)
        return 1
    for mutant in mutants(text):
        if apply(text, mutant).count("\n") < text.count("\n") - 1 or apply(text, mutant) == text:
            print("mutate: self test: not applied:", mutant)
            return 1
    rings = list(nearest("gossip/agree/round.c", ["unit.gossip_round", "unit.gossip_net", "sim.quick", "cli.eval"]))
    if rings != [["unit.gossip_round"], ["unit.gossip_net"], ["sim.quick"], ["cli.eval"]]:
        print("mutate: self test: rings", rings)
        return 1
    print(f"mutate: {len(made)} mutants of a small file as they should be")
    return 0


def candidates(root, only):
    listed = subprocess.run(["git", "ls-files", "*.c"], cwd=root, capture_output=True, text=True, check=True).stdout.split()
    files = []
    for path in listed:
        if path.startswith(FOLDERS) and not path.startswith(LEFT_OUT) and path.startswith(only):
            with open(os.path.join(root, path), encoding="utf-8") as f:
                files.append((path, f.read().count("\n")))
    return files


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--at", default="")
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--killed", type=float, default=90)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--log", default="")
    options = parser.parse_args()
    if options.help:
        print(__doc__)
        return 0
    if options.self_test:
        return self_test()
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    place = os.path.join(here, "build", "mutate")
    tree = Tree(os.path.join(place, "tree"), os.path.join(place, "build"))
    shutil.rmtree(tree.root, ignore_errors=True)
    os.makedirs(tree.root)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=here, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", tree.root], input=archive, check=True)
    tree.prepare()
    tests = tree.tests()
    rng, taken = random.Random(options.seed), set()
    queue = None
    if options.at:
        path, line = options.at.split(":")
        with open(os.path.join(tree.root, path), encoding="utf-8") as f:
            text = f.read()
        queue = [(path, text, m) for m in mutants(text) if describe(path, text, m)[0] == f"{path}:{line}"]
    files = [] if queue is not None else [f for f in candidates(here, options.only) if f[0] in tree.commands]
    killed, survivors, began = 0, [], time.time()
    while True:
        done = killed + len(survivors)
        if queue == [] or (queue is None and not options.hours and done == options.n):
            break
        if options.hours and time.time() - began > 3600 * options.hours:
            break
        path, text, mutant = queue.pop(0) if queue is not None else draw(tree, files, rng, taken)
        since = time.time()
        verdict, by = try_one(tree, path, text, mutant, tests, options.jobs)
        if verdict is None:
            continue
        where, change = describe(path, text, mutant)
        killed += verdict == "killed"
        if verdict == "survived":
            survivors.append(f"{where}: {change}")
        say(f"{done + 1}: {verdict} {where}: {change}{' by ' + by if by else ''} ({time.time() - since:.0f} s)")
        if options.log:
            with open(options.log, "a", encoding="utf-8") as f:
                f.write(json.dumps({"verdict": verdict, "where": where, "change": change, "by": by}) + "\n")
    total = killed + len(survivors)
    for line in survivors:
        print(f"survived: {line}")
    share = 100 * killed / total if total else 0
    say(f"{killed} of {total} noticed ({share:.1f} %), seed {options.seed}")
    return 0 if total and share >= options.killed else 1


if __name__ == "__main__":
    sys.exit(main())
