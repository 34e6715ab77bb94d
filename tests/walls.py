#!/usr/bin/python3
"""Checks the house: who includes whom, and the few style limits a machine can see.

  walls.py [ROOT]              walls and limits of the tree at ROOT; without it of the one it lies in
  walls.py ROOT --headers CC   every header compiles alone, without warnings (those that no .c file begins with)
  walls.py --self-test         each rule must be able to fail
"""
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

GROUND = ["atom/base", "atom/graph", "atom/file", "atom/text"]
# Folder -> what its files may include of ours (ARCHITECTURE.md). A folder may always include itself.
WALLS = {
    "atom/base": [],
    "atom/graph": ["atom/base"],
    "atom/file": ["atom/base", "atom/graph"],
    "atom/text": ["atom/base"],
    "kernels": ["atom/base"],
    "gossip": ["atom/base"],
    # Within gossip, from the pure to the whole: the agreement and its rounds know no clock, no socket, no disk.
    "gossip/agree": ["atom/base/assert.h", "atom/base/bytes.h", "atom/base/status.h"],
    "gossip/swarm": ["atom/base/assert.h", "atom/base/bytes.h", "atom/base/status.h"],
    "gossip/sum": ["atom/base", "gossip/agree"],
    "gossip/trust": ["atom/base", "gossip/agree"],
    "gossip/gate": ["atom/base", "gossip/trust"],
    "gossip/net": ["atom/base", "gossip/gate"],
    "gossip/directory": ["atom/base", "gossip/gate", "gossip/trust"],
    "gossip/member": ["atom/base", "gossip/agree", "gossip/sum", "gossip/trust", "gossip/net", "gossip/gate",
                      "gossip/swarm"],
    "gossip/pool": ["atom/base", "gossip"],
    "partition": ["atom/base", "atom/graph"],
    # Placement knows numbers only: no graph, no plan, no clock.
    "partition/place": ["atom/base/mem.h", "atom/base/rng.h", "atom/base/status.h"],
    "swap": ["atom/base", "kernels"],
    "codegen": ["atom/base", "atom/graph", "kernels/kernels.h", "kernels/device.h", "partition/plan.h",
                "partition/profile.h", "swap/tape.h", "swap/calls.h", "swap/exec.h", "swap/stall.h"],
    "atom/options": ["atom/base"],
    "atom/plan": GROUND + ["atom/options", "kernels", "partition", "swap", "codegen"],
    "atom/export": GROUND + ["atom/plan"],
    "atom/train": GROUND + ["atom/options", "atom/plan", "kernels", "partition", "swap", "codegen"],
    "atom/generate": GROUND + ["atom/plan", "atom/export", "atom/train", "kernels/decode.h", "kernels/device.h"],
    "atom/pool": GROUND + ["atom/export", "atom/options", "atom/train", "gossip", "kernels/kernels.h", "swap/exec.h",
                          "partition/place/place.h"],
    # Turns of whole processes: of a member it knows its limits, its directory, its socket and its ticket.
    "atom/host": ["atom/base", "atom/options", "atom/pool/limits.h", "gossip/pool/control.h",
                  "gossip/pool/pool.h", "gossip/trust/ticket.h"],
    "tools": ["atom/atom.h", "atom/plan/rows.h"],
}
# The program sees the one public header; only what measures the parts sees the parts.
TOOLS_MAY = {"tools/bench/cmd_bench": ["kernels", "swap", "gossip"], "tools/bench/bench.h": ["kernels"], "tools/cmd_doctor": ["kernels", "codegen/build.h", "swap/store.h", "atom/text/parquet.h"],
             "tools/pool/cmd_pool_selftest": ["gossip/net"]}

# What must not know the clock, sockets or the disk, by what it may include of the system.
C_ALONE = ("inttypes.h", "limits.h", "math.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "string.h")
PURE = {"gossip/agree": C_ALONE, "gossip/swarm": C_ALONE, "partition/place": C_ALONE}
THEIRS = re.compile(r'^\s*#\s*include\s+<([^>]+)>', re.M)

LINES_MAX = 600
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 140  # clang-format decides at 100; this catches what it cannot break
MARKS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
SOURCES = (".c", ".h", ".def", ".cu", ".cuh")
OURS = ("atom", "swap", "partition", "codegen", "gossip", "kernels", "tools", "tests")

# Functions that may be longer than FUNCTION_LINES_MAX: name -> why.
LONG_FUNCTIONS = {
    "kernels/cuda/attention.cu:attend_fwd": "one kernel whose tiles live in registers across all its phases",
    "kernels/cuda/attention_bwd.cu:bwd_role": "one kernel whose tiles live in registers across all its phases",
}
# Files that may call each other in a circle: why, and which.
CIRCLES = [
    ("one member is proposer, voter and witness at once, and its own promise is a message to itself", ["gossip/agree/agree"]),
]


def sources(root):
    for top in OURS:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                path = os.path.relpath(os.path.join(folder, name), root)
                script = top == "tools" and "." not in name
                if script or name.endswith(SOURCES + (".py", ".sh")):
                    yield path


def folder_of(path):
    """The key of WALLS that owns a path, or None (tests, generated headers)."""
    best = None
    for folder in WALLS:
        if path.startswith(folder + "/") and (best is None or len(folder) > len(best)):
            best = folder
    return best


def allowed(path, include):
    owner = folder_of(path)
    may = [owner] + WALLS[owner]
    for prefix, more in TOOLS_MAY.items():
        if path.startswith(prefix):
            may += more
    return any(include == m or include.startswith(m + "/") for m in may)


def check_includes(path, text, complain):
    if folder_of(path) is None:
        return
    for match in INCLUDE.finditer(text):
        include = match.group(1)
        line = text.count("\n", 0, match.start()) + 1
        where = f"{path}:{line}"
        if include.startswith("tests/"):
            complain(f"{where}: nothing includes tests")
        elif not include.startswith(OURS):
            complain(f'{where}: "{include}": write our headers from the root, theirs with <>')
        elif not allowed(path, include):
            complain(f"{where}: {folder_of(path)} may not include {include}")
    for match in THEIRS.finditer(text) if folder_of(path) in PURE else ():
        if match.group(1) not in PURE[folder_of(path)]:
            complain(f"{path}: {folder_of(path)} is pure and may not include <{match.group(1)}>")


def check_style(path, text, complain):
    lines = text.split("\n")
    if len(lines) > LINES_MAX:
        complain(f"{path}: {len(lines)} lines; split it ({LINES_MAX} at most)")
    for i, line in enumerate(lines, 1):
        if len(line) > COLUMNS_MAX and path.endswith(SOURCES):
            complain(f"{path}:{i}: {len(line)} columns ({COLUMNS_MAX} at most)")
        if MARKS.search(line) and path != "tests/walls.py":
            complain(f"{path}:{i}: a stray mark; do it or open an issue: {line.strip()}")
        if line.rstrip() != line:
            complain(f"{path}:{i}: blanks at the end of the line")
        if "\t" in line and path.endswith(SOURCES):
            complain(f"{path}:{i}: a tab; indent with blanks")
    if path.endswith(SOURCES) and not text.startswith("/*"):
        complain(f"{path}:1: open with a comment: what it owns, its idea, what it refuses")
    if text and not text.endswith("\n"):
        complain(f"{path}: no newline at the end")


FUNCTION = re.compile(r"^(?!\s|#|typedef|struct|union|enum|static const|const )[^\n;=]*\([^;{}]*\)[^;{}\n]*\n\{\n(.*?)^\}", re.M | re.S)
NAME = re.compile(r"([A-Za-z_]\w*)\(")


def check_functions(path, text, complain):
    """No function is longer than a person can hold in mind; exceptions have a name and a reason."""
    if not path.endswith((".c", ".h", ".cu", ".cuh")) or path.startswith("tests/"):
        return
    for match in FUNCTION.finditer(text):
        lines = match.group(1).count("\n")
        names = NAME.findall(match.group(0).split("{")[0])
        name = next((n for n in names if not n.startswith(("__", "ATOM_"))), "?")
        if lines > FUNCTION_LINES_MAX and f"{path}:{name}" not in LONG_FUNCTIONS:
            line = text.count("\n", 0, match.start()) + 1
            complain(f"{path}:{line}: {name} has {lines} lines; split it ({FUNCTION_LINES_MAX} at most)")


COMMENT = re.compile(r"^([ \t]*)/\*(.*?)\*/", re.M | re.S)


def check_comments(path, text, complain):
    """What a formatter does to comments: the end alone on a line, a list that lost its indent."""
    if not path.endswith((".c", ".h", ".cu", ".cuh")):
        return
    for match in COMMENT.finditer(text):
        body = match.group(2).split("\n")
        line = text.count("\n", 0, match.start()) + 1
        if len(body) > 1 and re.match(r" -{3}", body[0]):
            complain(f"{path}:{line}: a banner is broken over lines")
        if len(body) > 1 and body[0].strip() and not body[-1].strip():
            complain(f"{path}:{line}: the comment's end stands alone on its line")
        for i in range(1, len(body) - 1):
            above, here = body[i - 1], body[i]
            if re.match(r" *\* {2,}\S", above) and len(above) > 90 and re.match(r" *\* [a-z(]\S*( \S+)?$", here):
                complain(f"{path}:{line + i}: a list's line lost its indent: {here.strip()}")


CITATION = re.compile(r"docs/design/(\w+\.md)((?:,? ?#[a-z0-9-]+)*)")


def anchors_of(root, name, known={}):
    path = os.path.join(root, "docs", "design", name)
    if path not in known:
        try:
            with open(path, encoding="utf-8") as f:
                heads = re.findall(r"^#+ (.+)$", f.read(), re.M)
        except OSError:
            heads = None
        known[path] = heads and {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in heads}
    return known[path]


def check_citations(root, path, text, complain):
    """Every docs/design/FILE.md#section that is cited is there."""
    joined = re.sub(r",\n[ *#]+(?=#[a-z])", ", ", text)
    for match in CITATION.finditer(joined) if path != "tests/walls.py" else ():
        anchors = anchors_of(root, match.group(1))
        if anchors is None:
            complain(f"{path}: cites docs/design/{match.group(1)}, which is not there")
            continue
        for anchor in re.findall(r"#([a-z0-9-]+)", match.group(2)):
            if anchor not in anchors:
                complain(f"{path}: docs/design/{match.group(1)} has no section #{anchor}")


DEFINITION = re.compile(r"^(?!static|typedef|#|\s|\}|/|\*)(?:[A-Za-z_][^;={}()]*?[\s*])([a-z_]\w*)\([^;{]*?\)\n\{", re.M)


def plain(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)


def reach(path, texts, known):
    """All our headers that a file includes, directly or through others."""
    if path not in known:
        known[path] = set()
        for include in INCLUDE.findall(texts.get(path, "")):
            known[path] |= {include} | reach(include, texts, known)
    return known[path]


def calls_between(texts):
    """file.c -> {file.c that defines something it uses: what}; texts by path."""
    code = {p: plain(t) for p, t in texts.items() if not p.startswith("tests/")}
    owner = {}
    for path, text in code.items():
        for name in DEFINITION.findall(text) if path.endswith((".c", ".cu")) else ():
            owner.setdefault(name, set()).add(path)
    declared = {}
    for path, text in code.items():
        for name in re.findall(r"\b([a-z_]\w*)\(", text) if path.endswith(".h") else ():
            declared.setdefault(name, set()).add(path)
    known, calls = {}, {}
    for path, text in code.items():
        if not path.endswith((".c", ".cu")):
            continue
        seen = reach(path, texts, known)
        for name in set(re.findall(r"(?<![.>])\b([a-z_]\w*)\b", text)):
            of = owner.get(name, set())
            if len(of) == 1 and path not in of and declared.get(name, set()) & seen:
                calls.setdefault(path, {}).setdefault(next(iter(of)), name)
    return calls


def circles(calls):
    """Strongly connected components of more than one file (Tarjan)."""
    index, low, stack, on, found = {}, {}, [], set(), []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in calls.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = []
            while not part or part[-1] != v:
                part.append(stack.pop())
                on.discard(part[-1])
            if len(part) > 1:
                found.append(sorted(part))

    sys.setrecursionlimit(20000)
    for v in list(calls):
        if v not in index:
            visit(v)
    return found


def check_circles(texts, complain):
    """No two files need each other, but those of CIRCLES."""
    calls = calls_between(texts)
    for part in circles(calls):
        if any(all(p.startswith(tuple(files)) for p in part) for _, files in CIRCLES):
            continue
        ways = [f"{os.path.basename(a)} -> {os.path.basename(b)} ({name})"
                for a in part for b, name in calls[a].items() if b in part]
        complain(f"{len(part)} files call each other in a circle: {' '.join(part)}\n    " + "\n    ".join(ways))


def check_guard(path, text, complain):
    if not path.endswith((".h", ".cuh")) or path.startswith("tests/"):
        return
    guard = re.sub(r"[^A-Z0-9]", "_", path.upper())
    if f"#ifndef {guard}\n#define {guard}\n" not in text:
        complain(f"{path}: the include guard should be {guard}")


def check_tree(root):
    wrong = []
    seen = 0
    texts = {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8", errors="strict") as f:
            text = f.read()
        seen += 1
        check_includes(path, text, wrong.append)
        check_style(path, text, wrong.append)
        check_guard(path, text, wrong.append)
        check_functions(path, text, wrong.append)
        check_comments(path, text, wrong.append)
        check_citations(root, path, text, wrong.append)
        texts[path] = text
    check_circles(texts, wrong.append)
    return seen, wrong


def read_first(path, text):
    """The header that the build compiles alone already: our first line of the preprocessor in a .c file that is always built."""
    line = re.search(r"^[ \t]*#.*$", text, re.M)
    found = INCLUDE.match(line.group()) if line else None
    always = path.endswith(".c") and not path.startswith(("tests/", "kernels/cuda/"))
    return found.group(1) if found and always else None


def check_headers(root, compiler):
    """Each header alone, with the warnings of the build as errors; those that a .c file begins with were compiled so by the build."""
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-I" + root, "-Wall", "-Wextra", "-Wshadow", "-Wconversion",
             "-Wvla", "-Werror", "-fsyntax-only", "-x", "c", "-"]

    def compile_one(path):
        source = f'#include "{path}"\n#include "{path}"\nint only_a_header_test;\n'
        run = subprocess.run([compiler] + flags, input=source, capture_output=True, text=True, check=False)
        return path, run.returncode, run.stderr

    built = set()
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            built.add(read_first(path, f.read()))
    headers = [p for p in sources(root) if p.endswith(".h") and p.split("/")[0] != "tests"]
    alone = [p for p in headers if p not in built]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(compile_one, alone))
    return len(alone), [f"{path} does not compile alone:\n{err}" for path, code, err in results if code]


BAD = {
    "atom/base/up.c": '/* x */\n#include "atom/graph/graph.h"\n',
    "swap/plan.c": '/* x */\n#include "partition/plan.h"\n',
    "gossip/model.c": '/* x */\n#include "atom/graph/graph.h"\n',
    "gossip/agree/late.c": '/* x */\n#include <time.h>\n',
    "gossip/swarm/late.c": '/* x */\n#include <time.h>\n',
    "gossip/swarm/heap.c": '/* x */\n#include "atom/base/mem.h"\n',
    "gossip/agree/wired.c": '/* x */\n#include "gossip/net/net.h"\n',
    "gossip/agree/awake.c": '/* x */\n#include "atom/base/clock.h"\n',
    "gossip/net/voter.c": '/* x */\n#include "gossip/agree/agree.h"\n',
    "partition/place/graph.c": '/* x */\n#include "atom/graph/graph.h"\n',
    "kernels/relative.c": '/* x */\n#include "device.h"\n',
    "codegen/deep.c": '/* x */\n#include "partition/search.h"\n',
    "atom/text/file.c": '/* x */\n#include "atom/file/safetensors.h"\n',
    "atom/graph/silent.c": "int x;\n",
    "atom/graph/marked.c": "/* x */\n/* TODO later */\n",
    "atom/graph/long.c": "/* x */\n" + "\n" * LINES_MAX,
    "atom/graph/tab.c": "/* x */\n\tint x;\n",
    "atom/graph/blank.c": "/* x */ \n",
    "atom/graph/wide.c": "/* " + "x" * COLUMNS_MAX + " */\n",
    "atom/graph/open.c": "/* x */",
    "atom/graph/guard.h": "/* x */\n#ifndef GUARD_H\n#define GUARD_H\n#endif\n",
    "tools/cmd_train.c": '/* x */\n#include "swap/tape.h"\n',
    "atom/plan/steps.c": '/* x */\n#include "atom/train/trainer.h"\n',
    "atom/train/pooled.c": '/* x */\n#include "gossip/member/member.h"\n',
    "atom/train/talks.c": '/* x */\n#include "atom/generate/generate.h"\n',
    "swap/tests.c": '/* x */\n#include "tests/t.h"\n',
    "swap/endless.c": "/* x */\nint f(void)\n{\n" + "    g();\n" * 80 + "}\n",
    "swap/torn.h": "/* x */\n#ifndef SWAP_TORN_H\n#define SWAP_TORN_H\n/* a comment that was wrapped at its\n */\nint x;\n#endif\n",
    "swap/list.c": "/*\n * x\n *   - " + "x" * 90 + "\n * its end\n *   - y\n */\n",
    "swap/banner.c": "/* x */\n/* --- reading\n * ------------- */\n",
    "swap/cites.c": "/* docs/design/nowhere.md#at-all */\n",
}
GOOD = {
    "atom/train/all.c": '/* x */\n#include "swap/tape.h"\n#include "partition/plan.h"\n#include <stdio.h>\n',
    "codegen/lower.c": '/* x */\n#include "partition/plan.h"\n#include "swap/calls.h"\n',
    "partition/part.h": '/* x */\n#ifndef PARTITION_PART_H\n#define PARTITION_PART_H\n'
                        '#include "atom/graph/graph.h"\n#endif\n',
    "tools/bench/cmd_bench.c": '/* x */\n#include "swap/tape.h"\n#include "tools/cli.h"\n',
    "tests/any.c": '/* x */\n#include "swap/tape.h"\n',
}


# Trees of more than one file.
BAD_TREES = [
    {"swap/a.h": "/* x */\n#ifndef SWAP_A_H\n#define SWAP_A_H\nint swap_a(void);\nint swap_b(void);\n#endif\n",
     "swap/a.c": '/* x */\n#include "swap/a.h"\nint swap_a(void)\n{\n    return swap_b();\n}\n',
     "swap/b.c": '/* x */\n#include "swap/a.h"\nint swap_b(void)\n{\n    return swap_a();\n}\n'},
    {"docs/design/engine.md": "# Engine\n\n## The tape\n", "swap/a.c": "/* docs/design/engine.md#the-tapes */\n"},
]
GOOD["docs/design/engine.md"] = "# Engine\n\n## The tape\n"
GOOD["swap/cited.c"] = "/* docs/design/engine.md#the-tape,\n * #engine. */\n"


def self_test():
    for files, expect in [(GOOD, False)] + [({p: t}, True) for p, t in BAD.items()] + [(t, True) for t in BAD_TREES]:
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(text)
            wrong = check_tree(root)[1]
            if bool(wrong) != expect:
                print(f"walls: self test: {list(files)}: {'no complaint' if expect else wrong}")
                return 1
    for path, text, expect in (("atom/a.c", '/* A. */\n#include "atom/a.h"\n', "atom/a.h"), ("tests/a.c", '#include "atom/a.h"\n', None),
                               ("atom/a.c", '#include <math.h>\n#include "atom/a.h"\n', None),
                               ("atom/a.c", '#define B\n#include "atom/a.h"\n', None)):
        if read_first(path, text) != expect:
            print(f"walls: self test: {path} begins with {read_first(path, text)}, not {expect}: {text}")
            return 1
    print(f"walls: {len(BAD) + len(BAD_TREES)} bad trees refused, a good one accepted")
    return 0


def main(argv):
    if len(argv) == 1:
        argv = argv + [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
    if argv[1:] == ["--self-test"]:
        return self_test()
    if len(argv) == 4 and argv[2] == "--headers":
        seen, wrong = check_headers(argv[1], argv[3])
        what = "headers"
    elif len(argv) == 2:
        seen, wrong = check_tree(argv[1])
        what = "files"
    else:
        print(__doc__)
        return 2
    for line in wrong:
        print(line)
    print(f"walls: {seen} {what}, {len(wrong)} complaints")
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
