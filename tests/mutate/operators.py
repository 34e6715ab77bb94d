"""Small bugs of a C file: which there are, how one is put in, and how it is called (mutate.py)."""
import re


def blank(text):
    """The text with comments, strings, characters and preprocessor lines as blanks, same length."""
    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', spaces, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", spaces, text, flags=re.M)


SWAPS = [
    (r" < ", [" <= ", " > "]), (r" <= ", [" < "]), (r" > ", [" >= ", " < "]), (r" >= ", [" > "]),
    (r" == ", [" != "]), (r" != ", [" == "]), (r" && ", [" || "]), (r" \|\| ", [" && "]),
    (r" \+ ", [" - "]), (r" - ", [" + "]), (r" \* (?=[\w(])", [" + "]), (r" / ", [" * "]), (r" % ", [" / "]),
    (r" \+= ", [" = ", " -= "]), (r" -= ", [" += "]), (r" \|= ", [" = "]), (r" &= ", [" = "]),
    (r"\btrue\b", ["false"]), (r"\bfalse\b", ["true"]), (r"(?<=[( ])!(?=[\w(])", [""]),
    (r"\+\+(?=[;)])", ["--"]), (r"\bcontinue;", ["break;"]), (r"\bbreak;(?=\n\s*\})", [";"]),
    (r"(?<![\w.])(\d{1,6})(?![\w.])", None),  # a number: one more
]
# A whole statement: a call whose result nobody takes, or an assignment to something that lasts.
CALL = re.compile(r"^ +[a-z_]\w*\([^;{}]*\);$", re.M)
STORE = re.compile(r"^ +[\w\]\[.>*-]*(?:->|\.|\])[\w\]\[.>-]* [|&+-]?= [^;{}]*;$", re.M)
# What is there to be read by people, or to stop our own bugs: nothing that a test should notice.
QUIET = re.compile(r"ATOM_ASSERT|ATOM_UNREACHABLE|_Static_assert|atom_fail|atom_log|snprintf|printf|atom_note|__builtin_")


def mutants(text):
    """Every mutant of a file as (position, length, replacement)."""
    code = blank(text)
    found = []
    inside = [(m.start(), m.end()) for m in re.finditer(r"^\{\n.*?^\}", code, re.M | re.S)]
    for begin, end in inside:
        for pattern, others in SWAPS:
            for match in re.finditer(pattern, code[begin:end]):
                at = begin + match.start()
                if others is None:
                    found.append((at, len(match.group(0)), str(int(match.group(1)) + 1)))
                else:
                    found += [(at, len(match.group(0)), other) for other in others]
        for pattern in (CALL, STORE):
            for match in pattern.finditer(code, begin, end):
                if not re.match(r" +(return|goto|free|atom_free|json_decref|fclose|close)\b|.*_close\(", match.group(0)):
                    found.append((match.start(), len(match.group(0)), ""))
    return [m for m in found if not QUIET.search(code[slice(*statement_at(code, m[0], m[1]))])]


def statement_at(code, at, length):
    """Where the statement around a place begins and ends."""
    begin = max(code.rfind(";", 0, at), code.rfind("{", 0, at), code.rfind("}", 0, at)) + 1
    end = code.find(";", at + length - 1)
    return begin, end if end >= 0 else len(code)


def apply(text, mutant):
    at, length, other = mutant
    return text[:at] + other + "\n" * text.count("\n", at, at + length) + text[at + length:]


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def first_of(text, mutant):
    """Where the mutant's first letter is."""
    old = text[mutant[0]:mutant[0] + mutant[1]]
    return mutant[0] + len(old) - len(old.lstrip())


def describe(path, text, mutant):
    at, length, other = mutant
    change = " ".join(f"{text[at:at + length].strip()} -> {other.strip() or '(nothing)'}".split())
    head = re.findall(r"^\w[^\n;]*?(\w+)\([^;{}]*?\)\n\{", text[:at], re.M)
    first = first_of(text, mutant)
    return {"where": f"{path}:{line_of(text, first)}", "column": first - text.rfind("\n", 0, first),
            "function": head[-1] if head else "", "change": change}


def lines_of(text, mutant):
    """The lines of the mutant's statement."""
    begin, end = statement_at(blank(text), mutant[0], mutant[1])
    begin += len(text[begin:end]) - len(text[begin:end].lstrip())
    return set(range(line_of(text, min(begin, first_of(text, mutant))), line_of(text, end) + 1))
