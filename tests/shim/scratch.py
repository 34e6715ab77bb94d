#!/usr/bin/python3
"""Algorithms of matrix products are measured also where the card has no memory left for that; what could not be measured is
chosen again by a later process that can.

  scratch.py CHECK_CUDA      with ATOM_CUDA_MODULE set to the module over the fake runtime
"""
import glob
import os
import subprocess
import sys
import tempfile

AGAIN = "they are measured now"


def main():
    program = os.path.abspath(sys.argv[1])

    def check(cache, full=None):
        """Results are right, whatever was chosen. What it said, and the lines of the file: those that add, and the others."""
        env = dict(os.environ, XDG_CACHE_HOME=cache, **({"ATOM_FAKE_FULL": full} if full else {}))
        done = subprocess.run([program, "bf16", "small", "linear", "lora"], env=env, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=200)
        assert done.returncode == 0, done.stdout
        with open(glob.glob(cache + "/atom/cuda/*.algos")[0], encoding="ascii") as f:
            lines = [line for line in f if not line.startswith("#")]
        return done.stdout, lines

    def measured(lines, adds):
        """Of the library's own: whether each was measured."""
        choices = [(line.split("|")[0], line.split("|")[1].split()) for line in lines]
        return [float(words[3]) > 0 for key, words in choices if words[1] == "0" and (" +1 " in key) == adds]

    with tempfile.TemporaryDirectory() as room, tempfile.TemporaryDirectory() as card, tempfile.TemporaryDirectory() as none:
        said, lines = check(room)
        assert AGAIN not in said and any(measured(lines, True)) and all(measured(lines, True)), lines
        n = len(measured(lines, True))
        said, lines = check(card, "card")
        assert AGAIN not in said and measured(lines, True) == [True] * n, lines
        assert all(measured(lines, False))
        for _ in range(2):  # the second time nothing is chosen in vain
            said, lines = check(none, "host")
            assert AGAIN not in said and measured(lines, True) == [False] * n, lines
            assert all(measured(lines, False))
        said, after = check(none, "card")
        assert said.count(AGAIN) == 1, said
        assert after[:len(lines)] == lines and measured(after[len(lines):], True) == [True] * n, after[len(lines):]
        assert len(after) == len(lines) + n, after[len(lines):]
        said, again = check(none)
        assert AGAIN not in said and again == after
    print("products are measured where there is memory, sooner or later")


if __name__ == "__main__":
    main()
