#!/usr/bin/env python3
"""atom's reading of other people's tokenizers against the Python library `tokenizers`.

  foreign_oracle.py DUMP [--seconds N] [--texts N] [--seed N] [--only NAME,...]     DUMP: the program of tokenizer_dump.c

Tokenizers with the pipelines of Llama-3, cl100k, Qwen2, SmolLM, tekken, o200k, DeepSeek, Llama-2 (three forms), T5, XLM-R and other Unigram
models are trained
here on generated text, with added tokens of every kind that atom takes. Random Unicode texts and edge
cases are then encoded by both, in rounds until the time is over and each kind had N texts; ids and decoded texts must be equal.
Special tokens in a text are text. Code points without a meaning in this Python's Unicode tables are left
out, and those that the library's older tables normalise otherwise (Unicode 13 and later). Exit 77: the library is not installed.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import time

sys.argv, ARGS = sys.argv[:1] + sys.argv[1:2], sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import split_words
    import tokenizer_words as words
    import unigram_words
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from tokenizers import processors, trainers
except ImportError:
    print("skipped: no Python library 'tokenizers'")
    sys.exit(77)

DUMP = sys.argv[1]
SECONDS = float(ARGS[ARGS.index("--seconds") + 1]) if "--seconds" in ARGS else 10
SEED = int(ARGS[ARGS.index("--seed") + 1]) if "--seed" in ARGS else 1
TEXTS = int(ARGS[ARGS.index("--texts") + 1]) if "--texts" in ARGS else 1
ONLY = ARGS[ARGS.index("--only") + 1] if "--only" in ARGS else ""
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LEAD = r"[^\r\n\p{L}\p{N}]?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LLAMA3 = SHORT + "|" + LEAD + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
          r"\s*[\r\n]|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = (SHORT + "|" + LEAD + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + TAIL)
O200K = "|".join([LEAD + UPPER + "*" + LOWER + "+" + SHORT + "?", LEAD + UPPER + "+" + LOWER + "*" + SHORT + "?",
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", TAIL])
TEKKEN = "|".join([LEAD + UPPER + "*" + LOWER + "+", LEAD + UPPER + "+" + LOWER + "*", r"\p{N}",
                   r" ?[^\s\p{L}\p{N}]+[\r\n/]*", TAIL])
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]
EDGES = words.ADVERSARIAL + SPECIAL + [
    "a<|im_start|>user\nhi<|im_end|>\n", "<tool_call>x</tool_call>", "<tool_call><tool_call>", "<tool", "x<tool_calls>",
    "<|im_<tool_call>start|>", "\u2581", "\u2581a \u2581", "▁▁▁", " a", "  a", "a ", "a  b", "\n a", "<0x41>", "<unk>",
    "<s>", "</s>a</s>", "e\u0301", "\u0344", "\u212b", "\uac00\u11a8", "\u1100\u1161", "\u0958", "\ufb1d", "\u2126",
    "\u0f73", "a\u0301\u0323", "caf\u00e9 caf" + "e\u0301", "e\u0301<tool_call>e\u0301", "\u00e9\u0301", "Å\u030a",
    "1234567 ١٢٣٤ ½ Ⅷ ² ৪৫", "12a34", " 1 2", "x/\n/y", "!\n/", "?/\r\n//a", "HELLOworld's CamelCaseWords'LL",
    "\u01c5abc", "ſ'ſ", "'\u017f", "\U00020000\U0002f800", "한국어 텍스트", "तमिल தமிழ்", "a" * 60, "\u00e9" * 60,
    "hello" * 40, "the " * 40, "<tool_call>" * 20, *unigram_words.EDGES, *split_words.EDGES, "normal é token", "normal e\u0301 token", " \u3000 ", "\t\t\tx",
]


def same_tables():
    """The code points that the library and Python normalise alike, alone and beside marks."""
    import unicodedata
    bare, lower = normalizers.StripAccents().normalize_str, normalizers.Lowercase().normalize_str
    nfc, nfkc, new = normalizers.NFC().normalize_str, normalizers.NFKC().normalize_str, set()
    for c in words.ASSIGNED:
        x = chr(c)
        probes = [x]
        if unicodedata.combining(x):
            probes += ["a\u0345" + x, "a" + x + "\u0334"]
        marks = (unicodedata.category(x)[0] == "M") == bool(bare(x)) or lower(x) != x.lower()
        if any(nfc(p) != unicodedata.normalize("NFC", p) for p in probes) or nfkc(x) != unicodedata.normalize("NFKC", x) or marks:
            new.add(c)
        parts = unicodedata.normalize("NFD", x)
        if len(parts) > 1 and nfc(parts) != unicodedata.normalize("NFC", parts):
            new.update(map(ord, parts + x))
    return [c for c in words.ASSIGNED if c not in new]


words.ASSIGNED = same_tables()


def byte_level(pattern, nfc=False, digits=False, ignore_merges=False, bos=None):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    steps = []
    if digits:
        steps.append(pre_tokenizers.Digits(individual_digits=digits == "each"))
    if pattern:
        steps.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not pattern))
    t.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if nfc:
        t.normalizer = normalizers.NFC()
    t.decoder = decoders.ByteLevel()
    return t, pre_tokenizers.ByteLevel.alphabet(), bos


def split_steps(steps):
    """Byte-level BPE behind several pre-tokenizers (split_words.KINDS)."""
    made = [pre_tokenizers.Split(Regex(x), "isolated") if isinstance(x, str) else pre_tokenizers.Digits(individual_digits=x)
            for x in steps if x is not None]
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([])
    t.pre_tokenizer = pre_tokenizers.Sequence(made + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=None in steps)])
    t.decoder = decoders.ByteLevel()
    return t, pre_tokenizers.ByteLevel.alphabet(), None


def metaspace(form):
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always" if form == "normalizer" else form)
    return t, [], "<s>"


def finish_metaspace(t, form, split):
    """Byte tokens into the vocabulary, and the pipeline as people ship it."""
    tree = json.loads(t.to_str())
    vocab = sorted(tree["model"]["vocab"], key=tree["model"]["vocab"].get)
    vocab = vocab[:3] + BYTES + [v for v in vocab[3:] if v not in BYTES]
    tree["model"]["vocab"] = {v: i for i, v in enumerate(vocab)}
    t = Tokenizer.from_str(json.dumps(tree))
    if form == "gemma":  # splits at spaces, of which its normalizer leaves none
        t.normalizer = normalizers.Replace(" ", "▁")
        t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif form == "normalizer":
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tree = json.loads(t.to_str())
        tree["pre_tokenizer"] = None
        t = Tokenizer.from_str(json.dumps(tree))
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=form, split=split)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] +
                                  ([decoders.Strip(" ", 1, 0)] if form not in ("never", "gemma") else []))
    return t


def build(name, r):
    """A trained tokenizer of the kind, with specials and, for some, ordinary added tokens."""
    kinds = {
        "llama3": lambda: byte_level(LLAMA3, ignore_merges=True, bos="<|begin_of_text|>"),
        "cl100k": lambda: byte_level(CL100K),
        "qwen2": lambda: byte_level(QWEN2, nfc=True),
        "qwen35": lambda: byte_level(QWEN35, nfc=True),
        "smollm": lambda: byte_level(None, digits="each"),
        "digits": lambda: byte_level(None, digits="runs"),
        "o200k": lambda: byte_level(O200K),
        "tekken": lambda: byte_level(TEKKEN, ignore_merges=True, bos="<s>"),
        "gpt2+nfc": lambda: byte_level(None, nfc=True),
        "llama2": lambda: metaspace("normalizer"),
        "llama2 first": lambda: metaspace("first"),
        "llama2 first nosplit": lambda: metaspace("first"),
        "llama2 always": lambda: metaspace("always"),
        "llama2 never": lambda: metaspace("never"),
        "gemma": lambda: metaspace("never"),
        **{kind: lambda kind=kind: split_steps(split_words.KINDS[kind]) for kind in split_words.KINDS},
    }
    t, alphabet, bos = kinds[name]()
    meta = name.startswith("llama2") or name == "gemma"
    special = ["<unk>", "<s>", "</s>"] if meta or bos == "<s>" else SPECIAL
    if name.startswith("deepseek"):
        special = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
    texts = [words.random_text(r) for _ in range(1200)]
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=1800, special_tokens=special, show_progress=False,
                                                     initial_alphabet=alphabet, limit_alphabet=300))
    if meta:
        form = name.split()[1] if " " in name else "gemma" if name == "gemma" else "normalizer"
        t = finish_metaspace(t, form, "nosplit" not in name)
    if bos:
        t.post_processor = processors.TemplateProcessing(single=[bos, "$A"], special_tokens=[(bos, t.token_to_id(bos))])
    if name in ("qwen2", "llama2", "llama2 first"):
        t.add_tokens([AddedToken(x, normalized=False) for x in ("<tool_call>", "</tool_call>", "<tool", "tool_")])
    if name == "gemma":
        t.add_tokens([AddedToken(x, normalized=False) for x in ("\n\n", "\n\n\n", "▁▁", "<table>", "<start_of_turn>")])
    if name in ("qwen2", "smollm"):
        t.add_tokens([AddedToken(x, normalized=True) for x in ("normal é token", "<|im_", "zz")])
    if name == "qwen2":
        t.add_special_tokens(["<|im_start|>", "zzz"])
    return t


def dump(verb, path, docs):
    done = subprocess.run([DUMP, verb, path, docs], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"FAIL: {verb} {path}: {done.stderr}")
    return done.stdout.split("\n")[:-1]


def random_text(r):
    kind = r.randrange(4)
    if kind == 0:
        pool = r.sample(words.ASSIGNED, 12) + [0x20, 0x301, 0x323, 0x65, 0x1100, 0x1161, 0x11a8]
        return "".join(chr(r.choice(pool)) for _ in range(r.randrange(1, 40)))
    if kind == 1:
        return "".join(r.choice(EDGES[-60:]) for _ in range(r.randrange(1, 4)))[:400]
    if kind == 2:
        return "".join(r.choice("abcAB ' \n1!/\r\u2581\u00e9<>|_zt") for _ in range(r.randrange(1, 60)))
    return words.random_text(r)


def compare(name, t, path, work, texts):
    library = unigram_words.as_text(t) if name in unigram_words.KINDS else t
    docs = os.path.join(work, "docs")
    words.write_docs(docs, texts)
    t.encode_special_tokens = True
    ids, back = dump("ids", path, docs), dump("decode", path, docs)
    if not len(ids) == len(back) == len(texts):
        sys.exit(f"FAIL: {name}: {len(ids)} lines for {len(texts)} texts")
    for text, line, decoded in zip(texts, ids, back):
        ours = [int(x) for x in line.split()]
        want = library.encode(text, add_special_tokens=False).ids
        if ours != want:
            at = next(i for i in range(max(len(ours), len(want))) if ours[i:i + 1] != want[i:i + 1])
            sys.exit(f"FAIL: {name}: {text[:200]!r}: from place {at} atom {ours[at:at + 10]}, library "
                     f"{want[at:at + 10]} ({[t.id_to_token(i) for i in want[at:at + 10]]})")
        if bytes.fromhex(decoded) != t.decode(ours, skip_special_tokens=True).encode():
            sys.exit(f"FAIL: {name}: {text[:80]!r} decodes to {bytes.fromhex(decoded)[:80]!r}, the library's to "
                     f"{t.decode(ours)[:80]!r}")
    return len(texts)


def main():
    r = random.Random(SEED)
    names = ["llama3", "cl100k", "qwen2", "qwen35", "smollm", "digits", "o200k", "tekken", "gpt2+nfc", "llama2", "llama2 first",
             "llama2 first nosplit", "llama2 always", "llama2 never", "gemma", *split_words.KINDS] + unigram_words.KINDS
    if ONLY:
        names = [name for name in names if any(part in name for part in ONLY.split(","))]
    with tempfile.TemporaryDirectory() as work:
        made = {}
        for name in names:
            path = os.path.join(work, name.replace(" ", "-") + ".json")
            make = unigram_words.build if name in unigram_words.KINDS else build
            made[name] = (make(name, r), path)
            made[name][0].save(path)
        counts = dict.fromkeys(names, 0)
        started, rounds = time.time(), 0
        while min(counts.values()) < TEXTS or time.time() - started < SECONDS:
            for name, (t, path) in made.items():
                texts = (EDGES if rounds == 0 else []) + [random_text(r) for _ in range(400)]
                counts[name] += compare(name, t, path, work, texts)
            rounds += 1
        print(f"{sum(counts.values())} texts under {len(names)} pipelines: same ids, same texts back")


if __name__ == "__main__":
    main()
