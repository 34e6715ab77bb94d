"""Texts for the tokenizers' oracle tests: words, all planes of Unicode, and edge cases."""
import struct
import unicodedata

END = "<|endoftext|>"
WORDS = ("the of and to in a is that for it as was with be by on not he his but at are this have from or "
         "had an they which one you were all her she there would their we him been has when who will no "
         "more if out so up said what its about than into them can only other time new some could").split()
# Unicode 14 gives these a meaning; PCRE2 10.42 has those tables too.
ASSIGNED = [c for c in range(0x110000)
            if not 0xD800 <= c < 0xE000 and unicodedata.category(chr(c)) not in ("Cn", "Co")]
SPACES = [0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x20, 0x85, 0xA0, 0x1680, 0x180E, 0x2000, 0x2009, 0x200A, 0x200B,
          0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
ADVERSARIAL = [
    "", " ", "\n", "a", "\0", "\0\0 \0", "'", "'s", "'S", "''s", "don't we'll I'VE they're 'tis",
    "Hello  world\n\n  I'VE 12345 cafés!!\n", "我是 3.14½\r\n\t x", END, "a" + END + "b " + END,
    "<|endoftext", " " * 5000, "a" * 5000, "ab" * 3000, "!" * 3000, "1" * 3000, "\n" * 3000, "é" * 3000,
    "a b" * 2000, " \n" * 2000 + "x", "\U0001F468\u200d\U0001F469\u200d\U0001F467", "e\u0301\u0302",
    "\ufeffBOM", "\u180e\u180ea \u180e", "\u2028x\u2029 y", "\uffff\ufffe", "\U0010ffff",
]


def random_text(r):
    kind = r.randrange(5)
    if kind == 0:
        return "".join(chr(r.choice(ASSIGNED)) for _ in range(r.randrange(1, 200)))
    if kind == 1:
        return "".join(chr(r.choice(SPACES)) if r.random() < 0.6 else r.choice("ab1!'sé")
                       for _ in range(r.randrange(1, 100)))
    if kind == 2:
        return "".join(r.choice("ab '\n1!tdsvelm") for _ in range(r.randrange(1, 300)))
    if kind == 3:
        return r.choice("ab") * r.randrange(1, 400)
    return " ".join(r.choice(WORDS) + r.choice(["", "", "", ",", ".", "!", "'s", "\n", "  ", " 12"])
                    for _ in range(r.randrange(1, 200)))


def write_docs(path, texts):
    with open(path, "wb") as f:
        for text in texts:
            data = text if isinstance(text, bytes) else text.encode()
            f.write(struct.pack("<I", len(data)) + data)
