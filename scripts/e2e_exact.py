#!/usr/bin/env python3
"""Prove on real vLLM engines that the router knows their prompts and caches: it
starts the router before engines of scripts/vllm-cpu.sh, sends conversations of
many kinds, and compares each decision record with what the engine's answer says.

    scripts/e2e_exact.sh        (which starts the engines)

Checks of every answer:
  exact    the record says that the prompt's tokens were known
  length   its prompt_tokens are usage.prompt_tokens; of a stream without usage,
           the engine is asked for the prompt's tokens
  cached   its matched_tokens of the node that answered, which were known before
           it was asked, are usage.prompt_tokens_details.cached_tokens: in 99 %
           of each phase, and the engines' own hit counters agree in the sum
and of the whole run: no length that differed, no event that was not understood,
blocks that were evicted.

Phases: a fleet at rest, two requests at once, after an engine's cache was reset,
while and after the port of one engine's events was cut for ten seconds, after
each engine was killed and came again, after a restart of the router alone.

Prints a table and, as the last line, one JSON object. Exit codes: 0 all checks
passed, 1 one failed, 2 wrong usage. Needs nothing but Python's own library.
"""

import argparse
import concurrent.futures
import http.client
import json
import random
import re
import secrets
import sys
import threading
import time
import urllib.request

from e2e_lab import Engines, Failure, Router
from e2e_talk import Traffic
from e2e_vllm import connect, get_json, read_stream, settled_hits, table

TIMEOUT = 120
SHARE = 0.99  # of a phase's answers whose cached tokens are as predicted
SHARE_AT_ONCE = 0.9  # … of requests at once: one's blocks may be evicted for the other after both were routed
CUT_SECONDS = 10
ERRORS = (Failure, OSError, http.client.HTTPException, ValueError, KeyError)


class Phase:
    """A part of the run and what its answers said."""

    def __init__(self, name, judged=True, share=SHARE):
        self.name, self.judged, self.share = name, judged, share
        self.answers, self.notes, self.misses, self.failures = [], [], [], []
        self.seconds, self.hits, self.evicted = 0.0, None, 0

    def fail(self, text):
        self.failures.append(f"{self.name}: {text}")

    def missed(self, answer, record):
        """Notes an answer with other cached tokens than predicted."""
        self.misses.append({"answer": answer, "record": record})
        others = [c["in_flight"] for c in record["candidates"] if c["node"] == answer["node"]][0]
        self.notes.append(f"{answer['kind']}, turn {answer['turn']}: {answer['cached']} of {answer['prompt']} tokens cached at {answer['node']}, "
                          f"{answer['matched']} predicted; other requests there: {others}")

    def compared(self):
        """Answers whose cached tokens are to be as predicted."""
        return [a for a in self.answers if a["judged"]]

    def row(self):
        """What the table and the summary show. more and less: answers with more
        or less cached than predicted. Streams without usage do not say what was
        cached: cached_tokens has the prediction of theirs, which hit_tokens, the
        engines' own count, proves in the sum."""
        a, c = self.answers, self.compared()
        return {
            "phase": self.name, "answers": len(a),
            "exact": sum(x["exactness"] == "exact" for x in a), "lengths_equal": sum(x["length_equal"] for x in a),
            "compared": len(c), "cached_equal": sum(x["matched"] == x["cached"] for x in c),
            "more": sum(x["matched"] < x["cached"] for x in c), "less": sum(x["matched"] > x["cached"] for x in c),
            "prompt_tokens": sum(x["prompt"] for x in a), "predicted_tokens": sum(x["matched"] for x in a),
            "cached_tokens": sum(x["matched"] if x["cached"] is None else x["cached"] for x in a), "hit_tokens": self.hits,
            "evicted_blocks": self.evicted, "seconds": round(self.seconds, 1),
        }


class Check:
    """The whole run."""

    def __init__(self, args):
        self.args = args
        self.engines = Engines(args.engines)
        self.router = Router(args.router, args.tokenizer, args.folder, args.ports, self.engines)
        self.run = secrets.token_hex(4)
        self.rng = random.Random(args.seed)
        self.traffic = Traffic(self.run, random.Random(args.seed + 1), args.talks)
        self.lock = threading.Lock()
        self.phases, self.unsaid = [], set()
        self.url_of = {e["name"]: e["url"] for e in self.engines.all.values()}

    # One answer.

    def ask(self, phase):
        with self.lock:
            talk = self.traffic.borrow()
            body = talk.next_body("tiny")
            how = self.rng.choice(("whole", "whole", "usage", "usage", "stream"))
            escaped = self.rng.random() < 0.5
            # A session stays at its node; now and then a conversation leaves.
            session = talk.session if self.rng.random() < 0.85 else str(self.rng.random())
        if how != "whole":
            body["stream"] = True
        if how == "usage":
            body["stream_options"] = {"include_usage": True}
        answer = {"kind": talk.kind, "how": how, "turn": talk.turns, "session": session, "escaped": escaped, "judged": False}
        try:
            before = self.router.trust()
            text = self.send(talk.path, body, answer)
            self.compare(phase, answer, body, before)
            talk.took(text, answer["prompt"])
        except ERRORS as e:
            phase.fail(f"{talk.kind}, turn {talk.turns}, {how}: {type(e).__name__}: {e}")
            talk.over = True
        with self.lock:
            self.traffic.give(talk)

    def send(self, path, body, answer):
        """Sends a request and returns the answer's text."""
        connection, _ = connect(self.router.url, TIMEOUT)
        try:
            connection.request("POST", path, json.dumps(body, ensure_ascii=answer["escaped"]).encode(), {
                "Content-Type": "application/json", "X-Session-Id": answer["session"]})
            got = connection.getresponse()
            answer["id"], answer["node"] = got.getheader("X-Request-Id"), got.getheader("X-Routed-To")
            if got.status != 200:
                raise Failure(f"status {got.status}: {got.read(300).decode('utf-8', 'replace')}")
            if answer["how"] == "whole":
                whole = json.loads(got.read())
                choice, usage = whole["choices"][0], whole["usage"]
                text = choice["text"] if "text" in choice else choice["message"].get("content") or ""
            else:
                text, usage = read_stream(got, {"ttft_ms": None}, 0, usage_wanted=answer["how"] == "usage")
        finally:
            connection.close()
        answer["prompt"], answer["cached"] = None, None
        if usage:
            answer["prompt"] = usage["prompt_tokens"]
            answer["cached"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return text

    def compare(self, phase, answer, body, before):
        """Compares an answer with the router's record of it."""
        record = self.router.decision(answer["id"])
        if answer["prompt"] is None:
            answer["prompt"] = self.tokens_of(answer["node"], body)
        node = record["node"]
        matched = [c["matched_tokens"] for c in record["candidates"] if c["node"] == node]
        answer |= {
            "matched": matched[0] if matched else 0, "exactness": record["exactness"],
            "length_equal": record["prompt_tokens"] == answer["prompt"], "tries": len(record["tries"]),
        }
        if node != answer["node"] or not matched:
            phase.fail(f"the record of {answer['id']} is not of {answer['node']}: {json.dumps(record)}")
        if answer["exactness"] != "exact" or not answer["length_equal"]:
            phase.fail(f"not exact: {json.dumps(answer)}; record: {json.dumps(record)}")
        live = before.get(node) == "live" and self.router.trust().get(node) == "live"
        answer["judged"] = phase.judged and live and answer["cached"] is not None and node not in self.unsaid
        if node in self.unsaid:
            phase.notes.append(f"{node} said that its cache was reset with its first step after that: "
                               f"{answer['matched']} tokens predicted, {answer['cached']} cached")
            self.unsaid.discard(node)
        if answer["judged"] and answer["matched"] != answer["cached"]:
            phase.missed(answer, record)
        phase.answers.append(answer)

    def tokens_of(self, node, body):
        """How many tokens the engine makes of a request's prompt."""
        if isinstance(body.get("prompt"), list):
            return len(body["prompt"])
        keys = ("model", "messages", "tools", "prompt", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")
        question = json.dumps({k: body[k] for k in keys if k in body}).encode()
        request = urllib.request.Request(self.url_of[node] + "/tokenize", question, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return json.load(answer)["count"]

    # Phases.

    def traffic_for(self, phase, requests, at_once=1, until=None):
        """Sends so many requests, and goes on until until() says so."""
        began = time.monotonic()
        removed = self.removed()
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            sent, enough = 0, False
            while sent < requests or not enough:
                for task in [pool.submit(self.ask, phase) for _ in range(at_once)]:
                    task.result()
                sent += at_once
                enough = until is None or until()
        phase.seconds += time.monotonic() - began
        phase.evicted += int(self.removed() - removed)

    def removed(self):
        return sum(v for labels, v in self.router.counters("warmpath_kv_events_total").items() if ("kind", "removed") in labels)

    def phase(self, name, requests, at_once=1):
        """A phase of the whole fleet, all of it compared."""
        phase = self.begin(name, share=SHARE if at_once == 1 else SHARE_AT_ONCE)
        before = settled_hits(self.url_of.values(), TIMEOUT)
        self.traffic_for(phase, requests, at_once)
        phase.hits = int(sum(settled_hits(self.url_of.values(), TIMEOUT)) - sum(before))
        self.judge(phase)

    def begin(self, name, judged=True, share=SHARE):
        phase = Phase(name, judged, share)
        self.phases.append(phase)
        print(f"{time.strftime('%H:%M:%S')} {name} …", file=sys.stderr, flush=True)
        return phase

    def judge(self, phase):
        row = phase.row()
        if row["cached_equal"] < phase.share * row["compared"] or not row["compared"]:
            phase.fail(f"{row['cached_equal']} of {row['compared']} predictions of cached tokens were right: {json.dumps(phase.misses[:3])}")
        if phase.hits is not None and abs(phase.hits - row["cached_tokens"]) > (1 - phase.share) * phase.hits:
            phase.fail(f"the engines counted {phase.hits} cached tokens, {row['cached_tokens']} were said and predicted")

    def reset(self):
        number = next(iter(self.engines.all))
        self.engines.reset(number)
        self.unsaid.add(self.engines.all[number]["name"])
        self.phase("after a cache reset", self.args.requests)

    def cut(self):
        """Traffic goes on while one node cannot say what it holds, and until it
        has said what was missed."""
        phase = self.begin("while events are cut", judged=False)
        router, node, seen = self.router, self.router.cuttable, set()
        lost = self.sum_of("warmpath_kv_event_gaps_lost_total")
        router.forwarder.cut()
        back = threading.Timer(CUT_SECONDS, router.forwarder.join)
        back.start()
        began = time.monotonic()

        def whole_again():
            trust = router.trust()[node]
            seen.add(trust)
            if time.monotonic() - began > CUT_SECONDS + 60:
                raise Failure(f"{node} is {trust} a minute after its events were to be had again")
            return trust == "live" and not back.is_alive()

        self.traffic_for(phase, 10, until=whole_again)
        phase.notes.append(f"{node}: trust was {', '.join(sorted(seen))}, live again by {time.monotonic() - began:.1f} s; "
                           f"{sum(a['node'] == node for a in phase.answers)} requests went there meanwhile")
        if "gapped" not in seen:
            phase.fail(f"{node} was not gapped while its events were cut: {seen}")
        if self.sum_of("warmpath_kv_event_gaps_lost_total") != lost:
            phase.fail("what was missed was not had again by a replay")
        self.phase("after events were cut", self.args.requests)

    def sum_of(self, name):
        return sum(self.router.counters(name).values())

    def kill(self, number):
        """An engine dies, requests go on, it comes again with nothing cached."""
        name = self.engines.all[number]["name"]
        phase = self.begin(f"{name} killed", judged=False)
        self.engines.kill(number)
        self.traffic_for(phase, 10)
        if {a["node"] for a in phase.answers} - {name} == set():
            phase.fail("no other node has answered")
        began = time.monotonic()
        self.engines.start()
        phase.notes.append(f"healthy again after {time.monotonic() - began:.0f} s, and known to the router {self.router.wait_whole():.1f} s later")
        self.phase(f"after {name} was killed", self.args.requests)

    def restart_router(self):
        self.router.stop()
        self.router.start()
        whole = self.router.wait_whole()
        self.phase("after a router restart", self.args.requests)
        self.phases[-1].notes.append(f"all caches known again after {whole:.1f} s")

    def run_all(self):
        self.router.start()
        self.router.wait_whole(240)
        self.phase("at rest", self.args.first)
        self.phase("two at once", self.args.requests, 2)
        if sum(p.evicted for p in self.phases) == 0:
            self.phases[-1].fail("no block was evicted: the engines hold too many for this check")
        self.reset()
        self.cut()
        self.restart_router()
        for number in self.engines.all:
            self.kill(number)

    # The end.

    def totals(self):
        """Failures that the router's own figures tell."""
        failures = []
        for labels, n in self.router.counters("warmpath_prompt_length_checks_total").items():
            if ("result", "different") in labels and n:
                failures.append(f"{n:.0f} prompts were counted otherwise by an engine")
        for labels, n in self.router.counters("warmpath_kv_events_total").items():
            labels = dict(labels)
            if labels["kind"] not in ("stored", "removed", "cleared") and n:
                failures.append(f"{n:.0f} events of {labels['node']} did not count: {labels['kind']}")
        with open(self.router.log) as log:
            failures += [line.strip() for line in log if re.search(r"level=ERROR|panic", line)]
        return failures


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engines", required=True, help="scripts/vllm-cpu.sh")
    p.add_argument("--router", required=True, help="the router's program")
    p.add_argument("--tokenizer", required=True, help="tokenizer.json of the engines' model")
    p.add_argument("--folder", required=True, help="for the router's configuration and log")
    p.add_argument("--ports", default="18080,18081,15557", help="of the router, its admin side, and events",
                   type=lambda s: [int(n) for n in s.split(",")])
    p.add_argument("--talks", type=int, default=14, help="conversations under way")
    p.add_argument("--first", type=int, default=240, help="requests of the first phase")
    p.add_argument("--requests", type=int, default=48, help="requests of each other phase")
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def report(check, failures, seconds):
    rows = [p.row() for p in check.phases]
    keys = list(rows[0]) if rows else ["phase"]
    print(table([[k.replace("_", " ") for k in keys]] + [[r[k] for k in keys] for r in rows]))
    for p in check.phases:
        for note in p.notes:
            print(f"{p.name}: {note}")
    for f in failures:
        print("FAILED", f)
    kinds = {}
    for a in (a for p in check.phases for a in p.answers):
        kinds[a["kind"]] = kinds.get(a["kind"], 0) + 1
    versions = {e: get_json(e, "/version", TIMEOUT).get("version") for e in check.url_of.values()} if not failures else {}
    print(json.dumps({
        "check": "e2e_exact", "ok": not failures, "seconds": round(seconds, 1), "engine_versions": versions, "kinds": kinds,
        "phases": rows, "failures": failures,
    }, ensure_ascii=False))


def main():
    check = Check(arguments())
    began = time.monotonic()
    failures = []
    try:
        check.run_all()
        failures += check.totals()
    except ERRORS as e:
        failures.append(f"cannot go on: {type(e).__name__}: {e}")
    finally:
        check.router.stop()
    failures = [f for p in check.phases for f in p.failures] + failures
    report(check, failures, time.monotonic() - began)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
