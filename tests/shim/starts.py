#!/usr/bin/python3
"""Where documents begin reaches the card in order: weights are the same whether the card works at once or as late as it may.

  starts.py ATOM      with ATOM_CUDA_MODULE set to the module over the fake runtime
"""
import json
import os
import subprocess
import sys
import tempfile

from fault import COMMON, CONFIG, bits

# More micro-batches than stages on the way.
APART = [*COMMON, "--packing", "apart", "--sequence-len", "16", "--gradient-accumulation-steps", "12"]


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        env = dict(os.environ, XDG_CACHE_HOME=os.environ.get("TESTS_CACHE") or os.path.join(work, "cache"))

        def atom(*args, **more):
            done = subprocess.run([program, *args], cwd=work, env={**env, **more}, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=200)
            assert done.returncode == 0, done.stdout

        with open(os.path.join(work, "config.json"), "w", encoding="ascii") as f:
            json.dump(CONFIG, f)
        with open(os.path.join(work, "text.jsonl"), "w", encoding="ascii") as f:
            f.writelines(json.dumps({"text": "x" * (i % 23 + 1) + str(i * 7919 % 1000)}) + "\n" for i in range(900))
        atom("data", "prepare", "--input", "text.jsonl", "--output", "data")
        found = {}
        for name, more in ("soon", {}), ("late", {"ATOM_FAKE_LATE": "1"}):
            atom("train", *APART, "--device-memory", "400KiB", "--output-dir", name, **more)
            found[name] = bits(os.path.join(work, name))
        assert len(set(found.values())) == 1, found
    print("documents begin where they should, at once and late")


if __name__ == "__main__":
    main()
