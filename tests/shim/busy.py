#!/usr/bin/python3
"""A card of whose memory other programs use a part: training and evaluation take what is left, and say so; and where next to
nothing is left, call lists are not recorded.

  busy.py ATOM      with ATOM_CUDA_MODULE set to the module over the fake runtime, whose card has 4 GiB
"""
import os
import subprocess
import sys
import tempfile

from fault import COMMON, CONFIG, bits, prepare

GIB, MIB = 1 << 30, 1 << 20


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        env = dict(os.environ, XDG_CACHE_HOME=os.environ.get("TESTS_CACHE") or os.path.join(work, "cache"))

        def atom(*args, used=0, **more):
            done = subprocess.run([program, *args], cwd=work, env={**env, "ATOM_FAKE_USED": str(used), **more}, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200)
            assert done.returncode == 0, done.stdout
            return done.stdout

        prepare(work, CONFIG, atom)
        dry = ("train", *COMMON, "--output-dir", "out", "--dry-run")
        assert "other programs" not in atom(*dry), "a card that nobody else uses"
        said = atom(*dry, used=2 * GIB)
        assert "only 1.5 GiB of the card's memory are free for training, instead of 3.0 GiB" in said, said
        assert "of a budget of 1.5 GiB" in said, said
        assert "other programs" not in atom(*dry, "--device-memory", "1GiB", used=2 * GIB), "who sets a limit knows"
        train = ("train", *COMMON, "--device-memory", "16MiB")
        said = atom(*train, "--output-dir", "out")
        assert "recorded" not in said, said
        said = atom(*train, "--output-dir", "full", used=4 * GIB - 100 * MIB)
        assert said.count("only 100 MiB of the card's memory are free beside the budget") == 1, said
        assert "cudaGraphUpload" not in said, said
        said = atom(*train, "--output-dir", "refused", ATOM_FAKE_NO_UPLOAD="1")
        assert said.count("cudaGraphUpload") == 1, said
        assert len({bits(os.path.join(work, out)) for out in ("out", "full", "refused")}) == 1, "other weights"
        measure = ("eval", "--model", "out/checkpoint-6", "--data", "data", "--device", "cuda", "--sequence-len", "8")
        free, shared = atom(*measure), atom(*measure, used=2 * GIB)
        assert "other programs" not in free, free
        assert "only 1.5 GiB of the card's memory are free for evaluation, instead of 3.0 GiB" in shared, shared
        assert free.split("loss")[1].split()[0] == shared.split("loss")[1].split()[0], (free, shared)
    print("what other programs use is left to them")


if __name__ == "__main__":
    main()
