#!/usr/bin/env python3
"""Writes what Python's jinja2 renders, as goldens for dataplane/chat.

    scripts/chat_goldens.py [--templates DIR]... [--out DIR] [--check]

Each template of dataplane/chat/testdata/templates and of .cache/templates (see
scripts/templates.sh) is rendered with each conversation of
dataplane/chat/testdata/conversations.jsonl, in an environment set up as
transformers 4.43 to 5.19 set theirs up for apply_chat_template. One golden file a
template is written to dataplane/chat/testdata/goldens, named after the template:

    template SHA256 SOURCE
    CONVERSATION ok BYTES SHA256 HEAD
    CONVERSATION raises ERROR

HEAD is a JSON string: the whole text for templates of this repository, the first
60 characters for others, whose texts are not ours to copy. With --check nothing is
written; the exit status says whether the goldens are what this machine renders.

Needs python3 with jinja2 3.1.x and nothing else.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TESTDATA = REPOSITORY / "dataplane" / "chat" / "testdata"

# The clock of every golden: strftime_now answers with this local time.
NOW = datetime.datetime(2026, 3, 5, 7, 8, 9)

# What special_tokens_map would bring in; any text does.
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

# A golden holds at most this many characters of a foreign template's output.
FOREIGN_HEAD_CHARACTERS = 60


class Generation(jinja2.ext.Extension):
    """The tag {% generation %}: its body, unchanged."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _body(self, context, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(env, source, variables):
    """The text, or the error, of one rendering: ("ok", text) or ("raises", why)."""
    try:
        return "ok", env.from_string(source).render(**{**SPECIAL_TOKENS, **variables})
    except RecursionError:
        return "raises", "RecursionError"
    except Exception as error:  # whatever Python raises, the engine refuses the request
        return "raises", f"{type(error).__name__}: {str(error)}"


def source_of(path):
    """Where a template came from: the first line of NAME.source beside it, if there."""
    beside = path.with_suffix(".source")
    return beside.read_text().split("\n")[0] if beside.exists() else "testdata/templates/" + path.name


def golden(env, path, conversations):
    # newline="" keeps carriage returns: jinja2 itself turns them into newlines.
    with open(path, encoding="utf-8", newline="") as file:
        source = file.read()
    own = path.parent == TESTDATA / "templates"
    lines = [f"template {hashlib.sha256(source.encode()).hexdigest()} {source_of(path)}"]
    for conversation in conversations:
        kind, text = render(env, source, conversation["vars"])
        if kind == "raises":
            lines.append(f"{conversation['name']} raises {json.dumps(text[:200])}")
            continue
        data = text.encode("utf-8", "surrogatepass")
        head = text if own else text[:FOREIGN_HEAD_CHARACTERS]
        lines.append(
            f"{conversation['name']} ok {len(data)} {hashlib.sha256(data).hexdigest()} "
            + json.dumps(head, ensure_ascii=False)
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--templates", action="append", type=pathlib.Path, help="folders of *.jinja files")
    parser.add_argument("--out", type=pathlib.Path, default=TESTDATA / "goldens")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    arguments = parser.parse_args()
    folders = [folder.resolve() for folder in arguments.templates or []] or [TESTDATA / "templates", REPOSITORY / ".cache" / "templates"]
    with open(TESTDATA / "conversations.jsonl", encoding="utf-8") as file:
        conversations = [json.loads(line) for line in file if line.strip()]
    env = environment()
    arguments.out.mkdir(parents=True, exist_ok=True)
    stale = rendered = raised = 0
    for path in sorted(path for folder in folders for path in folder.glob("*.jinja")):
        text = golden(env, path, conversations)
        rendered += text.count(" ok ")
        raised += text.count(" raises ")
        target = arguments.out / (path.stem + ".txt")
        if arguments.check:
            if not target.exists() or target.read_text(encoding="utf-8") != text:
                print(f"{target} is not what jinja2 {jinja2.__version__} renders", file=sys.stderr)
                stale += 1
        else:
            target.write_text(text, encoding="utf-8")
    print(f"{rendered} renderings and {raised} errors with jinja2 {jinja2.__version__}")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
