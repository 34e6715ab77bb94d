#!/usr/bin/env python3
"""atom's chats against transformers' apply_chat_template: ids, and which of them are the assistant's.

  chat_oracle.py ATOM [--chats N] [--seed N]     ATOM: the program

Tokenizers with the pipelines of Qwen2, SmolLM, Llama-3, Llama-2 and Mistral (tests of foreign_oracle.py)
get the chat templates that those models ship, with transformers' generation marks around the answers.
Random chats go through `atom data prepare`, which runs the template; the shards must hold, for each chat, the
ids of the rendered text, and the mask must have the bits that transformers' mask of the assistant has.
Phi-3's tokens take the white space behind them (and a variant's that before them). Where an answer begins with such
space, transformers marks the header that took it; atom does not, since no answer holds a header's name.
Messages hold no names of special tokens: transformers would make tokens of them, atom does not.
Exit 77: a library is missing.
"""
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

ATOM = sys.argv[1]
ARGS = sys.argv[2:]
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import jinja2  # noqa: F401
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
import foreign_oracle as foreign

CHATS = int(ARGS[ARGS.index("--chats") + 1]) if "--chats" in ARGS else 200
SEED = int(ARGS[ARGS.index("--seed") + 1]) if "--seed" in ARGS else 1
CHATML = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}"
          "{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}{% else %}"
          "{{ m['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}")
LLAMA3 = ("{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' }}"
          "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] | trim + '<|eot_id|>' }}"
          "{% endgeneration %}{% else %}{{ m['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}")
MISTRAL = ("{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + 'CLOSE' }}"
           "{% else %}{{ ' ' }}{% generation %}{{ m['content'] + eos_token }}{% endgeneration %}{% endif %}{% endfor %}")
OLD, NEW = MISTRAL.replace("CLOSE", " [/INST]"), MISTRAL.replace("CLOSE", "[/INST]")
PHI3 = ("{% for m in messages %}{{ '<|' + m['role'] + '|>\n' }}{% if m['role'] == 'assistant' %}{% generation %}"
        "{{ m['content'] + '<|end|>' }}{% endgeneration %}{{ '\n' }}{% else %}{{ m['content'] + '<|end|>\n' }}{% endif %}"
        "{% endfor %}{{ eos_token }}")
EATERS = [AddedToken(f"<|{x}|>", rstrip=True, normalized=False) for x in ("system", "user", "assistant", "end")]
LEFT = [AddedToken(f"<|{x}|>", lstrip=True, normalized=False) for x in ("system", "user", "assistant", "end")]
HEADERS = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
# pipeline, special tokens that are added, template in Jinja, start token, end token, system messages and tools
KINDS = [
    ("qwen2", [], CHATML, "<|endoftext|>", "<|im_end|>", True),
    ("smollm", [], CHATML, "<|endoftext|>", "<|im_end|>", True),
    ("llama3", HEADERS, LLAMA3, "<|begin_of_text|>", "<|eot_id|>", True),
    ("tekken", ["[INST]", "[/INST]"], NEW, "<s>", "</s>", False),
    ("llama2", [], OLD, "<s>", "</s>", False),
    ("llama2 first", [], OLD, "<s>", "</s>", False),
    ("llama2 always", [], OLD, "<s>", "</s>", False),
    ("llama2 never", [], OLD, "<s>", "</s>", False),
    ("phi3", EATERS, PHI3, "<s>", "</s>", True),
    ("left", LEFT, PHI3, "<s>", "</s>", True),
    ("phi3 bytes", EATERS, PHI3, "<|begin_of_text|>", "<|end_of_text|>", True),
]
PIPELINES = {"phi3": "llama2", "left": "llama2", "phi3 bytes": "llama3"}


def chat(r, names, system):
    messages = []
    if system and r.random() < 0.3:
        messages.append("system")
    for _ in range(r.randrange(1, 4)):
        messages += ["user", "assistant"]

    def text():
        while True:
            made = foreign.random_text(r)[:300] if r.random() < 0.97 else ""
            if not any(name in made for name in names):
                return made
    return [{"role": role, "content": text()} for role in messages]


def shards(folder):
    """Ids and marks of the training split."""
    with open(os.path.join(folder, "train_000000.bin"), "rb") as f:
        data = f.read()
    n = struct.unpack_from("<i", data, 8)[0]
    with open(os.path.join(folder, "train_000000.mask"), "rb") as f:
        bits = f.read()[32:]
    return struct.unpack_from(f"<{n}H", data, 1024), [bits[i // 8] >> i % 8 & 1 for i in range(n)]


def prepare(work, path, chats):
    lines = os.path.join(work, "chats.jsonl")
    with open(lines, "w", encoding="utf-8") as f:
        for messages in chats:
            f.write(json.dumps({"messages": messages}) + "\n")
    out = os.path.join(work, "data")
    done = subprocess.run([ATOM, "data", "prepare", "-i", lines, "-o", out, "--force", "--val-fraction", "0",
                           "--tokenizer", path, "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"FAIL: {path}: {done.stderr}")
    return json.loads(done.stdout), *shards(out)


def check(name, special, jinja, start, end, system, r, work):
    folder = os.path.join(work, name.replace(" ", "-"))
    os.mkdir(folder)
    t = foreign.build(PIPELINES.get(name, name), r)
    t.add_special_tokens(special)
    path = os.path.join(folder, "tokenizer.json")
    t.save(path)
    with open(os.path.join(folder, "chat_template.jinja"), "w", encoding="utf-8") as f:
        f.write(jinja)
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"bos_token": start, "eos_token": end}, f)
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token=start, eos_token=end)
    names = [a.content for a in t.get_added_tokens_decoder().values() if a.special]
    chats = [chat(r, names, system) for _ in range(CHATS)]
    told, ids, marks = prepare(work, path, chats)
    if told["template"] != "own" or told["chats"] != CHATS:
        sys.exit(f"FAIL: {name}: {told}")
    at = answers = 0
    for messages in chats:
        want = fast.apply_chat_template(messages, chat_template=jinja, return_dict=True, return_assistant_tokens_mask=True)
        want_ids, want_marks = want["input_ids"], want["assistant_masks"]
        headers = [t.token_to_id(str(x)) for x in special if "end" not in str(x)] if name in PIPELINES else []
        want_marks = [0 if i in headers else m for i, m in zip(want_ids, want_marks)]
        got = list(ids[at:at + len(want_ids)])
        if got != want_ids:
            k = next(i for i in range(len(want_ids)) if got[i:i + 1] != want_ids[i:i + 1])
            sys.exit(f"FAIL: {name}: {messages}: from place {k} atom {got[k:k + 8]}, transformers "
                     f"{want_ids[k:k + 8]} ({t.decode(want_ids[k:k + 8], skip_special_tokens=False)!r})")
        got = marks[at:at + len(want_ids)]
        if got != want_marks:
            k = next(i for i in range(len(got)) if got[i] != want_marks[i])
            sys.exit(f"FAIL: {name}: {messages}: the mask differs at place {k} of {len(got)}: atom {got[k]}, around it "
                     f"{[fast.convert_ids_to_tokens(i) for i in want_ids[max(0, k - 3):k + 3]]}")
        at += len(want_ids)
        answers += sum(got)
    if at != len(ids):
        sys.exit(f"FAIL: {name}: {len(ids) - at} tokens are left over")
    return at, answers


def main():
    r = random.Random(SEED)
    tokens = answers = 0
    with tempfile.TemporaryDirectory() as work:
        for kind in KINDS:
            one, counted = check(*kind, r, work)
            tokens += one
            answers += counted
    print(f"{CHATS * len(KINDS)} chats under {len(KINDS)} tokenizers: the same {tokens} ids, {answers} of them answers")


main()
