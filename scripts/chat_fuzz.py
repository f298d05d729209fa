#!/usr/bin/env python3
"""Compares dataplane/chat with Python's jinja2 on mutated templates.

    scripts/chat_fuzz.py [--seconds 120] [--seed N] [--keep FOLDER]

Makes templates (mutations of those in testdata/templates and .cache/templates, and
random ones) and variables (mutations of testdata/conversations.jsonl), renders them
with jinja2 as transformers sets it up, and with the Go package through the test
TestRenderCases, and reports where the two differ:

    wrong    both give text, and it is not the same
    accepts  Python raises an error, Go gives text
    refuses  Go says that Python raises an error, but it gives text

What Go does not know (classes unsupported, inexact, limit) is no difference; how often
is printed, with the commonest reasons. Exit status 1 if there is any difference.
"""

import argparse
import collections
import copy
import json
import multiprocessing
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings

import chat_goldens

REPOSITORY = chat_goldens.REPOSITORY
PACKAGE = REPOSITORY / "dataplane" / "chat"
CASES_A_ROUND = 1500

TEXTS = ["", " ", "a", "Ab c", "é\u00a0x", "\n\tx \r\n", "日本", "\U0001f600z", "</think>x", "<a>&'\"", "x" * 45, "a,b,,c", "1", "1.5", "-3", "ǅ ß ı", "{{ x }}", "%s %d", "{}", "user", "content", "\u2028\x1c", "A\u0301b"]
NUMBERS = ["0", "1", "-1", "2", "7", "1.5", "-0.0", "1e16", "1e-7", "10**20", "3.0", "0.1"]
NAMES = ["messages", "messages[0]", "messages[-1]", "messages[0].content", "messages[0]['role']", "tools", "nothing", "tools[0]", "x", "y", "loop", "bos_token", "messages[0].tool_calls", "documents", "messages|length"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "first", "last", "list", "string", "int", "float", "abs", "round", "sort", "unique", "reverse", "join", "join(', ')", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(separators=(',',':'))", "default('d')", "default('d', true)", "replace('a', 'b')", "replace('', '-', 2)", "items", "dictsort", "map('upper')", "map(attribute='role')", "map(attribute='role', default='n')", "select", "reject", "selectattr('role')", "selectattr('role', 'equalto', 'user')", "rejectattr('content')", "select('string')", "batch(2)", "slice(2)", "sum", "min", "max", "wordcount", "indent", "indent(2, true)", "e", "escape", "safe", "center(9)", "truncate(5)", "wordwrap(4)", "striptags", "urlencode", "filesizeformat", "pprint", "xmlattr", "groupby('role')", "random", "attr('x')", "count", "d", "format(1)", "forceescape"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "false", "odd", "even", "divisibleby(2)", "divisibleby 3", "eq 1", "equalto('a')", "in [1, 'a']", "in 'abc'", "sameas none", "lower", "upper", "callable", "gt 1", "lt 1", "ne 'a'", "escaped", "filter", "test"]
METHODS = ["strip()", "lstrip()", "rstrip('x')", "strip('a ')", "split()", "split(',')", "split('a', 1)", "rsplit(' ', 1)", "splitlines()", "upper()", "lower()", "title()", "capitalize()", "swapcase()", "startswith('a')", "endswith(('a', 'x'))", "replace('a', 'bb', 1)", "find('c')", "rfind('c')", "count('a')", "index('a')", "join(['p', 'q'])", "isdigit()", "isalpha()", "isspace()", "isupper()", "zfill(5)", "ljust(6)", "rjust(6, '.')", "partition('b')", "removeprefix('a')", "removesuffix('c')", "format(1, 'b')", "encode()", "items()", "keys()", "values()", "get('role')", "get('zz', 5)", "get('content', '').strip()", "append(1)", "pop()", "copy()", "casefold()", "expandtabs()"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "and", "or", "in", "not in"]
ACCESS = [".role", "['content']", "[0]", "[-1]", "[1:]", "[:2]", "[::-1]", "[1:3]", ".function", "['x y']", "[none]", ".items", "[-3:-1]", "[::2]", "[5]"]


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r") + "'"


def expression(r, depth=3):
    """A random expression of the language."""
    kind = r.random()
    if depth <= 0 or kind < 0.18:
        return r.choice([quoted(r.choice(TEXTS)), r.choice(NUMBERS), r.choice(NAMES), r.choice(["true", "false", "none", "[]", "{}", "()"])])
    sub = lambda: expression(r, depth - 1)
    if kind < 0.36:
        return f"({sub()})|{r.choice(FILTERS)}" if r.random() < 0.5 else f"{r.choice(NAMES)}|{r.choice(FILTERS)}|{r.choice(FILTERS)}"
    if kind < 0.50:
        return f"({sub()}).{r.choice(METHODS)}"
    if kind < 0.62:
        return f"({sub()}) {r.choice(OPERATORS)} ({sub()})"
    if kind < 0.70:
        return f"({sub()}) is {r.choice(['', 'not '])}{r.choice(TESTS)}"
    if kind < 0.80:
        return f"({sub()}){r.choice(ACCESS)}"
    if kind < 0.85:
        return f"[{sub()}, {sub()}]"
    if kind < 0.89:
        return "{" + f"{quoted(r.choice(TEXTS))}: {sub()}, {r.choice(NUMBERS[:4])}: {sub()}" + "}"
    if kind < 0.93:
        return f"({sub()} if {sub()}" + (f" else {sub()})" if r.random() < 0.8 else ")")
    if kind < 0.96:
        return f"({sub()}, {sub()})"
    return r.choice(["-", "not ", "+"]) + f"({sub()})"


def statement(r, depth=2):
    kind = r.random()
    e = lambda: expression(r, 2)
    body = lambda: "".join(statement(r, depth - 1) for _ in range(r.randint(1, 2)))
    left, right = r.choice(["{%", "{%-", "{%+"]), r.choice(["%}", "-%}", "+%}"])
    if depth <= 0 or kind < 0.45:
        return "{{" + r.choice(["", "-"]) + " " + expression(r) + " " + r.choice(["", "-"]) + "}}" + r.choice(["", " ", "\n", "\n  ", "|"])
    tag = lambda text: f"{left} {text} {right}"
    if kind < 0.58:
        return tag("if " + e()) + body() + (tag("else") + body() if r.random() < 0.5 else "") + tag("endif")
    if kind < 0.72:
        over = r.choice(["messages", "tools", "[1, 2, 3]", "'abc'", "messages[0].items()", "range(3)", e()])
        target = r.choice(["x", "x", "x", "x, y"])
        extra = r.choice(["", "", " if x", " if loop is defined", " recursive"])
        inner = r.choice(["{{ loop.index }}", "{{ x }}", "{{ loop.last }}{{ loop.previtem }}", "{{ loop.nextitem is defined }}", "", "{{ loop.cycle(1, 2) }}", "{{ loop.changed(x) }}", "{% break %}", "{% if loop.first %}{% continue %}{% endif %}"])
        return tag(f"for {target} in {over}{extra}") + inner + body() + (tag("else") + body() if r.random() < 0.3 else "") + tag("endfor")
    if kind < 0.82:
        return tag(f"set {r.choice(['x', 'y', 'ns.x', 'x, y'])} = {e()}") + "{{ x }}"
    if kind < 0.87:
        return tag("set x") + body() + tag("endset") + "{{ x|length }}{{ x }}"
    if kind < 0.93:
        return tag("macro m(a, b=2)") + body() + "{{ a }}{{ b }}" + tag("endmacro") + r.choice(["{{ m(1) }}", "{{ m(b=x) }}", "{{ m('q')|upper }}", "{% call m(1) %}c{% endcall %}", "{{ m(1, 2, 3) }}"])
    if kind < 0.97:
        return tag("filter " + r.choice(FILTERS)) + body() + tag("endfilter")
    return tag("with x = " + e()) + body() + tag("endwith")


def mutate(r, source):
    """A template of others, with something changed."""
    for _ in range(r.randint(1, 3)):
        kind = r.random()
        spots = [m.end() for m in re.finditer(r"[-+]?%\}|[-+]?\}\}", source)] or [0]
        if kind < 0.35:
            at = r.choice(spots)
            source = source[:at] + statement(r, 1) + source[at:]
        elif kind < 0.5:
            found = list(re.finditer(r"\|\s*[a-z]+(\([^()]*\))?", source))
            if found:
                m = r.choice(found)
                source = source[: m.start()] + "|" + r.choice(FILTERS) + source[m.end() :]
        elif kind < 0.6:
            found = list(re.finditer(r"==|!=|\+|\band\b|\bor\b|\bnot\b", source))
            if found:
                m = r.choice(found)
                source = source[: m.start()] + " " + r.choice(OPERATORS) + " " + source[m.end() :]
        elif kind < 0.75:
            found = list(re.finditer(r"\{%-|\{\{-|-%\}|-\}\}|\{%|%\}", source))
            m = r.choice(found) if found else None
            if m:
                swap = {"{%-": "{%", "{{-": "{{", "-%}": "%}", "-}}": "}}", "{%": "{%-", "%}": "-%}"}
                source = source[: m.start()] + swap[m.group()] + source[m.end() :]
        elif kind < 0.85:
            found = list(re.finditer(r"\b(messages|message|content|tools|turn|loop|role)\b", source))
            if found:
                m = r.choice(found)
                source = source[: m.start()] + r.choice(NAMES + ["message", "turn", "content", "loop.index0"]) + source[m.end() :]
        elif kind < 0.93:
            at = r.randrange(len(source) + 1)
            source = source[:at] + r.choice(["\n", " ", "  \n", "\t", "\r\n", "{# c #}", "{% raw %}{{{% endraw %}", "é"]) + source[at:]
        else:
            at = r.randrange(len(source) + 1)
            source = source[:at] + source[at + r.randint(1, 4) :]
    return source


def mutate_variables(r, variables):
    variables = copy.deepcopy(variables)
    spots = []

    def visit(v):
        for k in list(v.keys() if isinstance(v, dict) else range(len(v))):
            spots.append((v, k))
            if isinstance(v[k], (dict, list)):
                visit(v[k])

    visit(variables)
    for _ in range(r.randint(0, 2)):
        holder, key = r.choice(spots)
        if key != "messages" or r.random() < 0.05:
            holder[key] = r.choice([r.choice(TEXTS), r.choice(TEXTS), None, True, 1, 1.5, [], {}, [r.choice(TEXTS)], {"type": "text", "text": "t"}])
    return variables


def make_cases(r, sources, conversations):
    for _ in range(CASES_A_ROUND):
        if r.random() < 0.75:
            source = "".join(statement(r) for _ in range(r.randint(1, 2)))
        else:
            source = mutate(r, r.choice(sources))
        yield {"template": source, "vars": mutate_variables(r, r.choice(conversations))}


def bounded(connection, cases):
    """Renders in a process of its own, for a template can ask for anything."""
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    def too_long(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_long)
    warnings.simplefilter("ignore")
    env = chat_goldens.environment()
    for case in cases:
        signal.setitimer(signal.ITIMER_REAL, 2)
        try:
            kind, text = chat_goldens.render(env, case["template"], case["vars"])
            text.encode("utf-8")
        except BaseException as error:
            kind, text = "unknown", repr(error)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if "TimeoutError" in text[:40] or "MemoryError" in text[:40] or len(text) > 1 << 20:
            kind, text = "unknown", "too long"
        connection.send((kind, text))
    connection.close()


def render_python(cases):
    here, there = multiprocessing.Pipe(False)
    process = multiprocessing.Process(target=bounded, args=(there, cases))
    process.start()
    there.close()
    results = []
    try:
        while True:
            results.append(here.recv())
    except EOFError:
        pass
    process.join()
    return results + [("unknown", "the renderer died")] * (len(cases) - len(results))


def render_go(binary, folder, cases):
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    done = subprocess.run(
        [binary, "-test.run", "^TestRenderCases$", "-chat.cases", folder / "cases.jsonl"], cwd=PACKAGE, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    with open(folder / "cases.jsonl.out", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def verdict(python, go):
    kind, text = python
    if kind == "unknown":
        return "skipped"
    if go["class"] in ("unsupported", "inexact", "limit"):
        return "unknown"
    if kind == "raises":
        return "same" if go["class"] else "accepts"
    if go["class"]:
        return "refuses"
    return "same" if go["text"] == text else "wrong"


def shorter(case, still_differs):
    """Takes pieces off a template as long as it still differs."""
    source = case["template"]
    size = max(1, len(source) // 2)
    tries = 0
    while size >= 1 and tries < 150:
        candidates = [source[:at] + source[at + size :] for at in range(0, len(source), size)]
        for candidate in candidates[:40]:
            tries += 1
            if still_differs({**case, "template": candidate}):
                source = candidate
                break
        else:
            size //= 2
    return {**case, "template": source}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the cases that differ")
    arguments = parser.parse_args()
    folders = [chat_goldens.TESTDATA / "templates", REPOSITORY / ".cache" / "templates"]
    sources = [path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.glob("*.jinja"))]
    with open(chat_goldens.TESTDATA / "conversations.jsonl", encoding="utf-8") as file:
        conversations = [json.loads(line)["vars"] for line in file]
    r = random.Random(arguments.seed)
    counts, reasons, found = collections.Counter(), collections.Counter(), []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        binary = folder / "chat.test"
        subprocess.run(["go", "test", "-c", "-o", binary, "."], cwd=PACKAGE, check=True)
        end = time.monotonic() + arguments.seconds
        while time.monotonic() < end:
            cases = list(make_cases(r, sources, conversations))
            for case, python, go in zip(cases, render_python(cases), render_go(binary, folder, cases)):
                what = verdict(python, go)
                counts[what] += 1
                if what == "unknown":
                    reasons[go["class"] + ": " + re.sub(r"line \d+|'[^']*'|\"[^\"]*\"|\d+", "…", go["text"])[:90]] += python[0] == "ok"
                if what in ("wrong", "accepts", "refuses"):
                    found.append((what, case, python, go))
        print(dict(counts))
        for reason, n in reasons.most_common(25):
            print(f"  {n:6} {reason}")
        shown = collections.Counter()
        for what, case, python, go in found:
            shown[what] += 1
            if shown[what] > 25:
                continue

            def still_differs(c, what=what):
                return verdict(render_python([c])[0], render_go(binary, folder, [c])[0]) == what

            case = shorter(case, still_differs) if shown[what] <= 12 else case
            python, go = render_python([case])[0], render_go(binary, folder, [case])[0]
            print(f"{what}: {case['template']!r}\n   python {python!r:.300}\n   go     {go!r:.300}")
            if arguments.keep:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                (arguments.keep / f"{what}_{shown[what]}.json").write_text(json.dumps(case), encoding="utf-8")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
