#!/usr/bin/python3
"""Muon's products on a card or on the host: the same checkpoint to the bit, with the state in memory and on disk, and after a kill.

  muon.py ATOM      with ATOM_CUDA_MODULE set to the module over the fake runtime
"""
import json
import os
import subprocess
import sys
import tempfile

CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 48, "n_layer": 2, "n_head": 2}
SHAPE = ("--micro-batch-size", "1", "--sequence-len", "32")
STEP = ("--gradient-accumulation-steps", "2")


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        env = dict(os.environ, XDG_CACHE_HOME=os.environ.get("TESTS_CACHE") or os.path.join(work, "cache"))

        def path(*parts):
            return os.path.join(work, *parts)

        def atom(*args):
            done = subprocess.run([program, *args], cwd=work, env=env, text=True, timeout=200, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            assert done.returncode == 0, done.stdout
            return done.stdout

        def train(out, plan, *more):
            return ("train", "--model", "config.json", "--init", "random", "--data", "data", "--optimizer", "muon", "--device", "cuda",
                    "--seed", "7", "--learning-rate", "1e-2", "--max-steps", "4", "--eval-steps", "0", "--save-steps", "2",
                    "--plan", plan, "--output-dir", out, *SHAPE, *STEP, *more)

        def weights(out):
            with open(path(out, "checkpoint-4", "model.safetensors"), "rb") as f:
                return f.read()

        with open(path("config.json"), "w") as f:
            json.dump(CONFIG, f)
        with open(path("text.txt"), "w") as f:
            f.write("".join(f"In line {i} stands the number {i * i % 997}.\n" for i in range(600)))
        atom("data", "prepare", "--input", "text.txt", "--tokenizer", "bytes", "--output", "data")
        atom("profile", "--model", "config.json", "--device", "cuda", "--optimizer", "muon", *SHAPE, "-o", "profile.json")
        for state in "memory", "disk":
            atom("plan", "--profile", "profile.json", "--device-memory", "700KiB", "--optimizer-state", state, *STEP, "-o", f"{state}.json")
            with open(path(f"{state}.json")) as f:
                plan = json.load(f)
            assert len(plan["sub_models"]) > 1, "the model has to be swapped"
            for where in "host", "device":  # whatever is quicker here; products need a little more room
                with open(path(f"{state}-{where}.json"), "w") as f:
                    json.dump({**plan, "muon_products": where, "device_budget_bytes": 2 << 20}, f)
                out = f"{state}-{where}"
                atom(*train(out, f"{out}.json", "--trace", f"{out}.trace"))
                with open(path(f"{out}.trace")) as f:
                    assert ("ORTHO" in f.read()) == (where == "device"), "the plan decides where products are made"
        for out in "memory-device", "disk-host", "disk-device":
            assert weights(out) == weights("memory-host"), f"{out} differs"
        for state in "memory", "disk":  # killed behind its first checkpoint, and gone on with on the host
            out = f"{state}-killed"
            with subprocess.Popen([program, *train(out, f"{state}-device.json", "--max-steps", "4")], cwd=work, env=env,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
                for line in process.stdout:
                    if "step 3/" in line:
                        process.kill()
            if os.path.isdir(path(out, "checkpoint-4")):
                continue  # it was quicker
            atom(*train(out, f"{state}-host.json", "--resume-from-checkpoint", "auto"))
            assert weights(out) == weights("memory-host"), f"{out} differs"
    print("the products of a card have the bits of the host's")


if __name__ == "__main__":
    main()
