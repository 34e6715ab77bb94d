#!/usr/bin/env python3
"""The program `atom` against PyTorch in float64, as a user runs it.

  train_oracle.py ATOM [--first S] [--seeds N] [--device cuda] [--optimizer muon]     ATOM: the program

A model made by transformers is trained by `atom train` (warmup, a schedule, clipping, decay, micro-batches,
swapping in half the runs) on data of which every step sees all, so that the order does not matter. Each
line of metrics.jsonl (loss, gradient norm, learning rate), the weights of the last checkpoint, `atom eval`
and greedy `atom generate` are compared. fp32. With Muon the
limits are wider: its products have operands in bf16, and Newton-Schulz makes directions that a gradient does not
have out of how those are rounded, so that the last bit of a gradient moves a weight by a part in a hundred of its
way. Exit 77: torch or transformers is not installed.
"""
import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

from gpt2_oracle import Job, Torch, error, np, parts, torch, KEY_BIAS, GPT2Config, GPT2LMHeadModel, load_file

STEPS = 10
VOCABULARY = 257  # the bytes tokenizer's
# The norm of step 10 is that of weights which ten steps at 1e-2 have driven apart.
LIMITS = {"loss": 1e-5, "norm": 1e-4, "learning rate": 1e-6, "weights": 1e-5, "eval": 1e-5, "generate": 0}
MUON_LIMITS = {**LIMITS, "loss": 2e-4, "norm": 2e-3, "weights": 2e-2, "hidden": 0.08, "momentum": 3e-2}
HIDDEN = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")


class Run(Job):
    """One model, its data and options; takes the place of gpt2_oracle's random batches."""

    def __init__(self, seed, optimizer="adamw"):
        r = random.Random(seed)
        self.optimizer = optimizer
        torch.manual_seed(seed)
        heads, self.seed, self.dtype = r.randint(1, 4), seed, "fp32"
        self.T, self.B, self.C = r.randint(5, 25), r.randint(1, 3), r.randint(1, 4)
        self.config = GPT2Config(
            vocab_size=VOCABULARY, n_positions=self.T + r.randint(0, 40), n_embd=heads * r.randint(7, 17),
            n_layer=r.randint(1, 4), n_head=heads, n_inner=r.choice([None, r.randint(11, 97)]),
            initializer_range=r.choice([0.02, 0.1]), bos_token_id=256, eos_token_id=256)
        self.lr, self.decay, self.clip = r.choice([1e-3, 1e-2]), r.choice([0.0, 0.1]), r.choice([0.0, 0.2])
        self.decay *= 5 if optimizer == "muon" else 1  # so that it is seen in ten steps
        self.schedule, self.warmup = r.choice(["constant", "linear", "cosine"]), r.choice([0, 3])
        self.swap = r.random() < 0.5
        self.model = GPT2LMHeadModel(self.config)
        windows = self.B * self.C
        self.stream = np.random.default_rng(seed).integers(97, 123, windows * self.T + 1)  # letters
        shape = (1, self.C, self.B * self.T)
        self.tokens, self.targets = self.stream[:-1].reshape(shape), self.stream[1:].reshape(shape)

    def rate(self, step):
        rate, end = self.lr, self.lr * {"constant": 1, "linear": 0, "cosine": 0.1}[self.schedule]
        if step < self.warmup:
            return rate * step / self.warmup
        p = (step - self.warmup) / (STEPS - self.warmup)
        if self.schedule == "linear":
            return rate - (rate - end) * p
        if self.schedule == "cosine":
            return end + (rate - end) * (1 + math.cos(math.pi * p)) / 2
        return rate


def operand(x):
    x = x.float().bfloat16().double()
    return torch.where(x.abs() < 2.0 ** -60, torch.zeros_like(x), x)


def orthogonal(u):
    """Newton-Schulz's five steps, on the shorter side."""
    if u.shape[0] > u.shape[1]:
        return orthogonal(u.T).T
    x = operand(u / max(float(u.norm()), 1e-7))
    for _ in range(5):
        a = operand(x @ x.T)
        x = operand(3.4445 * x + operand(-4.7750 * a + 2.0315 * (a @ a)) @ x)
    return x


class MuonTorch(Torch):
    """Hidden matrices by Muon, each third of c_attn by itself (transformers has it [in, out]); the rest by AdamW."""

    def __init__(self, job):
        super().__init__(job)
        self.momentum = {n: torch.zeros_like(m) for n, m in self.master.items() if HIDDEN.search(n)}
        assert len(self.momentum) == 4 * job.config.n_layer, sorted(self.momentum)
        hidden = {id(self.master[n]) for n in self.momentum}
        for group in self.optimizer.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in hidden]

    def update(self):
        norm, rate = super().update(), self.optimizer.param_groups[0]["lr"]
        with torch.no_grad():
            for name, m in self.momentum.items():
                w, g = self.master[name], self.master[name].grad
                m.mul_(0.95).add_(g)
                u = 0.95 * m + g
                w.mul_(1 - rate * self.job.decay)
                count = 3 if "c_attn" in name else 1
                for part, to in zip(u.chunk(count, 1), w.chunk(count, 1)):
                    to.sub_(rate * 0.2 * math.sqrt(max(part.shape)) * orthogonal(part))
        self.sync()
        return norm


def write_shard(path, tokens):
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(tokens)
    with open(path, "wb") as f:
        f.write(header.tobytes() + tokens.astype("<u2").tobytes())


class Atom:
    def __init__(self, program, work, device="cpu"):
        self.program, self.work, self.device = os.path.abspath(program), work, device
        self.env = dict(os.environ, XDG_CACHE_HOME=os.environ.get("TESTS_CACHE") or os.path.join(work, "cache"))

    def __call__(self, *args, may_fail=False, codes=(0,)):
        done = subprocess.run([self.program, *map(str, args)], cwd=self.work, env=self.env, text=True,
                              errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode not in codes and not may_fail:
            raise SystemExit(f"atom {' '.join(map(str, args))}: exit {done.returncode}\n{done.stderr}")
        return None if done.returncode else done.stdout

    def in_least_memory(self, *args, size=200_000):
        """What it prints within nearly the smallest device memory that it takes, and that size in bytes."""
        out = None
        while out is None:  # 4: not enough memory, which is no answer when there is a lot
            size = size * 5 // 4
            out = self(*args, "--device-memory", size, codes=(0, 4) if size < 1e9 else (0,))
        return out, size


def train(atom, run):
    run.model.save_pretrained(os.path.join(atom.work, "source"))
    with open(os.path.join(atom.work, "a.txt"), "w", encoding="ascii") as f:
        f.write("some text for a tokenizer " * 100)
    atom("data", "prepare", "--input", "a.txt", "--tokenizer", "bytes", "--output", "data")
    for name in os.listdir(os.path.join(atom.work, "data")):
        if name.endswith(".bin") or name == "dataset.json":
            os.remove(os.path.join(atom.work, "data", name))
    for split in "train", "val":
        write_shard(os.path.join(atom.work, "data", f"{split}_000000.bin"), run.stream)
    args = ["train", "--model", "source", "--data", "data", "--output-dir", "out", "--dtype", "fp32",
            "--device", atom.device, "--micro-batch-size", run.B, "--gradient-accumulation-steps", run.C,
            "--sequence-len", run.T, "--max-steps", STEPS, "--learning-rate", run.lr, "--lr-scheduler",
            run.schedule, "--warmup-steps", run.warmup, "--weight-decay", run.decay, "--adam-epsilon", 1e-4,
            "--max-grad-norm", run.clip, "--dropout", 0, "--eval-steps", 0, "--seed", run.seed, "--json",
            "--optimizer", run.optimizer, "--quiet"]
    if not run.swap:
        return json.loads(atom(*args))
    # a card's libraries want their room
    out, size = atom.in_least_memory(*args, size=20_000 if atom.device == "cpu" else 40_000_000)
    summary = json.loads(out)
    assert summary["bytes_copied"]["h2d"] > 0 and summary["device_peak_bytes"] <= size, summary
    return summary


def compare(run, atom):
    summary = train(atom, run)
    assert summary["steps"] == STEPS, summary
    with open(os.path.join(atom.work, "out", "metrics.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    lines = [line for line in lines if line.get("split") != "val"]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1)), lines
    ours = MuonTorch(run) if run.optimizer == "muon" else Torch(run)
    for step, line in enumerate(lines, 1):
        for group in ours.optimizer.param_groups:
            group["lr"] = run.rate(step)
        losses = ours.gradients(0)
        yield "loss", f"step {step}", error([line["loss"]], [losses.mean()])
        yield "norm", f"step {step}", error([line["grad_norm"]], [ours.update()])
        yield "learning rate", f"step {step}", error([line["learning_rate"]], [run.rate(step)], 1e-12)
    checkpoint = os.path.join(atom.work, "out", f"checkpoint-{STEPS}")
    final = load_file(os.path.join(checkpoint, "model.safetensors"))
    for name, m in ours.master.items():
        theirs = parts(run, name, final[name])
        for part, new in parts(run, name, m.detach().numpy()).items():
            if not part.endswith(KEY_BIAS):
                yield "hidden" if name in ours.momentum else "weights", part, error(theirs[part], new)
    state = load_file(os.path.join(checkpoint, "optimizer.safetensors")) if ours.momentum else {}
    for name, m in ours.momentum.items():
        theirs = state["momentum_buffer." + name.removeprefix("transformer.")]
        yield "momentum", name, error(theirs.T, m.numpy())
    seen = json.loads(atom("eval", "--model", checkpoint, "--data", "data", "--sequence-len", run.T, "--dtype",
                           "fp32", "--json", "--device", atom.device))
    assert seen["tokens"] == run.tokens.size, seen
    with torch.no_grad():  # from here on PyTorch computes with atom's weights
        for name, p in ours.params.items():
            p.copy_(torch.from_numpy(final[name]))
    yield "eval", "loss", error([seen["loss"]], [ours.gradients(0).mean()])
    yield "generate", "text", compare_text(atom, run, ours, checkpoint)


def compare_text(atom, run, ours, checkpoint):
    """Greedy text must be the same, up to the first near tie or byte that is no letter."""
    prompt, count = "ab", min(20, run.config.n_positions - 2)
    out = atom("generate", "--model", checkpoint, "--prompt", prompt, "--max-tokens", count, "--temperature", 0,
               "--ignore-end", "--dtype", "fp32")
    ids = [ord(c) for c in prompt]
    while len(ids) < len(prompt) + count:
        with torch.no_grad():
            logits = ours.model(torch.tensor([ids])).logits[0, -1]
        (best, second), (token, _) = (x.tolist() for x in torch.topk(logits, 2))
        if best - second < 1e-4 * (1 + abs(best)) or not 97 <= token < 123:
            break
        ids.append(token)
        if ord(out[len(ids) - 1]) != token:
            return 1.0
    run.text_compared = len(ids) - len(prompt)
    return 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--optimizer", default="adamw")
    args = parser.parse_args()
    torch.set_num_threads(1)
    worst, failed, letters = {}, 0, 0
    limits = MUON_LIMITS if args.optimizer == "muon" else LIMITS
    for seed in range(args.first, args.first + args.seeds):
        run = Run(seed, args.optimizer)
        with tempfile.TemporaryDirectory() as work:
            for what, name, e in compare(run, Atom(args.atom, work, args.device)):
                if not e <= worst.get(what, (-1,))[0]:
                    worst[what] = (e, f"{name}, seed {seed}")
                if not e <= limits[what]:
                    failed += 1
                    print(f"FAIL --first {seed} --seeds 1: {what} of {name} is off by {e:.3g}, "
                          f"more than {limits[what]:.3g}")
        letters += getattr(run, "text_compared", 0)
    for what, (e, where) in worst.items():
        print(f"{what:13s} {e:.2e} of {limits[what]:.0e}  ({where})")
    print(f"atom train: {args.seeds} models, {letters} letters of text, {failed} failures")
    return failed != 0 or letters == 0


if __name__ == "__main__":
    sys.exit(main())
