#!/usr/bin/env python3
"""`atom train` from the directories that people have, as a user runs it.

  family_oracle.py ATOM [--first S] [--seeds N]     ATOM: the program

A model of each family that transformers made, with a tokenizer that the tokenizers library made, is
trained by atom on text of that tokenizer, with swapping. What it leaves must be what transformers loads:
unknown keys of config.json kept, tokenizer files byte for byte, nothing missing or extra, and greedy text
from `atom generate` equal to transformers' greedy text, up to the first near tie. The loss must fall.
fp32. Exit 77: a library is not installed.
"""
import argparse
import filecmp
import json
import os
import random
import sys
import tempfile

from gpt2_oracle import torch
import llama_oracle
from train_oracle import Atom
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

STEPS = 12
TEXT = ["the quick brown fox jumps over the lazy dog %d times" % i for i in range(400)]


def make_tokenizer(path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXT, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>")
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(path)


class Run(llama_oracle.Job):
    """A model of llama_oracle with a vocabulary for the tokenizer."""

    def __init__(self, seed):
        super().__init__(seed, "fp32")

    def build(self):
        self.config.vocab_size, self.config.initializer_range = 320, 0.05
        self.config.max_position_embeddings = max(self.config.max_position_embeddings, 64)
        if (self.config.rope_scaling or {}).get("type") == "longrope":
            self.config.original_max_position_embeddings = 64  # theirs takes other factors amid a text that grows
        if getattr(self.config, "sliding_window", None):
            self.config.sliding_window = self.sliding = 11  # below sequence_len and below the text's length
        return super().build()

    def draw_nope(self, r):
        self.config.num_hidden_layers = 5
        return 4  # llama.cpp, for which gguf_oracle writes these models, knows no other

    def rewrite(self, path):
        super().rewrite(path)
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        config["their_own_key"] = {"kept": [1, 2.5]}
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)


def check(run, atom, seed):
    r = random.Random(seed)
    source = os.path.join(atom.work, "source")
    run.save(source)
    make_tokenizer(source)
    with open(os.path.join(atom.work, "a.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": line}) + "\n" for line in TEXT)
    atom("data", "prepare", "--input", "a.jsonl", "--tokenizer", "source/tokenizer.json", "--output", "data")
    args = ["train", "--model", "source", "--data", "data", "--output-dir", "out", "--dtype", "fp32",
            "--device", "cpu", "--micro-batch-size", 2, "--gradient-accumulation-steps", r.randint(1, 3),
            "--sequence-len", 32, "--max-steps", STEPS, "--learning-rate", 5e-3, "--eval-steps", 0, "--seed",
            seed, "--json", "--quiet"]
    out, size = atom.in_least_memory(*args)
    summary = json.loads(out)
    assert summary["bytes_copied"]["h2d"] > 0 and summary["device_peak_bytes"] <= size, summary
    with open(os.path.join(atom.work, "out", "metrics.jsonl"), encoding="utf-8") as f:
        losses = [json.loads(line)["loss"] for line in f if "loss" in line]
    assert losses[-1] < losses[0] - 0.3, losses
    made = os.path.join(atom.work, "out", f"checkpoint-{STEPS}")
    with open(os.path.join(made, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    assert config["their_own_key"] == {"kept": [1, 2.5]}, config
    for name in os.listdir(source):
        if "token" in name or "template" in name:
            assert filecmp.cmp(os.path.join(source, name), os.path.join(made, name), False), name
    return compare_text(atom, run.load(made).double().eval(), made)


def compare_text(atom, model, made):
    """How many letters of greedy text are the same; all up to the first near tie."""
    tokenizer, prompt, count = AutoTokenizer.from_pretrained(made), "the quick", 24
    out = atom("generate", "--model", made, "--prompt", prompt, "--max-tokens", count, "--temperature", 0,
               "--ignore-end", "--dtype", "fp32")
    ids = tokenizer(prompt)["input_ids"]
    for _ in range(count):
        with torch.no_grad():
            best = torch.topk(model(torch.tensor([ids])).logits[0, -1, :300], 2)
        near = best.values[0] - best.values[1] < 1e-4 * (1 + abs(best.values[0]))
        if near or best.indices[0] == 0:
            break
        ids.append(int(best.indices[0]))
    text = tokenizer.decode(ids).split("\ufffd")[0]  # bytes that are no text are shown in either's way
    assert out.startswith(text), (out, text)
    return len(text) - len(prompt)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    letters = 0
    for seed in range(args.first, args.first + args.seeds):
        run = Run(seed)
        with tempfile.TemporaryDirectory() as work:
            same = check(run, Atom(args.atom, work), seed)
            print(f"seed {seed}: {run.family}, {same} letters of text", flush=True)
            letters += same
    print(f"atom train: {args.seeds} directories, {letters} letters of text")
    return letters == 0


if __name__ == "__main__":
    sys.exit(main())
