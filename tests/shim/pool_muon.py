#!/usr/bin/python3
"""A pool of one member that sums gradients by Muon, its products on a card or on the host: the same checkpoints to the bit, also where
steps of its own follow (no average comes in between, which may be a step earlier or later).

  pool_muon.py ATOM      with ATOM_CUDA_MODULE set to the module over the fake runtime
"""
import json
import os
import subprocess
import sys
import tempfile

CONFIG = {"model_type": "gpt2", "vocab_size": 257, "n_positions": 32, "n_embd": 64, "n_layer": 3, "n_head": 2}
RUN = """
optimizer: muon
init: random
micro_batch_size: 1
gradient_accumulation_steps: 2
sequence_len: 32
max_steps: 6
learning_rate: 1e-2
eval_steps: 0
save_steps: 2
pool:
  heartbeat_seconds: 0.2
"""
MODES = {"summed": "  sync: gradients\n  global_batch_size: 2\n", "dense first": "  dense_steps: 3\n  sync_steps: 50\n  global_batch_size: 2\n"}
ON_DEVICE, ON_HOST = "muon: the device makes the matrix products", "muon: the host makes the matrix products"


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        env = dict(os.environ, XDG_CACHE_HOME=os.environ.get("TESTS_CACHE") or os.path.join(work, "cache"))

        def atom(*args):
            done = subprocess.run([program, *args], cwd=work, env=env, text=True, timeout=200, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            assert done.returncode == 0, done.stdout
            return done.stdout

        def weights(out):
            with open(os.path.join(work, out, "checkpoint-6", "model.safetensors"), "rb") as f:
                return f.read()

        def pool(out, mode, *more):
            with open(os.path.join(work, "run.yml"), "w") as f:
                f.write(RUN.replace("pool:", "".join(f"{m}\n" for m in more) + "pool:") + MODES[mode])
            return atom("pool", "create", "--config", "run.yml", "--model", "config.json", "--data", "data", "--device", "cuda", "-o", out,
                        "--listen", "127.0.0.1:0", "--no-lan", "--no-directory")

        with open(os.path.join(work, "config.json"), "w") as f:
            json.dump(CONFIG, f)
        with open(os.path.join(work, "text.txt"), "w") as f:
            f.write("".join(f"In line {i} stands the number {i * i % 997}.\n" for i in range(600)))
        atom("data", "prepare", "--input", "text.txt", "--tokenizer", "bytes", "--output", "data")
        for mode in MODES:
            said = pool(f"{mode} device", mode)
            assert ON_DEVICE in said, said
            said = pool(f"{mode} host", mode, "updates: host")
            assert ON_DEVICE not in said and ON_HOST not in said, said
            assert weights(f"{mode} device") == weights(f"{mode} host"), f"{mode}: the bits differ"
        for size in "500KiB", "600KiB":  # more than a quarter of the card; and no plan is left that fits
            said = pool(size, "summed", f"device_memory: {size}")
            assert ON_HOST in said, said
            assert weights(size) == weights("summed host"), "on a small card the bits differ"
        atom("profile", "--model", "config.json", "--device", "cuda", "--optimizer", "muon", "--micro-batch-size", "1", "--sequence-len", "32",
             "-o", "profile.json")
        atom("plan", "--profile", "profile.json", "--gradient-accumulation-steps", "2", "-o", "plan.json")
        said = pool("planned", "summed", "plan: plan.json")
        assert ON_HOST in said and "plan.json leaves them no room" in said, said
        assert weights("planned") == weights("summed host"), "with a plan of its own the bits differ"
    print("the products of a card have the bits of the host's, in pools too")


if __name__ == "__main__":
    main()
