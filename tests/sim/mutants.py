#!/usr/bin/env python3
"""Breaks the agreement in one place at a time and demands that the simulator notices.

Each mutant is one replacement in one source file; its pattern must occur there exactly once, so that a mutant that no
longer mutates fails the test. It is compiled into a folder of its own and linked with what the build has of the rest,
and the simulator must find a violation of the named invariant within a bounded number of seeds (--expect). At least one
mutant for each of I1 to I8 of docs/design/pool.md#agreement; I9: nobody honest is banned or goes as withholding; I10:
an owner that lies or withholds is on the roster for at most ten of its lies; I11: nobody honest says what it did not
sign; I12: nothing is certified that nobody proposed; I13: a joiner that keeps up is let in, where versions are much
shorter than heartbeats; I15: nobody is on a roster that was not admitted, or off it without a reason; I16: nobody who
promised in time is left out.

The simulator judges the machine from outside, so those mutants run without the machine's own
assertions (agree_invariants.c), which would stop some of them first. The mutants marked "assert"
run with them, and must be stopped by them.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

VOTE, AGREE, ROUND = "gossip/agree/agree_vote.c", "gossip/agree/agree.c", "gossip/agree/round.c"
RULES, PEOPLE, LINEAGE = "gossip/agree/agree_rules.c", "gossip/agree/agree_people.c", "gossip/agree/signed.c"
PROPOSE, AUDIT, AUDITS = "gossip/agree/agree_propose.c", "gossip/agree/claim.c", "gossip/agree/agree_audit.c"
WITHHELD, BANS = "gossip/agree/agree_withheld.c", "gossip/agree/agree_bans.c"
LINES, CHAIN = "gossip/agree/agree_lineage.c", "gossip/agree/certificate_chain.c"
PROOF, VIEW = "gossip/agree/agree_proof.c", "gossip/agree/agree_view.c"
PROPOSAL, CHANGES = "gossip/agree/proposal.c", "gossip/agree/agree_changes.c"
INVARIANTS = "gossip/agree/agree_invariants.c"
BLIND = """#include "gossip/agree/agree_inner.h"
gsp_before gsp_invariants_enter(const gsp_agree *a) { (void)a; return (gsp_before){0}; }
void gsp_invariants_leave(const gsp_agree *a, const gsp_before *before) { (void)a, (void)before; }
"""

# invariant, what is broken, file, pattern, replacement, first seed, seeds, kind of world. The first seed lies a little before one
# that shows the mutant, which saves minutes; where the worlds change, another of the seeds behind it does.
MUTANTS = [
    ("I4", "where sums are clipped, one weighs all that it brings", PROPOSAL,
     "gsp_rules_sums(rules, before->samples) && !rules->robust;", "gsp_rules_sums(rules, before->samples);", 1, 3000),
    ("I1", "exactly half is a quorum, whoever it is", LINEAGE,
     "return 2 * count > n || (2 * count == n && (voters & 1));", "return 2 * count >= n;", 19, 3000),
    ("I8", "an echo below the promise", VOTE,
     "    if (m->ballot < a->record.promised || m->ballot < a->record.echoed)", "    if (m->ballot < a->record.echoed)", 210, 3000),
    ("I2", "applied before its bytes are here", VOTE,
     "        if (a->missing[k])\n            return;", "        ;", 1, 3000),
    ("I3", "contributions are not held against promises", PROOF,
     "        if (k == n || !gsp_hash_equal(&hash, &promise[k].root))", "        if (0)", 4475, 3000),
    ("I4", "a sum forgets the first contributor", ROUND,
     "    for (uint32_t i = 0; i < n; i++)\n        if (included >> i & 1)",
     "    for (uint32_t i = 1; i < n; i++)\n        if (included >> i & 1)", 1, 3000),
    ("I4", "who leans backwards keeps half of its weight", PROPOSAL,
     "            contributor[i].weight = 0;", "            contributor[i].weight /= 2;", 1, 3000),
    ("I4", "totals count what was left out", PROPOSAL,
     "if (anywhere >> i & 1) {", "{", 1, 3000),
    ("I5", "two forks do not come together", CHAIN,
     "    if (mine->forked)\n        return goes_to_fork(mine, theirs, trust, plight) ? GSP_GO : GSP_STAY;",
     "    if (mine->forked)\n        return GSP_STAY;", 72, 3000),
    ("I5", "no second ballot", VIEW,
     "gsp_view_set(a, a->view + 1);", "gsp_view_set(a, a->view);", 815, 3000),
    ("I6", "certificates are given without end", PEOPLE,
     "    if ((repeated && p->repeated >= GSP_REPEATS_MAX) || !gsp_people_may_answer(a, key)) {", "    if (0) {", 1, 3000),
    ("I7", "old heartbeats are news", PEOPLE,
     "h->sequence <= p->sequence)", "false)", 1, 3000),
    ("I8", "a record is forgotten at the start", AGREE,
     "        a->record = saved->record;", "        ;", 1, 3000),
    ("I8", "a vote is said before it is on disk", VOTE,
     "        gsp_proof_make(a, m->ballot, subject, &a->record.proof);\n        gsp_agree_persist(a);",
     "        gsp_proof_make(a, m->ballot, subject, &a->record.proof);", 764, 3000),
    ("I9", "an owner's second word convicts", LINEAGE,
     "(a->kind == GSP_SAYS_PROPOSE ||", "(a->kind == GSP_SAYS_REDUCED || a->kind == GSP_SAYS_PROPOSE ||",
     3000, 3000),
    ("I9", "a later vote convicts", LINEAGE,
     "b->ballot < a->ballot &&", "true &&", 1, 3000),
    ("I9", "an accusation needs no signature", AUDIT,
     "return gsp_statement_verify(seals, &said) ? NULL : ", "return NULL; return ", 30, 3000),
    ("I9", "a proposer may change an owner's word", PROPOSAL,
     "return gsp_statement_verify(seals, &said);", "return true;", 276, 3000),
    ("I10", "who checks does not compare", AUDIT,
     "return same ? GSP_VERDICT_RIGHT : GSP_VERDICT_LIE;", "return GSP_VERDICT_RIGHT;", 60339, 3000),
    ("I10", "nobody looks by its own choice", AUDITS,
     "        u->todo[p / 64] |= 1ull << (p % 64);", "        ;", 3618, 3000),
    ("I12", "a vote needs no proof", PROOF,
     "    if (proof->n == 0 || proof->n > roster->n)\n        return \"a vote without a proof\";",
     "    return NULL;", 1, 3000),
    ("I11", "a second attempt names other contributors", VOTE,
     "    if (same && (begin->n_parts != a->round.begin.n_parts ||", "    if (0 && (begin->n_parts != a->round.begin.n_parts ||",
     7935, 3000),
    ("I11", "a new owner repeats the old one's word", ROUND,
     "                memset(&r->known[p], 0, sizeof r->known[p]);", "                ;", 2240, 3000),
    ("I10", "who is proven to lie stays", AUDITS,
     "    gsp_people_ban(a, &kept->owner.key);", "    ;", 3141, 3000),
    ("I10", "nobody goes for withholding", WITHHELD,
     "        out |= named > liars ? 1u << i : 0;", "        ;", 1, 3000, "--audits"),
    ("I10", "nobody counts who withholds", WITHHELD,
     "    a->stats.withheld += !row.excused;", "    return;", 1, 3000, "--audits"),
    ("I9", "one promise is enough to go", WITHHELD,
     "        out |= named > liars ? 1u << i : 0;", "        out |= named ? 1u << i : 0;", 2664, 3000, "--audits"),
    ("I9", "a lost memory is never forgiven", WITHHELD,
     "    return *known || n < EXCUSES;", "    return false;", 7155, 3000, "--audits"),
    ("I9", "keys that nobody knows are accused", AUDITS,
     "    if (!gsp_people_concerns(a, &c->owner.key) ||", "    if (", 6, 3000, "--audits"),
    ("I9", "evidence about anybody counts", BANS,
     "    if (!gsp_people_concerns(a, &about) ||", "    if (", 1, 3000, "--audits"),
    ("I14", "a fork needs nobody behind it", CHAIN,
     "    return n_behind(s) > gsp_liars_max(trust, s->before.n);", "    return true;", 287, 3000),
    ("I12", "a chain's votes are not looked at", CHAIN,
     "        if (!gsp_statement_verify(t->seals, &vote))", "        if (0)", 306, 3000),
    ("I13", "who has applied says so with the next heartbeat", AGREE,
     "    gsp_people_applied(a);", "    ;", 208, 3000),
    ("I13", "only heartbeats tell who has a result", VOTE,
     "            return a->audits.version == c->proposal.version;", "            return false;", 1, 3000),
    ("I12", "one echo proves a vote", PROOF,
     "    if (!gsp_quorum(a->rules.trust, roster->n, bits))\n        return \"a vote for what", "    if (0)\n        return \"a vote for what", 1, 3000),
    ("I15", "nobody needs an admission", CHANGES,
     "i == GSP_NOBODY ? &e->shown : NULL, a->now_ns))", "NULL, a->now_ns))", 1, 3000),
    ("I15", "a larger incarnation needs no wish", CHANGES,
     "return gsp_roster_find(gsp_agree_roster(a), who) == GSP_NOBODY;",
     "return gsp_roster_find_key(gsp_agree_roster(a), &who->key) == GSP_NOBODY;", 24, 3000),
    ("I15", "a joiner need not have signed", CHANGES,
     "return gsp_statement_verify(&a->seals, s) ? NULL :", "return s ? NULL :", 38, 3000),
    ("I15", "anybody says goodbye for anybody", CHANGES,
     "gsp_hash_equal(&s->lineage, &a->lineage) && gsp_statement_verify(&a->seals, s);",
     "gsp_hash_equal(&s->lineage, &a->lineage);", 32, 3000),
    ("I16", "a proposer leaves out whom it likes", PROOF,
     "    if (bring != p->n_contributors)\n        return false;", "", 1, 3000),
    ("I16", "a part may be the sum of a few", PROPOSAL,
     "    if (!gsp_included_enough(trust, n, part->included))", "    if (0)", 21, 3000),
    ("I4", "tokens are believed without samples", PROPOSAL,
     "    if (each == 0 || (tokens - 1) / each >= samples)", "    if (each == 0)", 1, 3000),
    ("I4", "samples have no limit", PROPOSAL,
     "samples > GSP_TOKENS_MAX || samples > rules->samples_max)", "samples > GSP_TOKENS_MAX)", 1, 3000),
    ("I4", "one member moves the schedule as it likes", PROPOSAL,
     "lesser(lesser(c->samples, limit), c->weight)", "lesser(c->samples, c->weight)", 1, 3000),
    ("assert", "promises of the ballot before count", PROPOSE,
     "    a->promised = a->refused = 0;", "    a->refused = 0;", 1, 3000),
    ("assert", "a new lineage binds the old incarnation", LINES,
     "        a->self.incarnation++;\n        a->stats.moves++;", "        a->stats.moves++;", 1, 3000),
    ("assert", "a contribution is frozen in every ballot", VOTE,
     "    a->promise_owed = ballot;\n",
     "    a->promise_owed = ballot;\n    a->frozen = GSP_UNFROZEN;\n", 1, 3000),
]
# Where all liars have one role, since few worlds have enough of them that do just that.
ROLES = {"who checks does not compare": "falsifies", "nobody looks by its own choice": "falsifies",
         "who is proven to lie stays": "falsifies",
         "no second ballot": "equivocates", "one echo proves a vote": "claims", "a proposer may change an owner's word": "lies", "a proposer leaves out whom it likes": "omits",
         "a part may be the sum of a few": "partial", "one member moves the schedule as it likes": "inflates",
         "tokens are believed without samples": "inflates", "samples have no limit": "inflates",
         "nobody needs an admission": "invents", "a larger incarnation needs no wish": "invents",
         "a joiner need not have signed": "invents", "anybody says goodbye for anybody": "invents",
         "contributions are not held against promises": "lies", "a second attempt names other contributors": "lies",
         "a vote needs no proof": "claims"}
FLAGS = ["-std=gnu11", "-O2", "-I."]


def run(cc, args):
    done = subprocess.run(cc + args, capture_output=True, text=True)
    if done.returncode:
        sys.exit("mutants: " + " ".join(cc + args) + "\n" + done.stderr)


def try_mutant(cc, root, work, linked, number):
    invariant, what, path, old, new, first, seeds, *world = MUTANTS[number]
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
    first_ones = [source] if own else [source, os.path.join(work, "blind.o")]  # what they define, no library is asked for
    run(cc, FLAGS + [*first_ones, *linked, "-o", binary, "-lsodium", "-lpthread", "-lm"])
    began = time.monotonic()
    world = ["--brisk"] if invariant == "I13" else ["--role", ROLES[what]] if what in ROLES and not world else world
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
    parser.add_argument("linked", nargs="+", help="the objects of the simulator and the libraries, which the mutants are linked with")
    options = parser.parse_args()
    os.chdir(options.root)
    missed = 0
    wanted = [n for n, m in enumerate(MUTANTS) if not options.only or options.only in m[0] + " " + m[1]]
    with tempfile.TemporaryDirectory() as work:
        blind = os.path.join(work, "blind.c")
        with open(blind, "w", encoding="utf-8") as f:
            f.write(BLIND)
        run([options.cc], FLAGS + ["-c", blind, "-o", os.path.join(work, "blind.o")])
        with ThreadPoolExecutor(2) as pool:
            tries = [pool.submit(try_mutant, [options.cc], options.root, work, options.linked, n) for n in wanted]
            for t in tries:
                caught, line = t.result()
                missed += not caught
                print(("caught " if caught else "MISSED ") + line, flush=True)
    print(f"mutants: {len(wanted) - missed} of {len(wanted)} caught")
    return missed != 0


if __name__ == "__main__":
    sys.exit(main())
