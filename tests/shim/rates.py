#!/usr/bin/python3
"""A card that makes Muon's products is measured for them, and only where a model is trained so.

  rates.py ATOM      with ATOM_CUDA_MODULE set to the module over the fake runtime
"""
import json
import os
import subprocess
import sys
import tempfile

CONFIG = {"model_type": "gpt2", "vocab_size": 64, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as work:
        with open(os.path.join(work, "config.json"), "w") as f:
            json.dump(CONFIG, f)

        def rate(device, optimizer, dtype):
            done = subprocess.run([program, "profile", "--model", "config.json", "--device", device, "--optimizer", optimizer,
                                   "--dtype", dtype, "--micro-batch-size", "1", "--sequence-len", "16", "--json"], cwd=work,
                                  stdout=subprocess.PIPE, timeout=200, check=True)
            return json.loads(done.stdout)["device"].get("ortho_flops_per_second", 0)

        for dtype in "fp32", "bf16":
            assert rate("cuda", "muon", dtype) > 0, "products on the card were not measured"
        assert rate("cuda", "adamw", "fp32") == 0, "AdamW has no such products"
        assert rate("cpu", "muon", "fp32") == 0, "the host makes them"
    print("the products of a card are measured where they are needed")


if __name__ == "__main__":
    main()
