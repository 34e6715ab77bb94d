#!/usr/bin/env python3
"""Tokens of tokenizer.json that take white space, looked for in texts, against the Python library `tokenizers`.

  special_oracle.py DUMP [--texts N] [--seed N]     DUMP: the program of tokenizer_dump.c

The tokenizers of foreign_oracle.py get special and ordinary added tokens with lstrip, rstrip, both and neither, and special
ones with normalized where nothing is normalised. Texts with all kinds of white space around them, and beginnings of
them, become ids with the special tokens as tokens (--special-tokens ids) and as text; both must be the library's.
What atom does not do (single_word, normalized under a normalizer) must be refused by name. Exit 77: no library.
"""
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import foreign_oracle as foreign  # noqa: E402; exits with 77 without the library
import tokenizer_words as words  # noqa: E402
import unigram_words  # noqa: E402
from tokenizers import AddedToken  # noqa: E402

TEXTS = int(foreign.ARGS[foreign.ARGS.index("--texts") + 1]) if "--texts" in foreign.ARGS else 1500
PLAIN = ["llama3", "smollm", "tekken", "deepseek llm", "llama2 always", "llama2 first", "llama2 never"]  # nothing is normalised
KINDS = PLAIN + ["qwen2", "gpt2+nfc", "llama2", "unigram t5", "unigram xlmr", "unigram spm"]
SPACES = [chr(c) for c in words.SPACES + list(range(0x1c, 0x20)) + list(range(0x2000, 0x200c))]
FLAGS = [{}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}]


def build(name, r):
    t = unigram_words.build(name, r) if name in unigram_words.KINDS else foreign.build(name, r)
    for k, flags in enumerate(FLAGS):
        t.add_special_tokens([AddedToken(f"<|s{k}|>", normalized=False, **flags)])
        t.add_tokens([AddedToken(f"<o{k}>", normalized=False, **flags)])
        if name in PLAIN:
            t.add_special_tokens([AddedToken(x, normalized=True, **flags) for x in (f"<|n{k}|>", f"<|s{k}|><", f"<<|s{k}")])
        if name in PLAIN and not name.startswith("llama2"):
            t.add_tokens([AddedToken(f"<p{k}>", normalized=True, **flags)])
    return t


def text(r, names):
    kinds = [lambda: r.choice(names), lambda: r.choice(names), lambda: r.choice(SPACES) * r.randrange(1, 3), lambda: r.choice(" \n"),
             lambda: r.choice(["a", "é", "e\u0301", "\u0301", "the", "1", "<", "▁", "\u4e2d", "|>"]),
             lambda: r.choice(names)[:r.randrange(1, 6)]]
    return "".join(r.choice(kinds)() for _ in range(r.randrange(0, 14)))


def ids(verb, path, docs, texts):
    words.write_docs(docs, texts)
    return [[int(x) for x in line.split()] for line in foreign.dump(verb, path, docs)]


def check(name, r, work):
    t, path, docs = build(name, r), os.path.join(work, "tokenizer.json"), os.path.join(work, "docs")
    t.save(path)
    names = [a.content for a in t.get_added_tokens_decoder().values()]
    texts = [text(r, names) for _ in range(TEXTS)]
    library = unigram_words.as_text(t) if name in unigram_words.KINDS else t
    for verb, by, as_text in (("special", t, False), ("ids", library, True)):
        by.encode_special_tokens = as_text
        got = ids(verb, path, docs, texts)
        if len(got) != len(texts):
            sys.exit(f"FAIL: {name}: {len(got)} lines for {len(texts)} texts")
        for one, ours in zip(texts, got):
            want = by.encode(one, add_special_tokens=False).ids
            if ours != want:
                sys.exit(f"FAIL: {name}, {verb}: {one!r}: atom {[t.id_to_token(i) for i in ours]}, library "
                         f"{[t.id_to_token(i) for i in want]}")


def refused(name, token, one, what, r, work):
    """A text with this special token has no ids, and the message says why; as text it has some."""
    t, path, docs = foreign.build(name, r), os.path.join(work, "tokenizer.json"), os.path.join(work, "docs")
    t.add_special_tokens([token])
    t.save(path)
    words.write_docs(docs, [one])
    done = subprocess.run([foreign.DUMP, "special", path, docs], capture_output=True, text=True)
    if done.returncode != 3 or what not in done.stderr or token.content not in done.stderr:
        sys.exit(f"FAIL: {name} with {token}: {done.returncode} {done.stderr}")
    foreign.dump("ids", path, docs)


def main():
    r = random.Random(foreign.SEED)
    with tempfile.TemporaryDirectory() as work:
        for name in KINDS:
            check(name, r, work)
        refused("llama3", AddedToken("<|w|>", single_word=True, normalized=False), "a <|w|> b", "single_word", r, work)
        refused("llama2", AddedToken("<|w|>", normalized=True), "a <|w|> b", "normalized", r, work)
        refused("qwen2", AddedToken("<|w|>", normalized=True), "a <|w|>\u0338 b", "normalized", r, work)
    print(f"{TEXTS * len(KINDS)} texts under {len(KINDS)} tokenizers: the same ids with special tokens and without")


main()
