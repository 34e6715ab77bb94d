#!/usr/bin/python3
"""Puts small bugs into the product's own C, one at a time, and sees whether a test notices.

  mutate.py --n 200 --seed 1                 200 mutants over all folders; by hand: it takes hours
  mutate.py --n 20 --only gossip/agree       of one folder or file
  mutate.py --at swap/cow.c:120              every mutant of one line
  mutate.py --hours 8 --log FILE             a soak: until the time is over; FILE has every verdict
  mutate.py --n 200 --seed 1 --log FILE      goes on where FILE ends: what has a verdict there is not run again
  mutate.py --again FILE                     the mutants that survived according to FILE, once more
  mutate.py --again FILE --full '^cli[.]'    the same, with those of the full tests that are named so, too
  mutate.py --quick '^unit[.]'               only with those of the quick tests that are named so
  mutate.py --jobs 4                         so many tests at once while it finds out what they execute
  mutate.py --self-test                      the operators themselves

It works in a copy of HEAD under build/mutate, which is built so that it counts what is executed (gcov). Every
test that is asked for runs once, so that it is known which tests execute which lines; the others cannot notice a mutant of that line
and are not run. (A process that is killed leaves no counts: a test that sees a line only in such a process is not
run either, which can only make a mutant look alive.) For a mutant the file is compiled, the programs of the next test
are linked again with that object in front of its archive, and the test runs: those named after the file first, then
the shorter ones. A mutant that compiles to the same code is not a mutant, and another one is drawn. A mutant is
noticed if a test is red twice, or takes four times as long as it should and ten seconds, and is green at once afterwards
with the program as it should be, in half that time. Prints one line a mutant, then the survivors with file, line and
change. Exit 0: at least --killed percent (90) were noticed.
"""
import argparse
import ctypes
import glob
import hashlib
import json
import multiprocessing
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time

from operators import apply, describe, lines_of, mutants

FOLDERS = ("atom/", "codegen/", "gossip/", "kernels/", "partition/", "swap/", "tools/")
# Not built here, or no part of the product: the CUDA module, and programs that only measure.
LEFT_OUT = ("kernels/cuda/", "tools/bench/", "kernels/null/bench")
# Tests that look at sources and not at what they do, proofs that a test can fail, and those of the CUDA module.
NO_TESTS = re.compile(r"walls|headers|mutate|.*canary|shim|cuda")
# What counts, and optimises: of code that is not optimised more mutants differ that nobody can tell apart.
COUNTING, FLAGS = " --coverage", "-O1"
MEMORY = 24 << 30  # of one process: a mutant that takes all of it would end others, too


# --- the copy and its builds --------------------------------------------------------------------------------

def say(text):
    print(f"mutate: {text}", flush=True)


def digest(paths):
    sum_of = hashlib.sha256()
    for path in sorted(paths):
        with open(path, "rb") as f:
            sum_of.update(path.encode() + hashlib.sha256(f.read()).digest())
    return sum_of.hexdigest()


def unpack(here, root):
    """Brings the copy to HEAD; what is the same already is not touched, so that it is not built again."""
    packed = subprocess.Popen(["git", "archive", "HEAD"], cwd=here, stdout=subprocess.PIPE)
    wanted = set()
    with tarfile.open(fileobj=packed.stdout, mode="r|") as tar:
        for entry in tar:
            if not entry.isfile():
                continue
            path, data = os.path.join(root, entry.name), tar.extractfile(entry).read()
            wanted.add(path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if os.path.exists(path):
                with open(path, "rb") as f:
                    if f.read() == data:
                        continue
            with open(path, "wb") as f:
                f.write(data)
            os.chmod(path, entry.mode)
    if packed.wait():
        sys.exit("mutate: git archive failed; is this a git work tree?")
    for folder, _, names in os.walk(root):
        for name in names:
            if os.path.join(folder, name) not in wanted and not name.endswith(".pyc"):
                os.remove(os.path.join(folder, name))


def link_with(command, objects, archives):
    """A link command with mutated objects: each in its place if it is named, else before the archive that has it."""
    for old, new in objects.items():
        if f" {old} " in command:
            command = command.replace(f" {old} ", f" {new} ")
        elif archives.get(old) and f" {archives[old]}" in command:
            command = command.replace(f" {archives[old]}", f" {new} {archives[old]}", 1)
    return command


class Tree:
    def __init__(self, here):
        self.here, self.place = here, os.path.join(here, "build", "mutate")
        self.root, self.build = os.path.join(self.place, "tree"), os.path.join(self.place, "build")
        self.objects, self.links, self.archives, self.plain = {}, {}, {}, {}
        self.swapped = []

    def prepare(self):
        for kept in glob.glob(self.build + "/**/*.plain", recursive=True):
            os.replace(kept, kept[:-len(".plain")])
        unpack(self.here, self.root)
        python, here = (os.path.join(at, "build", "venv") for at in (self.root, self.here))  # tests/oracle/run_python
        if os.path.isdir(here) and not os.path.lexists(python):
            os.makedirs(os.path.dirname(python), exist_ok=True)
            os.symlink(here, python)
        fast = ["-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=gold"] if shutil.which("ld.gold") else []
        # A build type of our own: Release has its flags in CMakeLists.txt.
        self.must(["cmake", "-G", "Ninja", "-S", self.root, "-B", self.build, "-DCMAKE_BUILD_TYPE=Mutate", "-DATOM_TESTS=ON",
                   f"-DCMAKE_C_FLAGS_MUTATE={FLAGS}{COUNTING}"] + fast)
        self.read_commands()
        say(f"building {self.build}")
        self.must(["cmake", "--build", self.build, "-j", str(len(os.sched_getaffinity(0))), "--target", "fuzz_script_seeds",
                   "fuzz_written_seeds"] + [p for p in self.links if not re.search(r"shim|cuda", p)])

    def must(self, command):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"mutate: {' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def read_commands(self):
        """How everything is compiled and linked, and which archive has which object."""
        with open(os.path.join(self.build, "compile_commands.json"), encoding="utf-8") as f:
            for row in json.load(f):
                made = re.search(r" -o (\S+)", row["command"]).group(1)
                self.objects.setdefault(os.path.relpath(row["file"], self.root), {})[made] = row["command"]
        for line in self.must(["ninja", "-C", self.build, "-t", "commands"]).split("\n"):
            for archive, members in re.findall(r"\bar qc (\S+\.a) ([^&]*)", line):
                self.archives.update({m: archive for m in members.split()})
            made = re.search(r" -o (\S+)", line)
            if made and " -c " not in line:
                self.links[made.group(1)] = line

    def compile(self, path):
        """Compiles a file as it stands: objects by what they replace, and their hash. None: it does not compile."""
        made = {}
        for i, (old, command) in enumerate(self.objects[path].items()):
            made[old] = os.path.join("mutant", f"{i}.o")
            os.makedirs(os.path.join(self.build, "mutant"), exist_ok=True)
            command = command.replace(f" -o {old}", f" -o {made[old]}").replace(COUNTING, "")
            if subprocess.run(command + " -w", shell=True, cwd=self.build, capture_output=True, check=False).returncode:
                return None, ""
        return made, digest(os.path.join(self.build, m) for m in made.values())

    def programs(self, test):
        """What is linked here and named by a test's command or environment."""
        words = " ".join(test["command"] + list(test["env"].values()))
        return [p[len(self.build) + 1:] for p in re.findall(re.escape(self.build) + r"/[\w./-]+", words)
                if p[len(self.build) + 1:] in self.links]

    def link(self, test, objects):
        """Puts the mutated objects into a test's programs. False: one of them cannot be linked so."""
        for program in self.programs(test):
            if program in self.swapped:
                continue
            full = os.path.join(self.build, program)
            os.replace(full, full + ".plain")
            self.swapped.append(program)
            done = subprocess.run(link_with(self.links[program], objects, self.archives), shell=True, cwd=self.build,
                                  capture_output=True, text=True, check=False)
            if done.returncode:
                say(f"cannot link {program} with a mutant:\n{done.stdout[-600:]}{done.stderr[-600:]}")
                return False
        return True

    def restore(self):
        for program in self.swapped:
            os.replace(os.path.join(self.build, program + ".plain"), os.path.join(self.build, program))
        self.swapped = []


# --- tests --------------------------------------------------------------------------------------------------

def tests_of(tree, label):
    """Tests of a label by ctest's own list."""
    shown = json.loads(subprocess.run(["ctest", "--test-dir", tree.build, "-L", label, "--show-only=json-v1"],
                                      capture_output=True, text=True, check=True).stdout)
    found = []
    for test in shown["tests"]:
        more = {p["name"]: p["value"] for p in test["properties"]}
        if NO_TESTS.match(test["name"]):
            continue
        if "command" not in test:
            say(f"{test['name']} is not built: it is left out")
            continue
        found.append({"name": test["name"], "command": test["command"], "folder": more.get("WORKING_DIRECTORY", tree.build),
                      "env": dict(e.split("=", 1) for e in more.get("ENVIRONMENT", []) if "=" in e),
                      "skip": more.get("SKIP_RETURN_CODE", -1), "green": more.get("PASS_REGULAR_EXPRESSION", [])})
    return found


def run_test(test, place, limit, counts=""):
    """"green", "red", or "late" after so many seconds. Nothing that it started or wrote is left, but its counts if wanted."""
    scratch = os.path.join(test["env"].get("TMPDIR", "/tmp"), f"mutate-{os.getpid()}")
    os.makedirs(scratch, exist_ok=True)
    cache = os.path.join(place, "cache")
    os.makedirs(cache, exist_ok=True)
    env = dict(os.environ, **test["env"])
    env.update(TMPDIR=scratch, XDG_CACHE_HOME=cache, GCOV_PREFIX=counts or os.path.join(scratch, "counts"))
    if not counts:  # what a mutant keeps for later runs ends with it
        env["XDG_CACHE_HOME"] = shutil.copytree(cache, os.path.join(scratch, "cache"))
    with open(os.path.join(scratch, "output"), "w+b") as out:
        run = subprocess.Popen(test["command"], cwd=test["folder"], env=env, stdin=subprocess.DEVNULL, stdout=out,
                               stderr=out, start_new_session=True,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)))
        code = None
        try:
            code = run.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        end_children()
        shutil.rmtree(scratch, ignore_errors=True)
        out.seek(0)
        said = out.read().decode(errors="replace")
    if code is None:
        return "late"
    good = any(re.search(g, said) for g in test["green"]) if test["green"] else code in (0, test["skip"])
    return "green" if good else "red"


def be_subreaper():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: end_children


def end_children():
    """Ends everything that came from a test: as a subreaper we are the parent of all that it left behind."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as f:
            left = [int(p) for p in f.read().split()]
        if not left:
            return
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        for pid in left:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass


class Coverage:
    """Which tests execute which lines, and how long they take; kept on disk by what a test is made of."""

    def __init__(self, tree):
        self.tree, self.known, self.lines = tree, {}, {}
        self.store = os.path.join(tree.place, "tests")
        os.makedirs(self.store, exist_ok=True)
        self.read_store()

    def read_store(self):
        for name in os.listdir(self.store):
            with open(os.path.join(self.store, name), encoding="utf-8") as f:
                self.known[name] = json.load(f)

    def counts_of(self, name):
        return os.path.join(self.tree.place, "counts", name)

    def key_of(self, test):
        """What a test is made of."""
        words = " ".join(test["command"] + list(test["env"].values()))
        made_of = [p for p in set(re.findall(r"/[\w./+-]+", words)) if os.path.isfile(p)]
        for script in [p for p in made_of if p.endswith((".py", "run_python"))]:
            made_of += glob.glob(os.path.dirname(script) + "/*.py")
        return digest(set(made_of)) + str(test["command"])

    def measure_one(self, test):
        shutil.rmtree(self.counts_of(test["name"]), ignore_errors=True)
        since = time.time()
        green = run_test(test, self.tree.place, 900, self.counts_of(test["name"])) == "green"
        row = {"key": self.key_of(test), "green": green, "seconds": time.time() - since}
        with open(os.path.join(self.store, test["name"]), "w", encoding="utf-8") as f:
            json.dump(row, f)

    def take_turns(self, tests, turns):
        be_subreaper()
        while True:
            with turns.get_lock():
                turn, turns.value = turns.value, turns.value + 1
            if turn >= len(tests):
                return
            self.measure_one(tests[turn])

    def measure(self, tests, jobs):
        """Runs those that are new, `jobs` at once, and those that were red so once more, alone."""
        new = [t for t in tests if self.known.get(t["name"], {}).get("key") != self.key_of(t)]
        say(f"running {len(new)} of {len(tests)} tests once, to see what they execute")
        turns, workers = multiprocessing.get_context("fork").Value("i", 0), []
        for _ in range(jobs):
            worker = os.fork()
            if worker:
                workers.append(worker)
                continue
            try:
                self.take_turns(new, turns)
            finally:
                os._exit(0)
        for worker in workers:
            os.waitpid(worker, 0)
        self.read_store()
        for test in new:
            if not self.known.get(test["name"], {}).get("green"):
                self.measure_one(test)
        self.read_store()
        for test in tests:
            if not self.known[test["name"]]["green"]:
                say(f"{test['name']} is red without a mutant: it is left out")

    def executed(self, name, path):
        """Lines of a file that a test executes; None: it does not have the file."""
        if (name, path) in self.lines:
            return self.lines[name, path]
        folder, found = self.counts_of(name) + self.tree.build, None
        for old in self.tree.objects[path]:
            counts = os.path.join(folder, re.sub(r"\.o$", ".gcda", old))
            if os.path.exists(counts):
                notes = counts[:-len("gcda")] + "gcno"
                if not os.path.lexists(notes):
                    os.symlink(os.path.join(self.tree.build, re.sub(r"\.o$", ".gcno", old)), notes)
                shown = subprocess.run(["gcov", "-j", "-t", counts], capture_output=True, text=True, check=False).stdout
                found = found or set()
                for file in json.loads(shown or '{"files": []}')["files"]:
                    if file["file"].endswith(path):
                        found |= {row["line_number"] for row in file["lines"] if row["count"]}
        self.lines[name, path] = found
        return found


def in_order(path, tests, seconds):
    """Those named after the file first, then the shorter ones; the unknown last."""
    stem = os.path.splitext(os.path.basename(path))[0]
    words = [w[:6] for w in stem.split("_") if len(w) > 3] or [stem]
    return sorted(tests, key=lambda t: (seconds.get(t, 1e6) if any(w in t for w in words) else 1e3 + seconds.get(t, 1e6), t))


def noticed(tree, test, objects, seconds):
    """"red" or "late" if a test that usually takes so many seconds is it because of the mutated objects, else ""."""
    limit = 10 + 4 * seconds
    for _ in range(3):
        if not tree.link(test, objects):
            tree.restore()
            return ""
        seen = run_test(test, tree.place, limit)
        if seen == "red":
            seen = run_test(test, tree.place, limit)
        if seen == "green":
            return ""
        tree.restore()
        since = time.time()
        if run_test(test, tree.place, 600) != "green":
            say(f"{test['name']} is not green without the mutant either: not counted")
            return ""
        took = time.time() - since
        if seen == "red" or 2 * took < limit:
            return seen
        limit = 10 + 6 * took  # the machine does something else, too
    return ""


def judge(tree, coverage, path, text, mutant, objects, tests):
    """(verdict, what noticed, tests run) of a mutant."""
    lines, known, n = lines_of(text, mutant), coverage.known, 0
    seconds = {t: known[t]["seconds"] for t in tests if t in known}
    for name in in_order(path, tests, seconds):
        if name in known and not (known[name]["green"] and lines & (coverage.executed(name, path) or set())):
            continue
        n += 1
        how = noticed(tree, tests[name], objects, seconds.get(name, 100))
        if how:
            tree.restore()
            return "killed", name + (" (late)" if how == "late" else ""), n
    tree.restore()
    return "survived", "", n


# --- the whole ----------------------------------------------------------------------------------------------

def draw(tree, files, rng, taken):
    """A mutant: (path, text, mutant), at random by lines of code."""
    while True:
        path = rng.choices([f for f, _ in files], [n for _, n in files])[0]
        text = read(tree, path)
        all_of = [m for m in mutants(text) if (path, m) not in taken]
        if not all_of:
            continue
        mutant = rng.choice(all_of)
        taken.add((path, mutant))
        return path, text, mutant


def read(tree, path):
    with open(os.path.join(tree.root, path), encoding="utf-8") as f:
        return f.read()


def try_one(tree, coverage, path, text, mutant, tests):
    full = os.path.join(tree.root, path)
    if path not in tree.plain:
        tree.plain[path] = tree.compile(path)[1]
    kept = os.stat(full)
    try:
        with open(full, "w", encoding="utf-8") as f:
            f.write(apply(text, mutant))
        objects, after = tree.compile(path)
        if objects is None or after == tree.plain[path]:
            return None, "", 0
    finally:
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)
        os.utime(full, ns=(kept.st_atime_ns, kept.st_mtime_ns))
    return judge(tree, coverage, path, text, mutant, objects, tests)


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
    where = {(describe("a.c", text, m)["where"], *sorted(lines_of(text, m))) for m in mutants(text)}
    if where != {("a.c:4", 4, 5), ("a.c:5", 4, 5), ("a.c:6", 6), ("a.c:8", 8), ("a.c:9", 9)}:
        print("mutate: self test: lines", where)
        return 1
    order = in_order("gossip/agree/round.c", ["sim.quick", "unit.gossip_round", "cli.eval", "new"],
                     {"unit.gossip_round": 9, "sim.quick": 5, "cli.eval": 1})
    if order != ["unit.gossip_round", "cli.eval", "sim.quick", "new"]:
        print("mutate: self test: order", order)
        return 1
    linked = link_with("cc x.o y.o -o p libz.a libq.a", {"y.o": "0.o", "z.o": "1.o", "r.o": "2.o"},
                       {"z.o": "libz.a", "r.o": "libr.a"})
    if linked != "cc x.o 0.o -o p 1.o libz.a libq.a":
        print("mutate: self test: linked", linked)
        return 1
    print(f"mutate: {len(made)} mutants of a small file as they should be")
    return 0


def candidates(tree, only):
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        tiles = "amx_tile" in f.read()  # without them nobody can notice what happens in those kernels
    listed = subprocess.run(["git", "ls-files", "*.c"], cwd=tree.here, capture_output=True, text=True, check=True).stdout.split()
    return [(path, read(tree, path).count("\n")) for path in listed
            if path.startswith(FOLDERS) and not path.startswith(LEFT_OUT) and path.startswith(only)
            and path in tree.objects and (tiles or "amx" not in path)]


def queue_of(tree, options):
    """The mutants that are asked for one by one; None: they are drawn."""
    wanted = None
    if options.at:
        wanted = {(options.at, "", 0)}
    if options.again:
        with open(options.again, encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
        wanted = {(r["where"], r["change"], r.get("column", 0)) for r in rows if r["verdict"] == "survived"}
    if wanted is None:
        return None
    queue = []
    for path in sorted({where.split(":")[0] for where, *_ in wanted}):
        text = read(tree, path)
        for mutant in mutants(text):
            said = describe(path, text, mutant)
            change, column = said["change"], said["column"]
            if wanted & {(said["where"], *which) for which in (("", 0), (change, 0), (change, column))}:
                queue.append((path, text, mutant))
    return queue


def options_of():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--n", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--at", default="")
    parser.add_argument("--again", default="")
    parser.add_argument("--quick", default="")
    parser.add_argument("--full", default="")
    parser.add_argument("--hours", type=float, default=0)
    parser.add_argument("--killed", type=float, default=90)
    parser.add_argument("--log", default="")
    parser.add_argument("--jobs", type=int, default=1)
    return parser.parse_args()


def known_verdicts(path):
    """Rows of a log by mutant; empty: there is none yet."""
    if not path or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as f:
        rows = [json.loads(line) for line in f if line.endswith("\n")]
    return {(r["where"], r.get("column", 0), r["change"]): r for r in rows}


def verdict_of(tree, coverage, path, text, mutant, tests):
    """A row of the log; verdict "same": it compiles to the same code, or not at all."""
    since = time.time()
    verdict, by, n = try_one(tree, coverage, path, text, mutant, tests)
    return dict(verdict=verdict or "same", **describe(path, text, mutant), by=by, tests=n,
                seconds=round(time.time() - since))


def soak(tree, coverage, tests, options):
    """(noticed, survivors as lines)"""
    rng, taken, known = random.Random(options.seed), set(), known_verdicts(options.log)
    queue = queue_of(tree, options)
    files = [] if queue is not None else candidates(tree, options.only)
    killed, survivors, began = 0, [], time.time()
    while queue != []:
        done = killed + len(survivors)
        if queue is None and not options.hours and done == options.n:
            break
        if options.hours and time.time() - began > 3600 * options.hours:
            break
        path, text, mutant = queue.pop(0) if queue is not None else draw(tree, files, rng, taken)
        said = describe(path, text, mutant)
        row = known.get((said["where"], said["column"], said["change"]))
        if not row:
            row = verdict_of(tree, coverage, path, text, mutant, tests)
            if options.log:
                with open(options.log, "a", encoding="utf-8") as f:
                    f.write(json.dumps(row) + "\n")
        if row["verdict"] == "same":
            continue
        killed += row["verdict"] == "killed"
        line, by, n = f"{row['where']} {row['function']}: {row['change']}", row["by"], row["tests"]
        if row["verdict"] == "survived":
            survivors.append(line + f" ({n} tests execute it)")
        say(f"{done + 1}: {row['verdict']} {line}{' by ' + by if by else ''} ({n} tests, {row['seconds']} s)")
    return killed, survivors


def main():
    options = options_of()
    if options.help:
        print(__doc__)
        return 0
    if options.self_test:
        return self_test()
    be_subreaper()
    tree = Tree(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    tree.prepare()
    coverage = Coverage(tree)
    tests = {t["name"]: t for t in tests_of(tree, "quick") if re.search(options.quick, t["name"])}
    if options.full:
        tests.update({t["name"]: t for t in tests_of(tree, "full") if re.search(options.full, t["name"])})
    coverage.measure(list(tests.values()), options.jobs)
    killed, survivors = soak(tree, coverage, tests, options)
    total = killed + len(survivors)
    for line in survivors:
        print(f"survived: {line}")
    share = 100 * killed / total if total else 0
    say(f"{killed} of {total} noticed ({share:.1f} %), seed {options.seed}")
    return 0 if total and share >= options.killed else 1


if __name__ == "__main__":
    sys.exit(main())
