#!/usr/bin/env python3
"""atom's tokenizers against the Python library `tokenizers`.

  tokenizer_oracle.py DUMP     DUMP: the program of tokenizer_dump.c

What is compared, on random texts of all planes and on adversarial ones:
  - ids of bytes and BPE tokenizers, read from the same tokenizer.json, which atom wrote;
  - the library's own file (both forms of merges), read by atom;
  - merges that both trainers find on the same text;
  - repair of wrong UTF-8 against Python's own.
Code points without a meaning in this Python's Unicode tables are left out: newer tables in the library
may call them letters. Exit 77: the library is not installed.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
except ImportError:
    print("skipped: no Python library 'tokenizers'")
    sys.exit(77)

from tokenizer_words import ADVERSARIAL, ASSIGNED, END, random_text, write_docs  # noqa: E402

DUMP = sys.argv[1]
def dump(*args):
    done = subprocess.run([DUMP, *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"FAIL: {' '.join(map(str, args))}: {done.stderr}")
    return done.stdout.split("\n")[:-1]


def compare(name, path, docs, texts):
    library = Tokenizer.from_file(path)
    ordinary = hasattr(Tokenizer, "encode_special_tokens")  # from version 0.20
    if ordinary:
        library.encode_special_tokens = True  # documents are ordinary text
    ours = dump("encode", path, docs)
    if len(ours) != len(texts):
        sys.exit(f"FAIL: {name}: {len(ours)} lines for {len(texts)} texts")
    for text, line in zip(texts, ours):
        if END in text and not ordinary:
            continue
        ids = [int(x) for x in line.split()]
        want = library.encode(text).ids
        if ids != want:
            sys.exit(f"FAIL: {name}: {text[:80]!r}: atom {ids[:20]}, library {want[:20]}")
        if library.decode(ids) != text:
            sys.exit(f"FAIL: {name}: the library decodes {text[:80]!r} differently")
    if library.token_to_id(END) != library.get_vocab_size() - 1 and "library" not in name:
        sys.exit(f"FAIL: {name}: {END} is not the last id")
    print(f"{name}: {len(texts)} texts, vocabulary {library.get_vocab_size()}: same ids")


def train_library(texts, vocab):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    from tokenizers import decoders
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def merges_of(path):
    merges = json.load(open(path))["model"]["merges"]
    return [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in merges]


def same_trainers(r, work):
    compared = 0
    for i in range(12):
        texts = [random_text(r) for _ in range(300)]
        vocab = r.choice([257, 300, 500, 700])
        docs, path = os.path.join(work, "t.docs"), os.path.join(work, "t.json")
        write_docs(docs, texts)
        dump("train", vocab, docs, path)
        lib = os.path.join(work, "lib.json")
        train_library(texts, vocab).save(lib)
        a, b = merges_of(path), merges_of(lib)
        if a != b:
            at = next(k for k in range(max(len(a), len(b))) if a[k:k + 1] != b[k:k + 1])
            sys.exit(f"FAIL: training {i}: merge {at}: atom {a[at:at + 1]}, library {b[at:at + 1]}")
        compared += len(a)
    print(f"training: {compared} merges equal")


def both_forms(r, work, docs, texts):
    """Files the library wrote, with merges as lists and as strings."""
    lib = os.path.join(work, "library.json")
    train_library([random_text(r) for _ in range(300)], 600).save(lib)
    compare("library's file", lib, docs, texts)
    tree = json.load(open(lib))
    tree["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in tree["model"]["merges"]]
    legacy = os.path.join(work, "legacy.json")
    json.dump(tree, open(legacy, "w"))
    compare("library's file, old merges", legacy, docs, texts)
    again = os.path.join(work, "again.json")
    dump("resave", legacy, again)
    compare("library's file, saved again", again, docs, texts)


def same_repair(r, work):
    texts = []
    for _ in range(3000):
        data = bytearray("".join(chr(r.choice(ASSIGNED)) for _ in range(r.randrange(1, 12))).encode())
        for _ in range(r.randrange(1, 4)):
            where = r.randrange(len(data))
            data[where:where + r.randrange(2)] = bytes([r.randrange(256)] * r.randrange(2))
            if not data:
                data = bytearray(b"\xff")
        texts.append(bytes(data))
    docs = os.path.join(work, "bad.docs")
    write_docs(docs, texts)
    for text, line in zip(texts, dump("repair", docs)):
        want = text.decode(errors="replace").encode().hex()
        if line != want:
            sys.exit(f"FAIL: repair of {text!r}: atom {line}, Python {want}")
    print(f"repair: {len(texts)} texts equal")


def main():
    r = random.Random(int(os.environ.get("SEED", "1")))
    texts = ADVERSARIAL + [random_text(r) for _ in range(3000)]
    with tempfile.TemporaryDirectory() as work:
        docs = os.path.join(work, "docs")
        write_docs(docs, texts)
        path = os.path.join(work, "bytes.json")
        dump("bytes", path)
        compare("bytes", path, docs, texts)
        corpus = os.path.join(work, "corpus.docs")
        for vocab in (257, 400, 2000):
            write_docs(corpus, [random_text(r) for _ in range(1500)])
            path = os.path.join(work, f"bpe{vocab}.json")
            dump("train", vocab, corpus, path)
            compare(f"bpe:{vocab}", path, docs, texts)
        both_forms(r, work, docs, texts)
        same_trainers(r, work)
        same_repair(r, work)


main()
