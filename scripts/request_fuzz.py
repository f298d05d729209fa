#!/usr/bin/env python3
"""Compares dataplane/chat with the engines' own code on mutated request bodies.

    PYTHON scripts/request_fuzz.py vllm [--seconds 60] [--seed N]
    PYTHON scripts/request_fuzz.py sglang --folder FOLDER [...]

PYTHON and FOLDER as for vllm_render_goldens.py and sglang_render_goldens.py. Bodies are
those of dataplane/chat/testdata/requests.jsonl with fields removed, repeated, reordered
and replaced. It reports where Go says that it knows the whole prompt and the engine
makes another one, or none:

    wrong      another text
    accepts    the engine refuses the request (harmless: nothing is generated)
    refuses    Go says that the engine refuses it, but it does not

Exit status 1 if there is a wrong one.
"""

import argparse
import asyncio
import collections
import copy
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "dataplane" / "chat"
TESTDATA = PACKAGE / "testdata"
TEMPLATES = ["variables_text", "variables_parts", "chatml_think", "observation"]
CASES_A_ROUND = 150

VALUES = [None, True, False, 0, 1, -1, 1.5, 1e-7, "", "x", " ", "auto", "none", "é\u00a0\ud83d\ude00", "<think>\na\n</think>b", "{}", '{"a": 1}', "x-anthropic-billing-header: 1\nrest", [], {}, ["x"], {"type": "text", "text": "t"}, {"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}}, [{"type": "text", "text": "u"}, {"type": "text", "text": ""}], {"role": "system", "content": "s"}, {"role": "developer", "content": "d"}, {"role": "assistant", "content": "a", "reasoning": "r"}, {"role": "tool", "tool_call_id": "c", "content": "t"}]
FIELDS = ["role", "content", "name", "tool_calls", "tool_call_id", "reasoning", "reasoning_content", "type", "text", "tools", "tool_choice", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "reasoning_effort", "documents", "strict", "description", "parameters", "function", "arguments", "zzz", "refusal", "thinking", "enable_thinking", "system", "instructions", "status", "defer_loading"]


def spots(value, found):
    keys = list(value.keys()) if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], (dict, list)):
            spots(value[key], found)
    return found


def mutate(r, body):
    body = copy.deepcopy(body)
    for _ in range(r.randint(1, 3)):
        found = [s for s in spots(body, []) if s[1] != "model"]
        if not found:
            break
        holder, key = r.choice(found)
        kind = r.random()
        if kind < 0.3:
            holder[key] = copy.deepcopy(r.choice(VALUES))
        elif kind < 0.5:
            del holder[key]
        elif kind < 0.65 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[r.randrange(len(holder))]))
        elif kind < 0.75 and isinstance(holder, list):
            r.shuffle(holder)
        elif isinstance(holder, dict):
            if r.random() < 0.4:
                items = list(holder.items())
                r.shuffle(items)
                holder.clear()
                holder.update(items)
            else:
                holder[r.choice(FIELDS)] = copy.deepcopy(r.choice(VALUES))
    return body


def prepare_go(binary, folder, cases):
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    done = subprocess.run([binary, "-test.run", "^TestPrepareCases$", "-chat.cases", folder / "cases.jsonl"], cwd=PACKAGE, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    with open(folder / "cases.jsonl.out", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def vllm_renderer(arguments):
    import vllm_render_goldens as goldens

    goldens.hf.datetime = goldens.FixedClock
    vllm = goldens.Vllm(pathlib.Path.home() / ".cache/warmpath/vllm-cpu/tiny")
    tokenizer = vllm.renderer.get_tokenizer()
    loop = asyncio.new_event_loop()
    return lambda request, template: loop.run_until_complete(goldens.line_of(vllm, request, template, tokenizer))


def sglang_renderer(arguments):
    import sglang_render_goldens as goldens

    chat, protocol, utils = goldens.load(arguments.folder)
    servers = {}
    for template in TEMPLATES:
        source = (TESTDATA / "templates" / (template + ".jinja")).read_text(encoding="utf-8")
        servers[template] = goldens.serving(chat, utils, source)
    return lambda request, template: goldens.line_of(chat, protocol, servers[template], request, template)


def wanted(line):
    """The engine's line as TestPrepareCases writes it; None if it refuses."""
    _, _, kind, rest = line.split(" ", 3)
    if kind in ("refused", "changed"):
        return None
    if kind == "ids":
        return "ids"
    decoder, texts = json.JSONDecoder(), []
    while rest:
        text, end = decoder.raw_decode(rest)
        texts.append(text)
        rest = rest[end:].lstrip(" ")
    return ("ok " if kind == "suffix" else kind + " ") + "|".join(texts)


def verdict(engine, go):
    if go["class"] in ("inexact", "limit", "malformed", "prefix"):
        return "unknown" if engine is not None else "same"
    if engine is None:
        return "same" if go["class"] else "accepts"
    if go["class"]:
        return "refuses"
    return "same" if engine == go["text"] else "wrong"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("engine", choices=["vllm", "sglang"])
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    render = {"vllm": vllm_renderer, "sglang": sglang_renderer}[arguments.engine](arguments)
    with open(TESTDATA / "requests.jsonl", encoding="utf-8") as file:
        requests = [json.loads(line) for line in file]
    if arguments.engine == "sglang":
        requests = [q for q in requests if q["endpoint"] == "chat"]
    r = random.Random(arguments.seed)
    counts, reasons, shown = collections.Counter(), collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        binary = folder / "chat.test"
        subprocess.run(["go", "test", "-c", "-o", binary, "."], cwd=PACKAGE, check=True)
        end = time.monotonic() + arguments.seconds
        while time.monotonic() < end:
            cases = []
            for _ in range(CASES_A_ROUND):
                q = r.choice(requests)
                cases.append({"engine": arguments.engine, "template": r.choice(TEMPLATES), "name": q["name"], "endpoint": q["endpoint"], "body": mutate(r, q["body"])})
            for case, go in zip(cases, prepare_go(binary, folder, cases)):
                line = render({**case, "text": json.dumps(case)}, case["template"])
                what = verdict(wanted(line), go)
                counts[what] += 1
                if what == "unknown":
                    reasons[go["text"][:100]] += 1
                if what in ("wrong", "accepts", "refuses"):
                    shown[what] += 1
                    if shown[what] <= (40 if what == "wrong" else 15):
                        print(f"{what}: {case['endpoint']} {case['template']} {json.dumps(case['body'])}\n   engine {line!r:.400}\n   go     {go!r:.400}")
    print(dict(counts))
    for reason, n in reasons.most_common(20):
        print(f"  {n:6} {reason}")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
