#!/usr/bin/env python3
"""Which sequences each step of `atom train` learns, seen from outside.

  order_oracle.py ATOM [--canary]     ATOM: the program
  --canary    the order that is expected is that of another seed; succeeds if that is noticed

A model that hardly changes (its learning rate is 1e-13) has another loss on each sequence of a small data set, so the losses
of steps of one sequence say in which order they come: each once in every pass, in another order in the next one. The
losses of all other runs must be those of steps that continue in that order wherever the run before stopped, whatever the sizes
of micro-batches and steps, devices, threads, swapping, state on disk, and the place of the checkpoint: nothing is seen twice
or left out. Losses are PyTorch's in float64. Exit 77: torch or transformers is not installed.
"""
import argparse
import json
import os
import sys
import tempfile

from train_oracle import Atom, GPT2Config, GPT2LMHeadModel, np, torch, write_shard

LENGTH, WINDOWS, SEEDS, LIMIT = 8, 23, (1, 7), 1e-6
AGAIN = ["--resume-from-checkpoint", "auto"]
SMALL = ["--device-memory", "1MiB"]
DISK = ["--optimizer-state", "disk"]
# Each: the run up to step n with micro-batches of B, C of them in a step, and other words.
CHAINS = [
    [(7, 1, 1, []), (10, 2, 3, ["--threads", 2]), (14, 3, 1, SMALL), (16, 1, 4, DISK), (17, 2, 1, DISK)],
    [(3, 2, 2, ["--threads", 1]), (5, 1, 4, [*SMALL, "--devices", 2]), (12, 4, 1, [])],
]


def make_model(path):
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=1, initializer_range=0.4,
                                       bos_token_id=0, eos_token_id=0))
    model.save_pretrained(path)
    return model.double().eval()


def make_data(path):
    """Three shards, one of them of a single token, and at the end a rest that is too short for a sequence."""
    stream = np.random.default_rng(0).integers(0, 64, WINDOWS * LENGTH + 5)
    os.mkdir(path)
    for i, (first, last) in enumerate(((0, 77), (77, 78), (78, len(stream)))):
        write_shard(os.path.join(path, f"train_{i:06d}.bin"), stream[first:last])
    return stream


def losses_of(model, stream):
    """Of each sequence."""
    tokens = torch.from_numpy(stream[:WINDOWS * LENGTH].reshape(WINDOWS, LENGTH))
    targets = torch.from_numpy(stream[1:WINDOWS * LENGTH + 1].reshape(WINDOWS, LENGTH))
    with torch.no_grad():
        logits = model(tokens).logits
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none").mean(1).numpy()
    assert np.diff(np.sort(losses)).min() > 1e-4  # so that they can be told apart
    return losses


def train(atom, out, B, C, seed, *more):
    atom("train", "--model", "source", "--data", "data", "--output-dir", out, "--dtype", "fp32", "--device", "cpu", "--execute",
         "interpreted", "--eval-steps", 0, "--sequence-len", LENGTH, "--micro-batch-size", B, "--gradient-accumulation-steps", C,
         "--learning-rate", 1e-13, "--lr-scheduler", "constant", "--warmup-steps", 0, "--weight-decay", 0, "--dropout", 0,
         "--seed", seed, "--quiet", *more)


def seen(atom, out):
    """Step -> loss; no step is there twice."""
    with open(os.path.join(atom.work, out, "metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    losses = {line["step"]: line["loss"] for line in lines}
    assert len(losses) == len(lines), (out, lines)
    return losses


def order_of(atom, losses, seed):
    """Of the first two passes and a half."""
    train(atom, f"one{seed}", 1, 1, seed, "--max-steps", 60)
    order = []
    for _, loss in sorted(seen(atom, f"one{seed}").items()):
        order.append(int(np.abs(losses - loss).argmin()))
        assert abs(losses[order[-1]] - loss) < 1e-5, (seed, len(order), loss)
    first, second, rest = order[:WINDOWS], order[WINDOWS:2 * WINDOWS], order[2 * WINDOWS:]
    assert sorted(first) == sorted(second) == list(range(WINDOWS)) and first != second, (seed, order)
    assert len(set(rest)) == len(rest) == 60 - 2 * WINDOWS, (seed, order)
    return order


class Check:
    def __init__(self, atom, losses, orders):
        self.atom, self.losses, self.orders, self.steps, self.wrong = atom, losses, orders, 0, 0

    def __call__(self, out, seed, steps, begin=1, at=0):
        """steps: (B, C) of each of them, from step `begin` and sample `at` on."""
        got = seen(self.atom, out)
        assert sorted(got) == list(range(begin, begin + len(steps))), (out, sorted(got))
        for step, (B, C) in enumerate(steps, begin):
            want = self.losses[self.orders[seed][at:at + B * C]].mean()
            self.steps, self.wrong, at = self.steps + 1, self.wrong + (not abs(got[step] - want) <= LIMIT * want), at + B * C
        with open(os.path.join(self.atom.work, out, f"checkpoint-{max(got)}", "atom_state.json"), encoding="utf-8") as f:
            assert json.load(f)["samples"] == at, (out, at)


def compare(atom, check):
    for seed in SEEDS:
        for i, chain in enumerate(CHAINS):
            out, steps = f"chain{seed}{i}", []
            for last, B, C, words in chain:
                train(atom, out, B, C, seed, "--max-steps", last, *words, *(AGAIN if steps else []))
                steps += [(B, C)] * (last - len(steps))
            check(out, seed, steps)
    # from an older checkpoint, elsewhere
    train(atom, "whole", 1, 2, SEEDS[0], "--max-steps", 9, "--save-steps", 2, "--save-total-limit", 0)
    train(atom, "part", 2, 2, SEEDS[0], "--max-steps", 12, "--resume-from-checkpoint", "whole/checkpoint-4")
    check("part", SEEDS[0], [(2, 2)] * 8, 5, 8)
    for B, C in (1, 1), (2, 3), (4, 1):  # two passes over the data
        train(atom, f"passes{B}{C}", B, C, SEEDS[1], "--num-train-epochs", 2)
        check(f"passes{B}{C}", SEEDS[1], [(B, C)] * (2 * WINDOWS // (B * C)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--canary", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work:
        atom = Atom(args.atom, work)
        model = make_model(os.path.join(work, "source"))
        losses = losses_of(model, make_data(os.path.join(work, "data")))
        orders = {seed: order_of(atom, losses, seed) for seed in SEEDS}
        assert orders[SEEDS[0]] != orders[SEEDS[1]]
        if args.canary:
            orders = {seed: orders[SEEDS[1 - SEEDS.index(seed)]] for seed in SEEDS}
        check = Check(atom, losses, orders)
        compare(atom, check)
    print(f"order of the data: {check.steps} steps, {check.wrong} have seen other sequences")
    return (check.wrong == 0) if args.canary else check.wrong != 0


if __name__ == "__main__":
    sys.exit(main())
