#!/usr/bin/env python3
"""`atom eval --choices` against transformers in float64, as a user runs it.

  choices_oracle.py ATOM [--first S] [--seeds N] [--canary]     ATOM: the program
  --canary    our scores forget each answer's last token; succeeds if that is noticed

A random model of each family that transformers made, with a tokenizer that the tokenizers library made, is asked
random questions, some too long for it, some without a context; half of the runs swap. Scores are sums of float64
log-probabilities of each row by itself, and the right answers are those that they pick: so acc must be 1 on one file and
acc_norm 1 on another. Questions whose two best scores are close are left out. Tokens and cut contexts must be as counted
here. fp32. Exit 77: a library is not installed.
"""
import argparse
import json
import os
import random
import sys
import tempfile

from family_oracle import TEXT, AutoTokenizer, Atom, Run, make_tokenizer, torch

QUESTIONS, NEAR = 60, 1e-3
WORDS = sorted({w for line in TEXT for w in line.split()}) + ["caf\u00e9", "na\u00efve", "\u00fcber", "\U0001f600"]


class Row:
    """Tokens of a context and an answer that a model of T positions sees."""

    def __init__(self, context, answer, T):
        cut = max(0, len(context) + len(answer) - 1 - T)
        self.ids, self.n, self.cut = (context + answer)[cut:], len(answer), cut > 0

    def score(self, model, canary):
        with torch.no_grad():
            logits = model(torch.tensor([self.ids[:-1]])).logits[0]
        each = torch.log_softmax(logits, -1).gather(1, torch.tensor(self.ids[1:])[:, None])[-self.n:, 0]
        return float((each[:-1] if canary and self.n > 1 else each).sum())


def questions(seed):
    r = random.Random(seed)
    for i in range(QUESTIONS):
        context = " ".join(r.choices(WORDS, k=0 if i % 10 == 0 else r.randint(1, 90 if i % 10 == 1 else 12)))
        yield context, [" " * r.randint(0, 1) + " ".join(r.choices(WORDS, k=r.randint(1, 6))) for _ in range(r.randint(2, 6))]


def first_of_best(scores):
    """The place of the largest; None where another one is near."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    gap = scores[order[0]] - scores[order[1]]
    return None if gap < NEAR * abs(scores[order[0]]) else order[0]


class Asked:
    """A file of questions whose answers float64 knows, and what atom must say of it."""

    def __init__(self, path):
        self.path, self.n, self.cut, self.tokens = path, 0, 0, 0
        self.lines = []

    def add(self, context, answers, right, rows):
        if right is None:
            return
        self.lines.append(json.dumps({"question": context, "choices": answers, "answer": right}, ensure_ascii=self.n % 2 == 0))
        self.n += 1
        self.cut += any(row.cut for row in rows)
        self.tokens += sum(len(row.ids) - 1 for row in rows)

    def save(self):
        with open(self.path, "w", encoding="utf-8") as f:
            f.write("".join(line + "\n" for line in self.lines))


def check(run, atom, seed, canary):
    source = os.path.join(atom.work, "source")
    run.save(source)
    make_tokenizer(source)
    tokenizer, model, T = AutoTokenizer.from_pretrained(source), run.model.double().eval(), run.config.max_position_embeddings
    files = {key: Asked(os.path.join(atom.work, key + ".jsonl")) for key in ("acc", "acc_norm")}
    for context, answers in questions(seed):
        ids = tokenizer(context)["input_ids"] or [tokenizer.bos_token_id]
        rows = [Row(ids, tokenizer(a if a.startswith(" ") else " " + a)["input_ids"], T) for a in answers]
        scores = [row.score(model, canary) for row in rows]
        files["acc"].add(context, answers, first_of_best(scores), rows)
        files["acc_norm"].add(context, answers, first_of_best([s / len(a) for s, a in zip(scores, answers)]), rows)
    wrong = 0
    for key, file in files.items():
        file.save()
        assert file.n > QUESTIONS / 2 and file.cut > 0, (file.n, file.cut)
        args = ["eval", "--model", "source", "--choices", file.path, "--dtype", "fp32", "--device", "cpu", "--json",
                "--micro-batch-size", 1 + seed % 3]
        out = atom.in_least_memory(*args)[0] if seed % 2 else atom(*args)
        told = json.loads(out)
        assert (told["questions"], told["cut_contexts"], told["tokens"]) == (file.n, file.cut, file.tokens), (told, vars(file))
        wrong += told[key] != 1
    return wrong, sum(file.n for file in files.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("atom")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--canary", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    failed = asked = 0
    for seed in range(args.first, args.first + args.seeds):
        run = Run(seed)
        with tempfile.TemporaryDirectory() as work:
            wrong, n = check(run, Atom(args.atom, work), seed, args.canary)
        failed, asked = failed + wrong, asked + n
        if wrong and not args.canary:
            print(f"FAIL --first {seed} --seeds 1: {run.family}: {wrong} of acc and acc_norm are not 1")
    print(f"atom eval --choices: {args.seeds} models, {asked} questions, {failed} failures")
    return (failed == 0) if args.canary else failed != 0


if __name__ == "__main__":
    sys.exit(main())
