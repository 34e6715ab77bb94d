"""What random tests of relations share (combos.py, plan_relations.py): their options, and which relations of a seed fail.

A case is a tool.Case that has, for its class, the relations ALWAYS and SOMETIMES (methods without arguments that raise), and for itself
`pick` (the seed's random.Random) and `commands` (those of the relation that is checked).
"""
import argparse
import os
import traceback

import tool


class Refused(Exception):
    """The program refuses what the seed asks for, as it should: there is nothing to check."""


def options(seeds, *more):
    parser = argparse.ArgumentParser()
    for name, kind in (("first", {"type": int, "default": 1}), ("seeds", {"type": int, "default": seeds}), ("only", {}),
                       ("all", {"action": "store_true"}), ("canary", {"action": "store_true"}), *((name, {}) for name in more)):
        parser.add_argument("--" + name, **kind)
    tool.ATOM = os.path.abspath(tool.ATOM)
    return parser.parse_args()


def broken(case, seed, error, name=""):
    """What is said of a failure: where it was, and the commands that led to it."""
    where = f", {name} (line {traceback.extract_tb(error.__traceback__)[1].lineno})" if name else ""
    return f"seed {seed}{where}: {error}\n  " + "\n  ".join(case.commands)


def check(case, seed, only=None, everything=False):
    """The relations that fail, by their names: those of ALWAYS, and of SOMETIMES three that the seed draws, or all."""
    relations = list(case.ALWAYS) + (list(case.SOMETIMES) if everything else case.pick.sample(case.SOMETIMES, 3))
    if only:
        relations = [r for r in (*case.ALWAYS, *case.SOMETIMES) if r.__name__ == only]
    failed = {}
    for relation in relations:
        case.commands = []
        try:
            relation(case)
        except Exception as error:  # each relation stands alone
            failed[relation.__name__] = broken(case, seed, error, relation.__name__)
    return failed
