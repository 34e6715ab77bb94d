#!/usr/bin/env python3
"""Breaks leases by speed in one way after the other, and asks sim_speeds (speeds.c) whether it notices.

Each mutant names the invariant that must be violated, and the role of all liars where few worlds have what it takes
("before": with shares that do not return).
"""
import argparse
import os
import subprocess
import sys
import tempfile

BATCH = "atom/pool/batch.c"
SHARE = "atom/pool/share.c"
# invariant, what is broken, file, pattern, replacement, role
MUTANTS = [
    ("L1", "what was brought stays open", BATCH, "        b->open[i] &= ~v->done[i];", "        ;", None),
    ("L1", "leases overlap", BATCH, "        from += count[i];", "        from += count[i] / 2;", None),
    ("L2", "what rounding leaves is nobody's", BATCH, "        count[most]++;", "        ;", None),
    ("L3", "only who brought is ever asked", BATCH,
     "    for (uint32_t i = 0; i < b->n_shares; i++)\n        b->share[i].brought = 0;", "    ;", "withholds"),
    ("L4", "who is late keeps its share", SHARE,
     "s->share -= again ? s->share / 2 : s->share / CUT;", "(void)again;", "under"),
    ("L4", "who stopped is asked again and again", SHARE, "s->share += s->share / GROWTH;", "s->share *= 2;", None),
    # A share that returns makes up for it.
    ("L3", "a version that anybody ends teaches", BATCH, "came > 0 && 2 * came >= leased", "came > 0", "hurries before"),
    ("L5", "a clipped step of whoever came", BATCH,
     "        enough &= gsp_included_enough(GSP_STRANGERS, roster->n, c->part[k].included);", "        ;", "hurries"),
    ("L5", "who is slow has no voice", BATCH, "least = b->robust && open >= t->n,", "least = 0,", None),
]

def run(args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        sys.exit("mutants_speeds: " + " ".join(args) + "\n" + done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", required=True)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("libraries", nargs="+", help="what the mutants are linked with, besides the broken file")
    options = parser.parse_args()
    os.chdir(options.root)
    compile_ = [options.cc, "-std=gnu11", "-O2", "-I.", "-c"]
    missed = 0
    with tempfile.TemporaryDirectory() as work:
        whole = os.path.join(work, "speeds.o")
        run(compile_ + ["tests/sim/speeds.c", "-o", whole])
        for invariant, what, path, old, new, role in MUTANTS:
            with open(path, encoding="utf-8") as f:
                text = f.read()
            if text.count(old) != 1:
                sys.exit(f"mutants_speeds: {what}: its pattern occurs {text.count(old)} times in {path}, not once")
            source, binary = os.path.join(work, "mutant.c"), os.path.join(work, "mutant")
            with open(source, "w", encoding="utf-8") as f:
                f.write(text.replace(old, new))
            run(compile_ + [source, "-o", source + ".o"])
            run([options.cc, whole, source + ".o", *options.libraries, "-o", binary, "-lsodium", "-lpthread", "-lm"])
            line = [binary, "--seeds", "1500", "--expect", invariant] + (["--role", role.split()[0]] if role else [])
            line += ["--before", "1"] if role and role.endswith(" before") else []
            line += ["--clipped", "1"] if invariant == "L5" else []
            done = subprocess.run(line, capture_output=True, text=True)
            missed += done.returncode != 0
            print(("caught " if done.returncode == 0 else "MISSED ") + f"{invariant} {what}: "
                  + (done.stdout.strip().splitlines() or ["nothing"])[-1], flush=True)
    print(f"mutants_speeds: {len(MUTANTS) - missed} of {len(MUTANTS)} caught")
    return missed != 0


if __name__ == "__main__":
    sys.exit(main())
