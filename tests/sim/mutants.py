#!/usr/bin/env python3
"""Breaks the agreement in one place at a time and demands that the simulator notices.

Each mutant is one replacement in one source file; its pattern must occur there exactly once, so
that a mutant that no longer mutates fails the test. It is compiled with the rest into a folder of
its own, and the simulator must find a violation of the named invariant within a bounded number of
seeds (--expect). At least one mutant for each of I1 to I8 of docs/design/pool.md#agreement; I9: nobody
honest is banned; I10: an owner that lies is on the roster for at most ten of its lies; I11: nobody
honest says what it did not sign; I12: nothing is certified that nobody proposed; I13: a joiner that
keeps up is let in, where versions are much shorter than heartbeats.

The simulator judges the machine from outside, so those mutants run without the machine's own
assertions (agree_invariants.c), which would stop some of them first. The mutants marked "assert"
run with them, and must be stopped by them.
"""
import argparse
import glob
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

VOTE, AGREE, ROUND = "gossip/agree/agree_vote.c", "gossip/agree/agree.c", "gossip/agree/round.c"
RULES, PEOPLE, LINEAGE = "gossip/agree/agree_rules.c", "gossip/agree/agree_people.c", "gossip/agree/lineage.c"
PROPOSE, AUDIT, AUDITS = "gossip/agree/agree_propose.c", "gossip/agree/claim.c", "gossip/agree/agree_audit.c"
PROOF, VIEW = "gossip/agree/agree_proof.c", "gossip/agree/agree_view.c"
INVARIANTS = "gossip/agree/agree_invariants.c"
BLIND = """#include "gossip/agree/agree_inner.h"
gsp_before gsp_invariants_enter(const gsp_agree *a) { (void)a; return (gsp_before){0}; }
void gsp_invariants_leave(const gsp_agree *a, const gsp_before *before) { (void)a, (void)before; }
"""

# invariant, what is broken, file, pattern, replacement, first seed, seeds
MUTANTS = [
    ("I1", "exactly half is a quorum, whoever it is", LINEAGE,
     "return 2 * count > n || (2 * count == n && (voters & 1));", "return 2 * count >= n;", 1, 3000),
    ("I8", "a vote below the promise", VOTE,
     "if (!a->has_pending || m->ballot < a->record.promised || m->ballot < a->record.voted ||",
     "if (!a->has_pending ||", 2030, 3000),
    ("I2", "applied before its bytes are here", VOTE,
     "        if (a->missing[k])\n            return;", "        ;", 1, 3000),
    ("I3", "contributions are not held against promises", PROOF,
     "        if (k == n || !gsp_hash_equal(&hash, &promise[k].root))", "        if (0)", 1250, 3000),
    ("I4", "a sum forgets the first contributor", ROUND,
     "    for (uint32_t i = 0; i < n; i++)\n        if (included >> i & 1)",
     "    for (uint32_t i = 1; i < n; i++)\n        if (included >> i & 1)", 1, 3000),
    ("I4", "who leans backwards keeps half of its weight", RULES,
     "            contributor[i].weight = 0;", "            contributor[i].weight /= 2;", 1, 3000),
    ("I4", "totals count what was left out", RULES,
     "if (anywhere >> i & 1) {", "{", 1, 3000),
    ("I5", "a fork falls back to its parent", PEOPLE,
     ".generation = a->genesis.generation + 1", ".generation = 0", 2400, 3000),
    ("I5", "no second ballot", VIEW,
     "gsp_view_set(a, a->view + 1);", "gsp_view_set(a, a->view);", 2090, 3000),
    ("I6", "no budget of answers", PEOPLE,
     "if (!p || p->answered >= GSP_ANSWERS_PER_S)", "if (!p)", 1, 3000),
    ("I7", "old heartbeats are news", PEOPLE,
     "h->sequence <= p->sequence)", "false)", 1, 3000),
    ("I8", "a record is forgotten at the start", AGREE,
     "        a->record = saved->record;", "        ;", 1, 3000),
    ("I8", "a vote is said before it is on disk", VOTE,
     "    a->record.proposal = m->as.propose.proposal;\n    gsp_agree_persist(a);",
     "    a->record.proposal = m->as.propose.proposal;", 1, 3000),
    ("I9", "an owner's second word convicts", LINEAGE,
     "(a->kind == GSP_SAYS_PROPOSE ||", "(a->kind == GSP_SAYS_REDUCED || a->kind == GSP_SAYS_PROPOSE ||",
     3000, 3000),
    ("I9", "a later vote convicts", LINEAGE,
     "b->ballot < a->ballot &&", "true &&", 1, 3000),
    ("I9", "an accusation needs no signature", AUDIT,
     "return gsp_statement_verify(seals, &said) ? NULL : ", "return NULL; return ", 1, 3000),
    ("I9", "a proposer may change an owner's word", RULES,
     "return gsp_statement_verify(&a->seals, &said);", "return true;", 2100, 3000),
    ("I10", "who checks does not compare", AUDIT,
     "return same ? GSP_VERDICT_RIGHT : GSP_VERDICT_LIE;", "return GSP_VERDICT_RIGHT;", 60290, 3000),
    ("I10", "nobody looks by its own choice", AUDITS,
     "        u->todo[p / 64] |= 1ull << (p % 64);", "        ;", 3520, 3000),
    ("I7", "anybody may order a reset", LINEAGE,
     "    if (g->reset && !seals->verify(seals->context, owner, bytes, n, g->order.seal))",
     "    if (0 && n)", 1, 3000),
    ("I12", "a vote needs no proof", PROOF,
     "    if (proof->n == 0 || proof->n > GSP_GROUNDS_MAX)\n        return \"a vote without a proof\";",
     "    return gsp_proposal_wrong(a, proposal, UINT32_MAX, true);", 1, 3000),
    ("I11", "a second attempt names other contributors", VOTE,
     "    if (same && (begin->n_parts != a->round.begin.n_parts ||", "    if (0 && (begin->n_parts != a->round.begin.n_parts ||",
     9960, 3000),
    ("I11", "a new owner repeats the old one's word", ROUND,
     "                memset(&r->known[p], 0, sizeof r->known[p]);", "                ;", 900, 3000),
    ("I10", "who is proven to lie stays", AUDITS,
     "    gsp_people_ban(a, &kept->owner.key);", "    ;", 3000, 3000),
    ("I13", "who has applied says so with the next heartbeat", AGREE,
     "    gsp_people_applied(a);", "    ;", 1, 3000),
    ("I13", "only heartbeats tell who has a result", VOTE,
     "            return a->audits.version == c->proposal.version;", "            return false;", 1, 3000),
    ("I13", "who gave a state is not asked again for long", PEOPLE,
     "        from->asked_ns = 0;", "        ;", 1, 3000),
    ("assert", "a vote below the promise", VOTE,
     "if (!a->has_pending || m->ballot < a->record.promised || m->ballot < a->record.voted ||",
     "if (!a->has_pending ||", 1, 3000),
    ("assert", "promises of the ballot before count", PROPOSE,
     "    a->promised = a->refused = 0;", "    a->refused = 0;", 1, 3000),
    ("assert", "a new lineage binds the old incarnation", PEOPLE,
     "        a->self.incarnation++;\n        a->stats.moves++;", "        a->stats.moves++;", 1, 3000),
    ("assert", "a contribution is frozen in every ballot", VOTE,
     "    a->promise_owed = ballot;\n",
     "    a->promise_owed = ballot;\n    a->frozen = GSP_UNFROZEN;\n", 1, 3000),
]
FLAGS = ["-std=gnu11", "-O2", "-I."]


def run(cc, args):
    done = subprocess.run(cc + args, capture_output=True, text=True)
    if done.returncode:
        sys.exit("mutants: " + " ".join(cc + args) + "\n" + done.stderr)


def objects(cc, root, work):
    """Everything compiled once, unbroken: source -> object."""
    sources = sorted(glob.glob("tests/sim/*.c", root_dir=root))
    sources += sorted(glob.glob("gossip/agree/agree*.c", root_dir=root))
    sources += ["gossip/agree/round.c", "gossip/agree/lineage.c", "gossip/agree/claim.c", "atom/base/assert.c", "atom/base/status.c"]
    made = {s: os.path.join(work, s.replace("/", "_")[:-2] + ".o") for s in sources}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda s: run(cc, FLAGS + ["-c", s, "-o", made[s]]), sources))
    blind = os.path.join(work, "blind.c")
    with open(blind, "w", encoding="utf-8") as f:
        f.write(BLIND)
    run(cc, FLAGS + ["-c", blind, "-o", blind + ".o"])
    return made


def try_mutant(cc, root, work, made, number):
    invariant, what, path, old, new, first, seeds = MUTANTS[number]
    name = f"{invariant} {what}"
    with open(os.path.join(root, path), encoding="utf-8") as f:
        text = f.read()
    if text.count(old) != 1:
        return False, f"{name}: its pattern occurs {text.count(old)} times in {path}, not once"
    source = os.path.join(work, f"mutant{number}.c")
    with open(source, "w", encoding="utf-8") as f:
        f.write(text.replace(old, new))
    binary = os.path.join(work, f"sim{number}")
    own = invariant == "assert"
    kept = [o for s, o in made.items() if s != path and (own or s != INVARIANTS)]
    kept += [] if own else [os.path.join(work, "blind.c.o")]
    run(cc, FLAGS + [source, *kept, "-o", binary, "-lm"])
    began = time.monotonic()
    world = ["--brisk"] if invariant == "I13" else []
    expect = [] if own else ["--expect", invariant]
    done = subprocess.run([binary, *expect, "--brief", "--first", str(first), "--seeds", str(seeds), *world],
                          capture_output=True, text=True)
    if own:
        lines = done.stderr.strip().splitlines()
        stopped = any(INVARIANTS in l and "assertion failed" in l for l in lines)
        return stopped, f"{name} ({time.monotonic() - began:.1f} s): {lines[-1] if lines else 'nothing'}"
    lines = done.stdout.strip().splitlines()
    last = lines[-1] if lines else f"ended with {done.returncode}"
    return done.returncode == 0, f"{name} ({time.monotonic() - began:.1f} s): {last}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", required=True)
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--only", help="mutants whose name contains this")
    options = parser.parse_args()
    os.chdir(options.root)
    missed = 0
    wanted = [n for n, m in enumerate(MUTANTS) if not options.only or options.only in m[0] + " " + m[1]]
    with tempfile.TemporaryDirectory() as work:
        made = objects([options.cc], options.root, work)
        with ThreadPoolExecutor(2) as pool:
            tries = [pool.submit(try_mutant, [options.cc], options.root, work, made, n) for n in wanted]
            for t in tries:
                caught, line = t.result()
                missed += not caught
                print(("caught " if caught else "MISSED ") + line, flush=True)
    print(f"mutants: {len(wanted) - missed} of {len(wanted)} caught")
    return missed != 0


if __name__ == "__main__":
    sys.exit(main())
