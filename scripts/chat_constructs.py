#!/usr/bin/env python3
"""Writes what Python renders into the scenarios of dataplane/chat.

    scripts/chat_constructs.py [--check]

Each scenario in dataplane/chat/testdata/constructs.txt is a template, to its
last line, between "render NAME [VARIABLES as JSON]" and "----". The line below
becomes the text as a JSON string, or "raises ERROR". A scenario that begins with
"inexact" or "unsupported" instead of "render" is what Go says it does not know;
its line stays. With --check nothing is written.

Needs python3 with jinja2 3.1.x and nothing else.
"""

import argparse
import json
import sys

import chat_goldens

PATH = chat_goldens.TESTDATA / "constructs.txt"


def answer(environment, variables, template):
    kind, text = chat_goldens.render(environment, template, json.loads(variables or "{}"))
    return json.dumps(text, ensure_ascii=False) if kind == "ok" else "raises " + text.split("\n")[0][:100]


def rewritten(text):
    environment = chat_goldens.environment()
    out, template, head = [], None, None
    lines = iter(text.split("\n"))
    for line in lines:
        out.append(line)
        if template is None:
            if line.split(" ")[0] in ("render", "inexact", "unsupported"):
                head, template = line.split(" ", 2), []
        elif line != "----":
            template.append(line)
        else:
            old = next(lines)
            if head[0] == "render":
                old = answer(environment, "".join(head[2:]), "\n".join(template))
            out.append(old)
            template = None
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    arguments = parser.parse_args()
    old = PATH.read_text(encoding="utf-8")
    new = rewritten(old)
    if not arguments.check:
        PATH.write_text(new, encoding="utf-8")
    elif new != old:
        print(f"{PATH} is not what this Python renders", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
