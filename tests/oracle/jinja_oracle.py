#!/usr/bin/env python3
"""atom's Jinja against Jinja2 with the settings of transformers: the text, byte for byte.

  jinja_oracle.py RENDER [--templates DIR] [--verbose]     RENDER: the program jinja_render

Every template of templates/ renders every conversation, with and without system message, tools, thoughts and
generation prompt; the expressions of expressions.txt (one a line) are rendered alone. Where Jinja2 fails, atom
must fail; where atom refuses what Jinja2 renders, the template must be listed in REFUSED. What the assistant
says inside of {% generation %} must be the same stretches. Exit 77: Jinja2 is missing.
"""
import argparse
import datetime
import functools
import glob
import json
import os
import subprocess
import sys

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1767323045  # 2026-01-02, in the middle of the day nearly everywhere
NAMES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
ODD = "Grüße, 世界 \U0001f600!\n\"quoted\" 'single' \\ back <b>&amp; {{ not }} {% code %}\ttab\r\nend\u2028 "


class Generation(jinja2.ext.Extension):
    """{% generation %} as transformers has it: a block whose place in the output is kept."""
    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        self.blocks, self.places = [], []

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(lineno)

    @jinja2.pass_eval_context
    def _said(self, context, caller):
        said = caller()
        start = len("".join(self.blocks))
        self.places.append((start, start + len(said)))
        return said

    def render(self, template, **values):
        self.blocks, self.places = [], []
        for block in template.generate(**values):
            self.blocks.append(block)
        return "".join(self.blocks), self.places


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW).strftime(form)
    return env


def tool(name, **properties):
    return {"type": "function", "function": {
        "name": name, "description": f"Does {name}: \"now\" & <then>.",
        "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]},
        "return": {"type": "object", "description": "what it gives"}}}


TOOLS = [tool("weather", city={"type": "string", "description": "Größe"}, days={"type": "integer", "enum": [1, 2, 3]}),
         tool("sum", values={"type": "array", "items": {"type": "number"}}, exact={"type": "boolean", "default": False},
              place={"type": ["string", "null"], "anyOf": [{"type": "string"}, {"type": "null"}]})]


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


CALL = {"id": "call12345", "type": "function", "function": {"name": "weather", "arguments": {"city": "Bern", "days": 2, "x": 1.5}}}
CALL_TEXT = {"id": "abcdefghi", "type": "function", "function": {"name": "sum", "arguments": "{\"values\": [1, 2]}"}}
SYSTEM = {"role": "system", "content": "  Be kind.\n"}


def conversations():
    """name -> what a template is rendered with."""
    chats = {
        "one": [user("Hi")],
        "two": [user("Hi"), assistant("Hello.")],
        "three": [user(" Hi \n"), assistant("\n Hello. "), user("More?")],
        "four": [user("a"), assistant("b"), user("c"), assistant("d")],
        "odd": [user(ODD), assistant(ODD), user("x" * 300), assistant("")],
        "empty": [user(""), assistant(""), user("")],
        "thought": [user("q"), assistant("<think>\nhm\n</think>\n\nyes"), user("r"), assistant("<think>so</think>no")],
        "reasoned": [user("q"), assistant("yes", reasoning_content="hm\n"), user("r"), assistant("no", reasoning_content="so")],
        "called": [user("rain?"), assistant("", tool_calls=[CALL]), {"role": "tool", "name": "weather", "content": "wet", "tool_call_id": "call12345"},
                   assistant("It is wet.")],
        "called none": [user("rain?"), {"role": "assistant", "content": None, "tool_calls": [CALL]},
                        {"role": "tool", "name": "weather", "content": "{\"wet\": true}", "tool_call_id": "call12345"}],
        "called twice": [user("both?"), assistant("let me see", tool_calls=[CALL, CALL_TEXT]),
                         {"role": "tool", "name": "weather", "content": "dry", "tool_call_id": "call12345"},
                         {"role": "tool", "name": "sum", "content": {"sum": 3, "list": [1, 2.5, None, True]}, "tool_call_id": "abcdefghi"},
                         assistant("done"), user("thanks")],
        "parts": [user([{"type": "text", "text": "look "}, {"type": "text", "text": "here"}]),
                  assistant([{"type": "text", "text": "seen"}])],
        "roles": [user("a"), user("b"), assistant("c"), assistant("d")],
        "late": [user("a"), assistant("b"), SYSTEM, user("c")],
        "developer": [{"role": "developer", "content": "Short."}, user("a"), assistant("b")],
        "none": [],
    }
    for name, chat in chats.items():
        for system in ([], [SYSTEM]):
            for tools in (None, TOOLS):
                for prompt in (False, True):
                    for more in ({}, {"enable_thinking": False}, {"enable_thinking": True}) if name in ("one", "two", "thought") else ({},):
                        yield f"{name}/{len(system)}/{bool(tools)}/{prompt}/{more}", {
                            "messages": system + chat, "tools": tools, "documents": None, "add_generation_prompt": prompt,
                            "names": {**NAMES, **more}}


class Render:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def __call__(self, source, given):
        line = json.dumps({"template": source, "now": NOW, **given})
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def in_bytes(text, places):
    """Places in characters as places in bytes; empty and touching ones as atom tells them."""
    merged = []
    for start, end in places:
        start, end = (len(text[:at].encode()) for at in (start, end))
        if start == end:
            continue
        if merged and merged[-1][1] == start:
            merged[-1][1] = end
        else:
            merged.append([start, end])
    return merged


@functools.lru_cache(maxsize=4)
def compiled(env, source):
    return env.from_string(source)


def judge(env, render, source, given):
    """(what happened, a story): same, failed (both), refused (atom alone), wrong."""
    said = render(source, given)
    values = {k: v for k, v in given.items() if k != "names"}
    try:
        template = compiled(env, source)
        want, places = env.extensions[f"{__name__}.Generation"].render(template, **{**given["names"], **values})
    except Exception as error:  # whatever a template can do wrong
        if "error" in said:
            return "failed", f"{type(error).__name__}: {error} | {said['error']}"
        return "wrong", f"Jinja2 fails ({type(error).__name__}: {error}), atom says {said['text'][-200:]!r}"
    if "error" in said:
        return "refused", said["error"]
    if said["text"] != want:
        at = next((i for i, (a, b) in enumerate(zip(want, said["text"])) if a != b), min(len(want), len(said["text"])))
        return "wrong", f"at {at}: wanted {want[max(0, at - 40):at + 60]!r}, got {said['text'][max(0, at - 40):at + 60]!r}"
    if said["answers"] != in_bytes(want, places):
        return "wrong", f"answers at {said['answers']}, wanted {in_bytes(want, places)}"
    return "same", ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("render")
    parser.add_argument("--templates", default=os.path.join(HERE, "templates"))
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    env, render = environment(), Render(args.render)
    counts, bad = {}, 0
    per_template = {"same": 0, "failed": 0, "refused": 0, "wrong": 0}
    files = sorted(glob.glob(os.path.join(args.templates, "*.jinja")))
    for path in files:
        with open(path, encoding="utf-8", newline="") as f:
            source = f.read()
        worst, order = "failed", ["failed", "same", "refused", "wrong"]
        for name, given in conversations():
            what, story = judge(env, render, source, given)
            counts[what] = counts.get(what, 0) + 1
            if order.index(what) > order.index(worst):
                worst = what
            if what in ("refused", "wrong"):
                bad += 1
                if bad <= 20 or args.verbose:
                    print(f"{what}: {os.path.basename(path)} with {name}: {story}")
        per_template[worst] += 1
        if worst == "failed" and args.templates == os.path.join(HERE, "templates"):
            print(f"{path} renders nothing")
            bad += 1
    lines = os.path.join(args.templates, "expressions.txt")
    expressions = 0
    if os.path.exists(lines):
        given = dict(conversations())["called twice/1/True/True/{}"]
        with open(lines, encoding="utf-8") as f:
            for line in f:
                source = line.rstrip("\n").replace("\\n", "\n")
                if not source or source.startswith("##"):
                    continue
                what, story = judge(env, render, source, given)
                expressions += 1
                expected = "failed" if source.startswith("{#fails#}") else "refused" if source.startswith("{#refused#}") else "same"
                if what != expected:
                    bad += 1
                    print(f"{what}, not {expected}: {source}: {story}")
                elif args.verbose and what != "same":
                    print(f"  {what}: {source}: {story}")
    print(f"{len(files)} templates ({per_template}), {counts} renderings, {expressions} expressions, {bad} differences")
    return 1 if bad or not files else 0


if __name__ == "__main__":
    sys.exit(main())
