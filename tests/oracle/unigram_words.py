"""Unigram tokenizers for the tokenizers' oracle test, and SentencePiece's maps of characters for them."""
import base64
import json
import struct
import unicodedata

import tokenizer_words as words
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

KINDS = ["unigram t5", "unigram xlmr", "unigram spm", "unigram ties", "unigram bytes", "unigram nfkc", "unigram replace", "unigram albert",
         "unigram nfd", "unigram first"]
SPECIAL = ["<pad>", "</s>", "<unk>", "<s>"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]
EDGES = ["", " ", "  ", " a", "a  b", "a \n b\t\tc ", "\r\n", "x\r\ny", "e\u0301\u0323", "e\u0301 caf\u00e9", "\uff41\u0301",
         "▁", "▁▁a ▁b", "a▁b", "\u3000a\u3000", "\u200b", "\u200ba", "ab\u200b", "\ufb01n", "q\u0301", "\u00bd", "zz" * 40,
         "\u4e2d\u6587 \u4e2d", "\u4e2d" * 50, "<0x41>", "<0xE4><0xB8><0xAD>", "<unk>", "</s>a<s>", "<unk>\u4e2d<unk>",
         "\U0001f468\u200d\U0001f469", "\u0301a", "the " * 300, "a" * 3000, "\u00a0a\u2028b\u0085c\x1cd\x0be", "\0a\0",
         "a\u0301b", "\r", "\r\n\r\n", "b\u0301\u0301", "…", "ｔｈｅ", "ﷺ", "``a'' b'''c ` 'd", "ÀÉÎ\u0130İ\u1e9eΣας", "Å\u212b\u01c5\ua64a",
         "\u0e33\u093e\u20dd", "각힣", "1" * 59, "ﷺ" + "1" * 59, "a" + "-" * 37, "ab" * 33, "e" * 41, "th", "\ta", " \n\u200ba",
         "\u0301\u0301a"]


def charsmap():
    """A map as SentencePiece compiles them (Darts-clone's double array), in base64."""
    rules = {c: unicodedata.normalize("NFKC", c) for c in map(chr, words.ASSIGNED[:12000:3])
             if unicodedata.normalize("NFKC", c) != c}
    rules.update({"\r": " ", "\n": " ", "\t": " ", "\u200b": "", "\u3000": " ", "\uff41": "a", "\ufb01": "fi", "e\u0301": "é",
                  "q": "k", "q\u0301": "Q", "\u00bd": "1/2", "…": "...", "ｔ": "t", "ｈ": "h", "ｅ": "e", "a\u0301": "á"})
    texts, places = b"", {}
    for value in sorted(set(rules.values())):
        places[value] = len(texts)
        texts += value.encode() + b"\0"
    tree = {}
    for key, value in rules.items():
        node = tree
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = places[value]
    units, free, queue = {0: 0}, 1, [(0, tree)]
    taken = set()
    while queue:
        at, node = queue.pop()
        while free in units:
            free += 1
        base = free
        while base in taken or any(base ^ c in units for c in node):
            base += 1
        taken.add(base)
        units[at] |= (at ^ base) << 10 | (1 << 8 if 0 in node else 0)
        for c, below in node.items():
            units[base ^ c] = 1 << 31 | below if c == 0 else c
            if c:
                queue.append((base ^ c, below))
    array = [units.get(i, 0) for i in range((max(units) | 255) + 1)]
    assert all(u >> 31 or u >> 10 < 1 << 21 for u in array)
    data = struct.pack("<I", 4 * len(array)) + struct.pack(f"<{len(array)}I", *array) + texts
    return base64.b64encode(data).decode()


def build(name, r):
    kind = name.split()[1]
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    texts = [words.random_text(r) for _ in range(300)]
    texts = [x[:200] for x in texts if x and max(map(ord, x)) < 0x250] + ["\u4e2d\u6587 k á Q é"] * 3
    t.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=400, special_tokens=SPECIAL, unk_token="<unk>",
                                                         show_progress=False))
    tree = json.loads(t.to_str())
    vocab = tree["model"]["vocab"]
    if kind == "bytes":
        vocab[4:4] = [[b, 0.0] for b in BYTES]
        tree["model"]["byte_fallback"] = True
    if kind in ("ties", "replace"):
        tree["model"]["vocab"] = [[piece, float(round(score))] for piece, score in vocab]
        tree["model"]["vocab"] += [[piece, -3.0] for piece in ("zz", "zzz", "\u4e2d\u4e2d", "▁▁", "▁▁▁", "e▁", "zz")]
    t = Tokenizer.from_str(json.dumps(tree))
    space = pre_tokenizers.Metaspace(prepend_scheme="first" if kind in ("spm", "first") else "never" if kind == "ties" else "always",
                                     split=kind not in ("ties", "nfkc"))
    words_first = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    t.pre_tokenizer = words_first if kind in ("t5", "xlmr", "albert") else space
    steps = {"t5": ["map"], "xlmr": ["map", "one"], "spm": ["map", "right", "runs"], "ties": [], "bytes": ["both"],
             "nfkc": ["nfkc"], "replace": ["nfc"], "albert": ["open", "close", "nfkd", "marks", "lower", "map", "one"],
             "nfd": ["lower", "nfd", "gone", "marks"], "first": ["both", "pair", "gone", "marks", "map"]}[kind]
    made = {"map": lambda: normalizers.Precompiled(base64.b64decode(charsmap())),
            "one": lambda: normalizers.Replace(Regex(" {2,}"), " "), "right": lambda: normalizers.Strip(left=False, right=True),
            "runs": lambda: normalizers.Replace(Regex(" {2,}"), "▁"), "both": normalizers.Strip,
            "open": lambda: normalizers.Replace("``", '"'), "close": lambda: normalizers.Replace("''", '"'),
            "gone": lambda: normalizers.Replace("b", ""), "pair": lambda: normalizers.Replace("th", "e"),
            "marks": normalizers.StripAccents, "lower": normalizers.Lowercase,
            "nfkd": normalizers.NFKD, "nfd": normalizers.NFD, "nfkc": normalizers.NFKC, "nfc": normalizers.NFC}
    steps = [made[s]() for s in steps]
    if kind == "replace":
        steps += [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    if steps:
        t.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
    if kind == "replace":
        tree = json.loads(t.to_str())
        tree["pre_tokenizer"] = None
        t = Tokenizer.from_str(json.dumps(tree))
    t.decoder = decoders.Metaspace(prepend_scheme=space.prepend_scheme)
    if kind in ("bytes", "replace"):
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return t


def as_text(t):
    """The library's tokenizer in which no text is a special token: their names are none that a text has."""
    text = t.to_str()
    for i, name in enumerate(SPECIAL):
        text = text.replace(json.dumps(name), f'"\\ue000\\ue000{i}\\ue000"')
    return Tokenizer.from_str(text)
