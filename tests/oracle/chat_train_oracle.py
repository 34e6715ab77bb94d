#!/usr/bin/env python3
"""Fine-tuning on chats from a directory that transformers made, as a user runs it.

  chat_train_oracle.py ATOM [--seeds N]     ATOM: the program

A small Llama of transformers with a chatml tokenizer, and chats in JSONL, packed with gzip: `atom data
prepare` finds the template, `atom train --preset sft` trains with swapping on the answers. Their loss must
fall, the tokenizer with its template must travel along byte for byte, and greedy text from `atom generate`
must be transformers' greedy text from the directory that atom left. fp32. Exit 77: a library is not
installed.
"""
import argparse
import filecmp
import gzip
import json
import os
import struct
import sys
import tempfile

import family_oracle as family
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from train_oracle import Atom
from transformers import PreTrainedTokenizerFast

STEPS, LENGTH = 20, 32
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
          "{% endfor %}")


def make_tokenizer(path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.train_from_iterator(family.TEXT, trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>")
    fast.chat_template = CHATML
    fast.save_pretrained(path)


def write_chats(path):
    with gzip.open(path, "wt", encoding="utf-8") as f:
        for i, line in enumerate(family.TEXT):
            f.write(json.dumps({"messages": [{"role": "user", "content": f"tell number {i}"},
                                             {"role": "assistant", "content": line}]}) + "\n")


def compare_loss(atom, model, made):
    """Loss on the answers of the validation data: the mean over what the mask leaves, in float64."""
    with open(os.path.join(atom.work, "data", "val_000000.bin"), "rb") as f:
        data = f.read()
    with open(os.path.join(atom.work, "data", "val_000000.mask"), "rb") as f:
        bits = f.read()[32:]
    n = struct.unpack_from("<i", data, 8)[0]
    ids = struct.unpack_from(f"<{n}H", data, 1024)
    labels = [ids[i] if bits[i // 8] >> i % 8 & 1 else -100 for i in range(n)]
    total = count = 0
    for first in range(0, (n - 1) // LENGTH * LENGTH, LENGTH):
        want = family.torch.tensor(labels[first + 1:first + LENGTH + 1])
        with family.torch.no_grad():
            logits = model(family.torch.tensor([ids[first:first + LENGTH]])).logits[0]
        total += float(family.torch.nn.functional.cross_entropy(logits, want, ignore_index=-100, reduction="sum"))
        count += int((want >= 0).sum())
    told = json.loads(atom("eval", "--model", made, "--data", "data", "--sequence-len", LENGTH, "--dtype", "fp32",
                           "--packing", "across", "--json"))  # by itself it keeps chats apart, as training did
    assert told["tokens"] == count, (told, count)
    assert abs(told["loss"] - total / count) <= 1e-5 * told["loss"], (told, total / count)


def check(run, atom, seed):
    source = os.path.join(atom.work, "source")
    run.save(source)
    make_tokenizer(source)
    write_chats(os.path.join(atom.work, "chats.jsonl.gz"))
    told = json.loads(atom("data", "prepare", "--input", "chats.jsonl.gz", "--tokenizer", "source/tokenizer.json",
                           "--output", "data", "--json"))
    assert told["template"] == "own" and told["chats"] == len(family.TEXT), told
    assert 0 < told["targets"] < told["train"]["tokens"] + told["val"]["tokens"], told
    args = ["train", "--model", "source", "--data", "data", "--output-dir", "out", "--dtype", "fp32", "--device",
            "cpu", "--preset", "sft", "--learning-rate", 5e-3, "--micro-batch-size", 2,
            "--gradient-accumulation-steps", 2, "--sequence-len", LENGTH, "--max-steps", STEPS, "--eval-steps", 0,
            "--seed", seed, "--json", "--quiet"]
    out, size = atom.in_least_memory(*args)
    summary = json.loads(out)
    assert summary["bytes_copied"]["h2d"] > 0 and summary["device_peak_bytes"] <= size, summary
    with open(os.path.join(atom.work, "out", "metrics.jsonl"), encoding="utf-8") as f:
        losses = [json.loads(line)["loss"] for line in f if "loss" in line]
    assert losses[-1] < losses[0] - 0.5, losses
    made = os.path.join(atom.work, "out", f"checkpoint-{STEPS}")
    for name in os.listdir(source):
        if "token" in name or "template" in name:
            assert filecmp.cmp(os.path.join(source, name), os.path.join(made, name), False), name
    compare_loss(atom, run.load(made).double().eval(), made)
    return family.compare_text(atom, run.load(made).double().eval(), made), losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    family.torch.set_num_threads(1)
    letters = done = seed = 0
    while done < args.seeds:
        seed += 1
        run = family.Run(seed)
        if run.family != "llama":
            continue
        with tempfile.TemporaryDirectory() as work:
            same, losses = check(run, Atom(args.atom, work), seed)
        print(f"seed {seed}: loss {losses[0]:.2f} to {losses[-1]:.2f}, {same} letters of text", flush=True)
        letters += same
        done += 1
    print(f"atom train on chats: {done} directories, {letters} letters of text")
    return letters == 0


if __name__ == "__main__":
    sys.exit(main())
