#!/usr/bin/env python3
"""By hand: four members of a pool on loopback, some of them with little memory, beside the same pool without.

    tests/pool/measure_memory.py --little 2 --host-memory 180MiB
    tests/pool/measure_memory.py --little 0

One line per member: where its state was, its steps, what of it the pool took, its memory, how long its optimizer stood
for the pool in all; then the loss of the pool's weights on the validation split. Rates depend on what else this machine does.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import tool  # noqa: E402

CONFIG = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 257, "n_positions": 48, "n_embd": 512,
          "n_layer": 8, "n_head": 8, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
RUN = """
micro_batch_size: 1
gradient_accumulation_steps: 1
sequence_len: 32
max_steps: {steps}
learning_rate: 3e-4
warmup_steps: 5
lr_scheduler: constant
dtype: bf16
threads: 1
eval_steps: 0
save_steps: 1000
save_total_limit: 1
pool:
  sync_steps: 48
  fragments: 8
  codec: int8
  heartbeat_seconds: 3
  min_peers: 4
  trust: friends
"""
NET = ["--listen", "127.0.0.1:0", "--no-lan", "--no-directory", "--json"]


def start(place, out, *args):
    with open(os.path.join(place, out + ".log"), "w", encoding="utf-8") as log:
        return subprocess.Popen([tool.ATOM, "pool", *args, "--device", "cpu", "-o", os.path.join(place, out), *NET],
                                stdout=subprocess.PIPE, stderr=log, text=True)


def measure(place, args):
    at = lambda name: os.path.join(place, name)
    with open(at("text.txt"), "w", encoding="ascii") as f:
        f.write(tool.english(200000))
    with open(at("config.json"), "w", encoding="ascii") as f:
        json.dump(CONFIG, f)
    with open(at("run.yml"), "w", encoding="ascii") as f:
        f.write(RUN.format(steps=args.steps))
    subprocess.run([tool.ATOM, "data", "prepare", "-i", at("text.txt"), "-o", at("data")], check=True)
    all_have = ["--data", at("data")]
    members = {"m0": start(place, "m0", "create", "--config", at("run.yml"), "--model", at("config.json"), *all_have)}
    ticket = json.loads(members["m0"].stdout.readline())["ticket"]
    for i in (1, 2, 3):
        memory = ["--host-memory", args.host_memory] if i > 3 - args.little else []
        members[f"m{i}"] = start(place, f"m{i}", "join", ticket, *all_have, *memory)
    for out, process in members.items():
        end = json.loads(process.communicate()[0].splitlines()[-1])
        with open(at(out + ".log"), encoding="utf-8") as f:
            said = f.read()
        where = "disk" if "optimizer state: on disk" in said else "anchor on disk" if "anchor: on disk" in said else "memory"
        print(f"{out}: {where}, {end['steps']} steps, version {end['version']}, anchor {end['anchor'][:12]}, included "
              f"{end['included']}, {re.findall('host ([0-9.]+ .iB)', said)[-1]}, seam {end['seam_seconds']:.2f} s", flush=True)
    subprocess.run([tool.ATOM, "pool", "export", at("m0"), "-o", at("model")], check=True)
    subprocess.run([tool.ATOM, "eval", "--model", at("model"), "--data", at("data"), "--device", "cpu"], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--little", type=int, choices=range(4), default=2)
    parser.add_argument("--host-memory", default="180MiB")
    parser.add_argument("--steps", type=int, default=300, help="of all members together")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="atom-memory-") as place:
        measure(place, args)


main()
