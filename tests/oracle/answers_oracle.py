#!/usr/bin/env python3
"""What `atom train` learns of chats whose sequences have different numbers of counted tokens, against PyTorch in float64.

  answers_oracle.py ATOM [--first S] [--seeds N] [--canary]     ATOM: the program
  --canary    the mean that is expected is one of micro-batches' means; succeeds if that is noticed

A small GPT-2 or Llama is trained on the answers of random chats, written one after the other or packed and padded, kept
apart or not. Many sequences have no answer at all. Each step sees all sequences, in micro-batches of one, of all, or of some of
them: losses, gradient norms and trained weights must be those of the mean over all counted tokens of a step, whatever the
micro-batches. So must the validation loss be, of training and of `atom eval`, with the last, shorter micro-batch. Chats that
are kept apart are evaluated one by one here. fp32. Exit 77: torch or transformers is not installed.
"""
import argparse
import json
import os
import random
import sys
import tempfile

from gpt2_oracle import KEY_BIAS, error, load_file, np, parts, torch, GPT2Config, GPT2LMHeadModel
from train_oracle import Atom
from transformers import LlamaConfig, LlamaForCausalLM

STEPS, VOCABULARY = 5, 257
LIMITS = {"loss": 1e-6, "norm": 1e-5, "validation": 1e-6, "eval": 1e-6, "weights": 1e-4}
cross_entropy = torch.nn.functional.cross_entropy


class Split:
    """The sequences of a split: tokens, labels (-100: does not count), where documents begin."""

    def __init__(self, path, split, length):
        def read(end):
            with open(os.path.join(path, f"{split}_000000.{end}"), "rb") as f:
                return f.read()

        tokens = np.frombuffer(read("bin")[1024:], "<u2").astype(np.int64)
        bits = [np.unpackbits(np.frombuffer(read(end)[32:], np.uint8), bitorder="little")[:len(tokens)] for end in ("mask", "begins")]
        labels = np.where(bits[0], tokens, -100)
        self.windows = [(tokens[at:at + length], labels[at + 1:at + length + 1], bits[1][at:at + length])
                        for at in range(0, (len(tokens) - 1) // length * length, length)]
        self.counts = [int((labels >= 0).sum()) for _, labels, _ in self.windows]

    def losses(self, model, apart):
        """The sum of each sequence that has counted tokens, and their number."""
        for (tokens, labels, begins), count in zip(self.windows, self.counts):
            cuts = [0, *(i for i in range(1, len(tokens)) if apart and begins[i]), len(tokens)]
            if count:
                yield count, sum(cross_entropy(model(torch.from_numpy(tokens[a:b][None])).logits[0],
                                               torch.from_numpy(labels[a:b].copy()), ignore_index=-100, reduction="sum")
                                 for a, b in zip(cuts, cuts[1:]))

    def mean(self, model, apart):
        with torch.no_grad():
            return sum(float(loss) for _, loss in self.losses(model, apart)) / sum(self.counts)


class Run:
    dtype = "fp32"  # as gpt2_oracle.parts asks

    def __init__(self, seed):
        self.r, self.seed = random.Random(seed), seed
        torch.manual_seed(seed)
        r = self.r
        self.length, self.packed, self.apart = r.choice([63, 90, 120]), r.random() < 0.5, r.random() < 0.6
        self.decay, self.clip = r.choice([(0.0, 0.3), (0.1, 0.3), (0.1, 1.0)])
        if seed % 2:
            config = GPT2Config(vocab_size=VOCABULARY, n_positions=128, n_embd=24, n_layer=2, n_head=2, initializer_range=0.1,
                                bos_token_id=256, eos_token_id=256)
            self.model = GPT2LMHeadModel(config)
        else:
            config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                                 num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128,
                                 initializer_range=0.1, bos_token_id=256, eos_token_id=256, attn_implementation="eager")
            self.model = LlamaForCausalLM(config)

    def write_chats(self, path):
        def words(lengths):
            return "".join(self.r.choice("abcdefgh ") for _ in range(self.r.choice(lengths)))

        with open(path, "w", encoding="ascii") as f:
            for _ in range(24):
                messages = []
                for _ in range(self.r.randint(1, 2)):
                    messages += [{"role": "user", "content": words([3, 9, 60, 130])},
                                 {"role": "assistant", "content": words([1, 4, 25])}]
                f.write(json.dumps({"messages": messages}) + "\n")

    def prepare(self, atom):
        self.model.save_pretrained(os.path.join(atom.work, "source"))
        self.model = self.model.double().eval()
        self.write_chats(os.path.join(atom.work, "chats.jsonl"))
        atom("data", "prepare", "--input", "chats.jsonl", "--tokenizer", "bytes", "--template", "plain", "--output", "data",
             "--val-fraction", 0.1, *(["--sequence-len", self.length] if self.packed else []))
        data = os.path.join(atom.work, "data")
        self.train, self.val = (Split(data, split, self.length) for split in ("train", "val"))
        assert min(self.train.counts) < max(self.train.counts), self.train.counts

    def steps(self, canary):
        """(loss, norm) of each step; the model is trained."""
        params = list(self.model.parameters())
        optimizer = torch.optim.AdamW(
            [{"params": [p for p in params if p.ndim > 1], "weight_decay": self.decay},
             {"params": [p for p in params if p.ndim < 2], "weight_decay": 0}], lr=3e-3, betas=(0.9, 0.999), eps=1e-5)
        counted = sum(count > 0 for count in self.train.counts)
        for _ in range(STEPS):
            optimizer.zero_grad()
            whole = 0
            for count, loss in self.train.losses(self.model, self.apart):
                share = loss / (count * counted if canary else sum(self.train.counts))
                share.backward()
                whole += share.item()
            norm = torch.nn.utils.clip_grad_norm_(params, self.clip)
            yield whole, norm.item()
            optimizer.step()

    def splits(self):
        """(B, C): one by one, all at once, and something between if there is."""
        n = len(self.train.windows)
        return [(1, n), (n, 1)] + [(b, n // b) for b in range(2, n) if n % b == 0][:1]


def compare(run, atom, canary):
    run.prepare(atom)
    steps = list(run.steps(canary))
    validation = run.val.mean(run.model, run.apart)
    for i, (B, C) in enumerate(run.splits()):
        where, out = f"{B} x {C}", f"out{i}"
        atom("train", "--model", "source", "--data", "data", "--output-dir", out, "--dtype", "fp32", "--device", "cpu", "--preset", "sft",
             "--packing", "apart" if run.apart else "across", "--execute", "interpreted", "--micro-batch-size", B,
             "--gradient-accumulation-steps", C, "--sequence-len", run.length, "--max-steps", STEPS, "--learning-rate", 3e-3,
             "--lr-scheduler", "constant", "--warmup-steps", 0, "--weight-decay", run.decay, "--adam-epsilon", 1e-5,
             "--max-grad-norm", run.clip, "--dropout", 0, "--eval-steps", STEPS, "--eval-batches", 1000, "--seed", run.seed, "--quiet")
        with open(os.path.join(atom.work, out, "metrics.jsonl"), encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        assert len(lines) == STEPS + 1, lines
        for line in lines:
            if line.get("split") == "val":
                assert line["tokens"] == sum(run.val.counts), (line, run.val.counts)
                yield "validation", where, error([line["loss"]], [validation])
                continue
            loss, norm = steps[line["step"] - 1]
            yield "loss", f"{where}, step {line['step']}", error([line["loss"]], [loss])
            yield "norm", f"{where}, step {line['step']}", error([line["grad_norm"]], [norm])
        made = f"{out}/checkpoint-{STEPS}"
        told = json.loads(atom("eval", "--model", made, "--data", "data", "--sequence-len", run.length, "--micro-batch-size",
                               run.r.choice([1, 2, 5, 64]), "--dtype", "fp32", "--json"))
        assert told["tokens"] == sum(run.val.counts), (told, run.val.counts)
        yield "eval", where, error([told["loss"]], [validation])
        final = load_file(os.path.join(atom.work, made, "model.safetensors"))
        for name, p in run.model.named_parameters():
            theirs = parts(run, name, final[name])
            for part, new in parts(run, name, p.detach().numpy()).items():
                if not part.endswith(KEY_BIAS):
                    yield "weights", f"{where}, {part}", error(theirs[part], new)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--canary", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    worst, failed = {}, 0
    for seed in range(args.first, args.first + args.seeds):
        with tempfile.TemporaryDirectory() as work:
            for what, name, e in compare(Run(seed), Atom(args.atom, work), args.canary):
                if not e <= worst.get(what, (-1,))[0]:
                    worst[what] = (e, f"{name}, seed {seed}")
                if not e <= LIMITS[what]:
                    failed += 1
                    if not args.canary:
                        print(f"FAIL --first {seed} --seeds 1: {what} of {name} is off by {e:.3g}, more than {LIMITS[what]:.3g}")
    for what, (e, where) in worst.items():
        print(f"{what:10s} {e:.2e} of {LIMITS[what]:.0e}  ({where})")
    print(f"answers: {args.seeds} models, {failed} failures")
    return (failed == 0) if args.canary else failed != 0


if __name__ == "__main__":
    sys.exit(main())
