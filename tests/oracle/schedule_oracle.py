#!/usr/bin/env python3
"""The learning rate of each step of `atom train` against the schedules of transformers.

  schedule_oracle.py ATOM [--canary]     ATOM: the program
  --canary    atom is told a learning rate 0.1 % higher; succeeds if that is noticed

constant, linear, cosine and wsd with several lengths of warmup and of the run, in steps and in passes over the data, and
of runs that are resumed in the middle and made longer or shorter on the way: then the steps up to the checkpoint have
the rates of the first run, and the others those of the second. atom counts steps from 1, so its step n has what
transformers' schedule gives after n of its steps; where the two mean different things, the code says so. Exit 77: torch
or transformers is not installed.
"""
import argparse
import json
import os
import random
import shutil
import sys
import tempfile

from train_oracle import Atom, GPT2Config, np, torch, write_shard

import torch.optim.lr_scheduler as torch_schedules
if not hasattr(torch_schedules, "LRScheduler"):  # PyTorch 1.13 has it under its older name, which transformers does not know
    torch_schedules.LRScheduler = torch_schedules._LRScheduler
from transformers import optimization

LENGTH, WINDOWS, LIMIT = 8, 49, 1e-12
KINDS = ["constant", "linear", "cosine", "wsd"]


class Schedule:
    """One schedule, with the options that say it."""

    def __init__(self, kind, r):
        self.kind, self.peak, self.ratio, self.decay = kind, r.choice([1e-3, 3e-4, 0.1]), 0, 0
        self.words = ["--lr-scheduler", kind]
        if kind == "wsd":
            self.decay = r.choice([0.2, 0.3, 0.5])
            self.words += ["--decay-ratio", self.decay]
        if kind != "constant":
            self.ratio = r.choice([0, 0.1, 0.3])
            self.words += ["--min-lr-ratio", self.ratio]

    def fallen(self, steps):
        return int(self.decay * steps + 0.5)

    def theirs(self, warmup, steps):
        """Rates of steps 1 .. steps."""
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=self.peak)
        if self.kind == "constant":
            schedule = optimization.get_constant_schedule_with_warmup(optimizer, warmup)
        elif self.kind == "linear":
            schedule = optimization.get_linear_schedule_with_warmup(optimizer, warmup, steps)
        elif self.kind == "cosine":
            schedule = optimization.get_cosine_with_min_lr_schedule_with_warmup(optimizer, warmup, steps, min_lr_rate=self.ratio)
        else:
            schedule = optimization.get_wsd_schedule(
                optimizer, num_warmup_steps=warmup, num_stable_steps=steps - warmup - self.fallen(steps),
                num_decay_steps=self.fallen(steps), min_lr_ratio=self.ratio, decay_type="linear")
        rates = []
        for _ in range(steps):
            optimizer.step()
            schedule.step()
            rates.append(optimizer.param_groups[0]["lr"])
        if self.kind == "linear":  # theirs ends at 0; what lies above that is shrunk to end at ours
            end = self.ratio * self.peak
            rates = [rate if n < warmup else end + (self.peak - end) * rate / self.peak for n, rate in enumerate(rates, 1)]
        if self.kind == "wsd":  # theirs begins to rise at its end; atom's from 0, as with all others
            rates = [self.peak * n / warmup if n < warmup else rate for n, rate in enumerate(rates, 1)]
        return rates


class Case:
    def __init__(self, atom, factor):
        self.atom, self.factor, self.runs = atom, factor, 0
        GPT2Config(vocab_size=64, n_positions=LENGTH, n_embd=16, n_layer=1, n_head=1).save_pretrained(os.path.join(atom.work, "model"))
        os.mkdir(os.path.join(atom.work, "data"))
        tokens = np.random.default_rng(0).integers(0, 64, WINDOWS * LENGTH + 4)
        write_shard(os.path.join(atom.work, "data", "train_000000.bin"), tokens)

    def train(self, schedule, warmup, *more):
        warm = [] if warmup is None else ["--warmup-steps", warmup]
        self.atom("train", "--model", "model/config.json", "--data", "data", "--output-dir", f"run{self.runs}", "--dtype", "fp32",
                  "--device", "cpu", "--threads", 1, "--execute", "interpreted", "--eval-steps", 0, "--sequence-len", LENGTH,
                  "--micro-batch-size", 1, "--learning-rate", schedule.peak * self.factor, "--quiet", *schedule.words, *warm, *more)

    def rates(self):
        with open(os.path.join(self.atom.work, f"run{self.runs}", "metrics.jsonl"), encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        assert [line["step"] for line in lines] == list(range(1, len(lines) + 1)), lines
        return [line["learning_rate"] for line in lines]

    def check(self, what, schedule, want):
        """The number of rates that differ."""
        got = self.rates()
        assert len(got) == len(want), (what, len(got), len(want))
        wrong = [(n, a, b) for n, (a, b) in enumerate(zip(got, want), 1) if not abs(a - b) <= LIMIT * schedule.peak]
        for n, a, b in wrong[:1] if self.factor == 1 else []:
            print(f"FAIL {schedule.words}, {what}: step {n} has the rate {a!r}, but transformers' is {b!r}")
        self.runs += 1
        return len(wrong)

    def plain(self, schedule, warmup, steps, accumulate):
        self.train(schedule, warmup, "--max-steps", steps, "--gradient-accumulation-steps", accumulate)
        return self.check(f"warmup {warmup}, {steps} steps", schedule, schedule.theirs(warmup, steps))

    def passes(self, schedule, epochs, accumulate):
        steps = int(epochs * WINDOWS / accumulate)
        self.train(schedule, None, "--num-train-epochs", epochs, "--gradient-accumulation-steps", accumulate)
        return self.check(f"{epochs} passes", schedule, schedule.theirs(steps * 2 // 100, steps))

    def resumed(self, schedule, warmup, first, then, at):
        base = ["--gradient-accumulation-steps", 1, "--save-steps", at, "--save-total-limit", 0]
        self.train(schedule, warmup, "--max-steps", first, *base)
        out = os.path.join(self.atom.work, f"run{self.runs}")
        for name in os.listdir(out):
            if name.startswith("checkpoint-") and name != f"checkpoint-{at}":
                shutil.rmtree(os.path.join(out, name))
        self.train(schedule, warmup, "--max-steps", then, *base, "--resume-from-checkpoint", "auto")
        want = schedule.theirs(warmup, first)[:at] + schedule.theirs(warmup, then)[at:]
        return self.check(f"warmup {warmup}, {first} steps, {then} from step {at} on", schedule, want)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--canary", action="store_true")
    args = parser.parse_args()
    r, wrong = random.Random(1), 0
    with tempfile.TemporaryDirectory() as work:
        case = Case(Atom(args.atom, work), 1.001 if args.canary else 1)
        for kind in KINDS:
            for warmup, steps in (0, 2), (1, 7), (7, 23), (2, 40):
                wrong += case.plain(Schedule(kind, r), warmup, steps, r.choice([1, 3]))
            wrong += case.passes(Schedule(kind, r), r.choice([1, 2.5]), r.choice([1, 3]))
            wrong += case.resumed(Schedule(kind, r), 0, 12, 12, 5)
            wrong += case.resumed(Schedule(kind, r), 3, 12, r.choice([8, 30]), 5)
            wrong += case.resumed(Schedule(kind, r), 4, 14, 14, 3)
        print(f"learning rates: {case.runs} runs, {wrong} rates differ")
    return (wrong == 0) if args.canary else wrong != 0


if __name__ == "__main__":
    sys.exit(main())
