#!/usr/bin/python3
"""Checks the script of a page that atom serves (tools/pool/cmd_pool_page.html).

  page.py PAGE          brackets are balanced, strings end, and each `?` of a choice has its `:`
  page.py --canary PAGE the same check notices if any one bracket, or any one `:` of a choice, is missing
  page.py --node PAGE   node can parse it; 77 where there is no node

The first knows little of the language (a `?` that is missing in an object is not noticed, for example), but needs nothing that is not installed for the other tests.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

OPENS = ("(", "[", "{", "${")
CLOSES = {")": ["("], "]": ["["], "}": ["{", "${"]}
TOKEN = re.compile(r"""
    (?P<gap>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<word>[\w$.]+)
  | (?P<mark>\?\.|\?\?|=>|.)""", re.X | re.S)
REGEX = re.compile(r"/(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*")
TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(`|\$\{)", re.S)
BEFORE_A_REGEX = {"return", "typeof", "case", "in", "of", "throw", "=>"}


class Fault(Exception):
    pass


def tokens(script):
    """(where, mark) of each bracket, `?`, `:`, `,` and `;`, and of the "${" and "}" in templates."""
    at, before, opened = 0, "", []
    while at < len(script):
        found = TOKEN.match(script, at)
        mark = found.group()
        if mark == "/" and script.startswith("/*", at):
            raise Fault(at, "a comment does not end")
        if mark == "/" and (not re.match(r"[\w$.)\]}\"'`]", before[-1:]) or before in BEFORE_A_REGEX):
            found = REGEX.match(script, at)
            if not found:
                raise Fault(at, "a regular expression does not end")
            mark = found.group()
        elif mark in "\"'":
            raise Fault(at, f"a string that begins with {mark} does not end in its line")
        elif mark in ("`", "}") and (mark == "`" or opened[-1:] == ["${"]):
            if mark == "}":
                opened.pop()
                yield at, "}"
            found = TEMPLATE.match(script, at + 1)
            if not found:
                raise Fault(at, "a template does not end")
            if found.group(1) == "${":
                opened.append("${")
                yield found.end() - 2, "${"
        elif found.lastgroup == "mark":
            if mark == "{":
                opened.append(mark)
            elif mark == "}" and opened:
                opened.pop()
            if mark in "()[]{}?:,;":
                yield at, mark
        if found.lastgroup != "gap":
            before = found.group()
        at = found.end()


def check(script):
    """Raises what is wrong first; returns where the brackets and the `:` of choices are."""
    opened, seen = [], []
    for at, mark in tokens(script):
        last = opened[-1][1] if opened else ""
        if mark == "?" or mark in OPENS:
            opened.append((at, mark))
            if mark not in ("?", "${"):  # without "${" a template is still a template
                seen.append((at, mark))
        elif mark == ":":
            if last == "?":
                opened.pop()
                seen.append((at, mark))
            elif last != "{":  # there it is of a key, a label or a case
                raise Fault(at, "a : without its ?")
        elif last == "?":
            raise Fault(opened[-1][0], "a ? without its :")
        elif mark in CLOSES:
            if last not in CLOSES[mark]:
                raise Fault(at, f"{mark} closes nothing")
            opened.pop()
            seen.append((at, mark))
    if opened:
        raise Fault(opened[-1][0], f"{opened[-1][1]} without its end")
    return seen


def script_of(path):
    with open(path, encoding="utf-8") as f:
        page = f.read()
    [found] = re.finditer(r"<script>(.*?)</script>", page, re.S)
    return page.count("\n", 0, found.start(1)), found.group(1)


def canary(script):
    """Each that is left out must be noticed."""
    seen = check(script)
    for at, mark in seen:
        try:
            check(script[:at] + script[at + len(mark):])
        except Fault:
            continue
        sys.exit(f"line {script.count(chr(10), 0, at) + 1} of the script: nobody notices if its {mark} is missing")
    print(f"each of {len(seen)} brackets and choices is noticed if it is missing")


def node(script, above):
    program = shutil.which("node")
    if not program:
        print("skipped: there is no node here, which could parse the page's script")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "page.js")
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n" * above + script)  # with the page's numbers of lines
        sys.exit(subprocess.run([program, "--check", path], check=False).returncode)


def main():
    how, path = ([""] + sys.argv[1:])[-2:]
    above, script = script_of(path)
    if how == "--canary":
        canary(script)
    elif how == "--node":
        node(script, above)
    else:
        try:
            check(script)
        except Fault as fault:
            at, what = fault.args
            sys.exit(f"{path}:{above + script.count(chr(10), 0, at) + 1}: {what}")


main()
