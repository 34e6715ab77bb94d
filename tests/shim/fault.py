#!/usr/bin/python3
"""A card that fails in the middle of a run: the program says so and ends, and the last checkpoint goes on to the same
bits.

  fault.py ATOM      with ATOM_CUDA_MODULE set to the module over the fake runtime
"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

CONFIG = {"model_type": "gpt2", "vocab_size": 300, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
COMMON = ["--model", "config.json", "--data", "data", "--device", "cuda", "--dtype", "fp32", "--micro-batch-size", "1",
          "--sequence-len", "8", "--gradient-accumulation-steps", "2", "--eval-steps", "0", "--seed", "3", "--max-steps", "6",
          "--save-steps", "2", "--lr-scheduler", "constant"]


def prepare(work, config, atom):
    """A model and its data, for COMMON."""
    with open(os.path.join(work, "config.json"), "w", encoding="ascii") as f:
        json.dump(config, f)
    with open(os.path.join(work, "text.txt"), "w", encoding="ascii") as f:
        f.writelines(f"line {i} says {i * 7919 % 1000}\n" for i in range(500))
    atom("data", "prepare", "--input", "text.txt", "--output", "data")


def bits(out):
    """Of the weights that a run of COMMON ended with."""
    with open(os.path.join(out, "checkpoint-6", "model.safetensors"), "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        env = dict(os.environ, XDG_CACHE_HOME=os.environ.get("TESTS_CACHE") or os.path.join(work, "cache"))

        def atom(*args, fault=None, **more):
            more |= {} if fault is None else {"ATOM_FAKE_FAULT": str(fault)}
            done = subprocess.run([program, *args], cwd=work, env={**env, **more}, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=200)
            return done.returncode, done.stdout

        def saved_in(out):
            path = os.path.join(work, out)
            return sorted(n for n in os.listdir(path) if n.startswith("checkpoint-")) if os.path.isdir(path) else []

        prepare(work, CONFIG, atom)
        code, text = atom("train", *COMMON, "--output-dir", "whole")
        assert code == 0, text
        code, text = atom("train", *COMMON, "--output-dir", "small", fault=20, ATOM_FAKE_FAULT_IS="memory")
        assert code == 4 and "lower --device-memory" in text and "the card failed" not in text, (code, text)
        # Later and later, until there is a checkpoint to go on from.
        for fault in range(10, 2000, 10):
            out = f"fault{fault}"
            code, text = atom("train", *COMMON, "--output-dir", out, fault=fault)
            assert code == 1 and "the card failed" in text and "last checkpoint" in text, (fault, code, text)
            if saved_in(out):
                break
        before = saved_in(out)
        assert before in (["checkpoint-2"], ["checkpoint-2", "checkpoint-4"]), before
        code, text = atom("train", *COMMON, "--output-dir", out, "--resume-from-checkpoint", "auto")
        assert code == 0, text
        assert bits(os.path.join(work, out)) == bits(os.path.join(work, "whole")), "the resumed run has other weights"
        print(f"copy {fault} failed; {before[-1]} went on to the same bits")


if __name__ == "__main__":
    main()
