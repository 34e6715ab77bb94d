"""Lines that people train on, and what became of them in a shard."""
import json
import struct

import tool

QWEN = ("{%- for m in messages %}<{{ m.role }}>{{ m.content }}|{% endfor %}"
        "{%- if add_generation_prompt %}<assistant>{% endif %}")
MARKED = ("{%- for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}|"
          "{% endgeneration %}{% else %}{{ m.content }}|{% endif %}{% endfor %}")
THINKS = ("{%- for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
          "{{ m.content }}|{% endfor %}{%- if add_generation_prompt %}<assistant>{% endif %}"
          "{%- if enable_thinking is defined and enable_thinking is false %}[quiet]{% endif %}"
          "{%- if tools %}{{ tools[0] }}{% endif %}{{ date_string }}")


def user(text, **more):
    return dict(role="user", content=text, **more)


def says(text, **more):
    return dict(role="assistant", content=text, **more)


class Case(tool.Case):
    def tokenizer(self, template=None):
        """A tokenizer of bytes, as a model's own: with this template beside it."""
        self.write("seed.txt", "a")
        self.ok("data", "prepare", "-i", "seed.txt", "-o", "model", "--force", "--val-fraction", 0)
        if template is not None:
            self.write("model/chat_template.jinja", template)
        return ["--tokenizer", "model/tokenizer.json"]

    def prepare_args(self, lines, *more, name="in.jsonl"):
        self.write(name, "".join(json.dumps(line) + "\n" for line in lines))
        return ["data", "prepare", "-i", name, "-o", "data", "--force", "--val-fraction", 0, *more]

    def shown(self, folder="data"):
        """The text of the shard, with {braces} around what is learnt and @ for the end-of-text token."""
        data = self.read(folder, "train_000000.bin")
        n = struct.unpack_from("<i", data, 8)[0]
        ids = struct.unpack_from(f"<{n}H", data, 1024)
        try:
            bits = self.read(folder, "train_000000.mask")[32:]
        except FileNotFoundError:
            bits = b"\xff" * n
        out, inside = "", False
        for i in range(n + 1):
            learnt = i < n and bool(bits[i // 8] >> i % 8 & 1)
            if learnt != inside:
                out += "{" if learnt else "}"
            inside = learnt
            if i < n:
                out += "@" if ids[i] == 256 else chr(ids[i])
        return out
