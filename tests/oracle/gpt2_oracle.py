#!/usr/bin/env python3
"""atom's GPT-2 against PyTorch in float64.

  gpt2_oracle.py ORACLE DTYPE BACKEND [--first S] [--seeds N]     ORACLE: the program of oracle.c
  gpt2_oracle.py ... --canary    atom is told a learning rate 0.1 % higher; succeeds if that is noticed

For random small models of odd sizes, saved by transformers and loaded by atom:
  logits, the loss of every token, every gradient (in fp32 c_attn by its three parts), the gradient norm,
  ten AdamW steps with clipping and decay; and the model that atom saves, loaded by transformers.
In bf16 both sides use weights rounded to bf16; PyTorch computes everything else in float64. There the
update is compared as a whole: AdamW makes large steps of small gradients, whatever they consist of.
Errors are ||a - b|| / max(||b||, floor). Exit 77: torch or transformers is not installed.
"""
import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")
try:
    import numpy as np
    import torch
    from safetensors.numpy import load_file
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

STEPS = 10
# What may differ, and why. fp32: f32 sums of up to a thousand terms through a few layers. bf16:
# activations are rounded to 8 bits after every op; learning rates are lower and weights nearer to those
# of real models, so that ten steps do not amplify it.
LIMITS = {
    "fp32": {"logits": 1e-5, "loss": 1e-5, "gradient": 1e-5, "norm": 1e-5, "weights": 1e-5,
             "update": 1e-4, "saved": 1e-5},
    "bf16": {"logits": 2e-2, "loss": 2e-2, "gradient": 2e-2, "norm": 2e-2, "weights": 2e-2,
             "update": 5e-2, "saved": 2e-2},
}
# The absolute floor: a gradient whose elements are smaller than this part of all gradients' mean size is
# measured against that.
FLOOR = {"fp32": 1e-3, "bf16": 1e-2}
# A key bias shifts all scores of a query alike, so its gradient is exactly zero and what is computed is
# rounding noise. It is measured against the whole bias of c_attn; its AdamW steps (noise over the root of
# noise) are not compared.
KEY_BIAS = "c_attn.bias[k]"


def error(a, b, floor=0.0):
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    assert a.shape == b.shape, (a.shape, b.shape)
    if not np.isfinite(a).all():
        return math.inf
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), floor * math.sqrt(a.size), 1e-30))


class Job:
    """One random model, its batches and hyperparameters."""

    def __init__(self, seed, dtype):
        r = random.Random(seed)
        torch.manual_seed(seed)
        self.dtype, self.seed = dtype, seed
        heads = r.randint(1, 5)
        self.T = r.randint(2, 33)
        self.config = GPT2Config(
            vocab_size=r.randint(17, 131), n_positions=self.T + r.randint(0, 7),
            n_embd=heads * r.randint(5, 19), n_layer=r.randint(1, 4), n_head=heads,
            n_inner=r.choice([None, r.randint(11, 97)]),
            initializer_range=r.choice([0.02, 0.08, 0.15] if dtype == "fp32" else [0.02, 0.05, 0.08]),
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=r.choice([1e-5, 1e-3]),
            bos_token_id=0, eos_token_id=0, tie_word_embeddings=random.Random(seed + 500).random() < 0.7)
        self.B, self.C = r.randint(1, 3), r.randint(1, 3)
        self.lr = r.choice([1e-3, 1e-2] if dtype == "fp32" else [1e-4, 1e-3])
        self.decay, self.clip = r.choice([0.0, 0.1]), r.choice([0.0, 0.1, 1.0])
        self.plain = r.choice([0, 0, 1])
        self.model = GPT2LMHeadModel(self.config)
        with torch.no_grad():  # transformers starts biases at 0: those would hide mistakes
            for name, p in self.model.named_parameters():
                if p.dim() == 1:
                    p.add_(0.1 * torch.randn_like(p))
        self.draw_batches()

    def draw_batches(self):
        g = np.random.default_rng(self.seed)
        shape = (STEPS, self.C, self.B * self.T)
        tokens = g.integers(0, self.config.vocab_size, shape)
        targets = g.integers(0, self.config.vocab_size, shape)
        targets[g.random(shape) < 0.15] = -1
        targets[:, 0, 0] = 0  # at least one
        self.tokens, self.targets = tokens.astype(np.int32), targets.astype(np.int32)

    def build(self):
        return GPT2LMHeadModel(self.config)

    def load(self, path):
        return GPT2LMHeadModel.from_pretrained(path)

    def save(self, path):
        self.model.save_pretrained(path)

    def gather(self, tensors):
        """What is compared as one."""
        return tensors

    def run_atom(self, program, backend, work, rate=1.0):
        source = os.path.join(work, "source")
        self.save(source)
        np.stack([self.tokens, self.targets], 1).tofile(os.path.join(work, "batches.bin"))
        subprocess.run([program, source, work, self.dtype, backend, str(self.B), str(self.T), str(self.C),
                        str(STEPS), str(self.lr * rate), str(self.decay), str(self.clip), str(self.plain)],
                       check=True)


def as_wire(tensor, dtype):
    return tensor.float().bfloat16().double() if dtype == "bf16" else tensor.double()


class Torch:
    """The same training in float64."""

    def __init__(self, job):
        self.job = job
        self.model = job.build().double()
        self.model.load_state_dict(job.model.double().state_dict())
        self.model.eval()  # the same but for dropout
        self.params = dict(self.model.named_parameters())  # the tied head is there once
        self.momentum = {}  # of what another optimizer trains
        self.master = {n: p.detach().clone().requires_grad_() for n, p in self.params.items()}
        decay = [m for m in self.master.values() if m.dim() >= 2]
        rest = [m for m in self.master.values() if m.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": job.decay}, {"params": rest, "weight_decay": 0.0}],
            lr=job.lr, betas=(0.9, 0.95), eps=1e-4)
        self.sync()

    def sync(self):
        with torch.no_grad():
            for name, p in self.params.items():
                p.copy_(as_wire(self.master[name], self.job.dtype))

    def logits(self, tokens):
        ids = torch.from_numpy(tokens.astype(np.int64)).view(self.job.B, self.job.T)
        return self.model(ids).logits

    def gradients(self, step):
        """Losses of all tokens; gradients of the mean over the step's targets are left in the model."""
        job, losses = self.job, []
        self.model.zero_grad()
        count = int((job.targets[step] >= 0).sum())
        for i in range(job.C):
            targets = torch.from_numpy(job.targets[step, i].astype(np.int64))
            targets[targets < 0] = -100
            logits = self.logits(job.tokens[step, i]).view(-1, job.config.vocab_size)
            loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
            (loss.sum() / count).backward()
            losses.append(loss.detach().numpy())
        return np.stack(losses)

    def update(self):
        for name, p in self.params.items():
            self.master[name].grad = p.grad.clone()
        norm = torch.nn.utils.clip_grad_norm_(self.master.values(), self.job.clip or math.inf)
        self.optimizer.step()
        self.sync()
        return float(norm)


def parts(job, name, x):
    """c_attn's tensors as those of q, k and v."""
    if "c_attn" in name and job.dtype == "fp32":
        return {f"{name}[{p}]": y for p, y in zip("qkv", np.split(x, 3, axis=-1))}
    return {name: x}


def compare_gradients(job, ours, written):
    grads = {n: p.grad.numpy() for n, p in ours.params.items()}
    assert set(written) == set(grads), set(written) ^ set(grads)
    grads, written = job.gather(grads), job.gather(written)
    size = math.sqrt(sum((g ** 2).sum() for g in grads.values()) / sum(g.size for g in grads.values()))
    for name, grad in grads.items():
        theirs, whole = parts(job, name, written[name]), math.sqrt((grad ** 2).sum() / grad.size)
        for part, g in parts(job, name, grad).items():
            yield "gradient", part, error(theirs[part], g, max(FLOOR[job.dtype] * size,
                                                               whole if part.endswith(KEY_BIAS) else 0))


def compare_weights(job, started, ours, written):
    """Weights after all steps, and how far they moved, less what rounding each step to fp32 may do."""
    all_away = all_moved = 0.0
    started, ours, written = job.gather(started), job.gather(ours), job.gather(written)
    for name in started:
        old, theirs = parts(job, name, started[name]), parts(job, name, written[name])
        for part, new in parts(job, name, ours[name]).items():
            if part.endswith(KEY_BIAS):
                continue
            rounding = STEPS * 2.0 ** -24 * np.linalg.norm(new)
            away = max(np.linalg.norm(theirs[part] - new) - rounding, 0.0)
            moved = np.linalg.norm(new - old[part])
            all_away, all_moved = all_away + away ** 2, all_moved + moved ** 2
            if "c_attn.bias" not in part or job.dtype == "fp32":
                yield "weights", part, error(theirs[part], new)
            if job.dtype == "fp32":
                yield "update", part, float(away / moved)
    yield "update", "all", math.sqrt(all_away / all_moved)


def compare(job, work):
    """(what, name, error) of everything."""
    def read(name, dtype):
        return np.fromfile(os.path.join(work, name), dtype)

    def tensors(name):
        return load_file(os.path.join(work, name, "model.safetensors"))

    ours = Torch(job)
    with torch.no_grad():
        yield "logits", "logits", error(read("logits.bin", np.float32), ours.logits(job.tokens[0, 0]))
    losses, norms = read("losses.bin", np.float32).reshape(job.tokens.shape), read("norms.bin", np.float64)
    started = {n: m.detach().numpy().copy() for n, m in ours.master.items()}
    for step in range(STEPS):
        yield "loss", f"step {step + 1}", error(losses[step], ours.gradients(step))
        if step == 0:
            yield from compare_gradients(job, ours, tensors("grad"))
        yield "norm", f"step {step + 1}", error(norms[step], ours.update())
    ended = {n: m.detach().numpy() for n, m in ours.master.items()}
    yield from compare_weights(job, started, ended, tensors("final"))
    saved = job.load(os.path.join(work, "final")).double().eval()
    with torch.no_grad():
        for p in saved.parameters():
            p.copy_(as_wire(p, job.dtype))
        ids = torch.from_numpy(job.tokens[0, 0].astype(np.int64)).view(job.B, job.T)
        yield "saved", "logits", error(read("final_logits.bin", np.float32), saved(ids).logits)


def main(job_class=Job):
    parser = argparse.ArgumentParser()
    parser.add_argument("oracle")
    parser.add_argument("dtype", choices=LIMITS)
    parser.add_argument("backend", choices=["ref", "cpu"])
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--canary", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    worst, failed = {}, 0
    for seed in range(args.first, args.first + args.seeds):
        job = job_class(seed, args.dtype)
        with tempfile.TemporaryDirectory() as work:
            job.run_atom(args.oracle, args.backend, work, 1.001 if args.canary else 1.0)
            for what, name, e in compare(job, work):
                if not e <= worst.get(what, (-1,))[0]:
                    worst[what] = (e, f"{name}, seed {seed}")
                if not e <= LIMITS[args.dtype][what]:
                    failed += 1
                    print(f"FAIL --first {seed} --seeds 1: {what} of {name} is off by {e:.3g}, "
                          f"more than {LIMITS[args.dtype][what]:.3g}")
    for what, (e, where) in worst.items():
        print(f"{what:9s} {e:.2e} of {LIMITS[args.dtype][what]:.0e}  ({where})")
    print(f"{args.dtype} {args.backend}: {args.seeds} models, {failed} failures")
    return (failed == 0) if args.canary else (failed != 0)


if __name__ == "__main__":
    sys.exit(main())
