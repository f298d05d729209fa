#!/usr/bin/env python3
"""Drive real multi-turn chats through the router to real vLLM engines, and check
that later turns find their prefix in the engine's cache.

    scripts/e2e_vllm.py --router http://127.0.0.1:8080 --admin http://127.0.0.1:8081 \
        --engine http://127.0.0.1:8101 --engine http://127.0.0.1:8102
    scripts/e2e_vllm.py --direct --router http://127.0.0.1:8101 --engine http://127.0.0.1:8101

Checks:
  affinity  X-Routed-To of every turn is a node that had an earlier turn of the
            conversation, unless the decision record names a reason to move
  cached    usage.prompt_tokens_details.cached_tokens > 0 on turns 2 to n,
            streamed and not
  counters  vllm:prefix_cache_hits_total, summed over the engines, grew by what
            the answers said
  stream    streams end with a finish reason, usage and [DONE], without an error

Prints a table and, as the last line, one JSON object. Exit codes: 0 all checks
passed, 1 one failed, 2 wrong usage. Needs nothing but Python's own library.
The engines must have no other traffic while it runs.
"""

import argparse
import concurrent.futures
import http.client
import json
import random
import re
import secrets
import sys
import time
import urllib.parse

# Reasons a decision record may give for leaving the nodes of a conversation.
MOVES = {"load", "spill", "retry", "only", "pinned", "probe"}

WORDS = (
    "amber anchor apple arrow autumn basin beacon birch border bridge bronze canal candle carbon castle cedar chapel "
    "circle cliff clover cobalt comet copper coral corner cotton cradle crystal delta desert dragon eagle ember engine "
    "falcon feather field flint forest fossil garden glacier granite harbor hazel horizon island ivory jasper jungle "
    "kernel kettle ladder lantern lagoon lemon linen lotus magnet maple marble meadow mirror mosaic needle nectar "
    "oasis ocean olive onyx orbit orchard paddle pebble pepper pillar planet plaza prairie quarry quartz quiver raven "
    "reef ribbon river saddle saffron sail sandal shadow silver spruce stable summit sunset temple thicket timber "
    "tunnel turret valley velvet violet walnut willow window winter zephyr"
).split()


class Failure(Exception):
    """An answer that is not what the protocol promises."""


def connect(base, timeout):
    """A new connection to a base URL, and the path to put before every route."""
    url = urllib.parse.urlsplit(base)
    return http.client.HTTPConnection(url.hostname, url.port or 80, timeout=timeout), url.path.rstrip("/")


def get(base, route, timeout):
    """Status and body of a GET."""
    connection, prefix = connect(base, timeout)
    try:
        connection.request("GET", prefix + route)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def get_json(base, route, timeout):
    status, body = get(base, route, timeout)
    if status != 200:
        raise Failure(f"GET {base}{route}: {status}: {body[:200]}")
    return json.loads(body)


def counter(base, name, timeout):
    """A counter of an engine's metrics text, summed over its series."""
    status, text = get(base, "/metrics", timeout)
    found = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? ([0-9.eE+-]+)", text, re.M)
    if status != 200 or not found:
        raise Failure(f"GET {base}/metrics: {status}, no {name}")
    return sum(float(v) for v in found)


def settled_hits(engines, timeout):
    """Hit tokens of all engines, read until two readings agree: engines count
    at the end of a step, which may be after the answer."""
    last = None
    for _ in range(20):
        now = [counter(e, "vllm:prefix_cache_hits_total", timeout) for e in engines]
        if now == last:
            break
        last = now
        time.sleep(0.3)
    return now


class Chat:
    """One conversation: its messages and what became of its turns."""

    def __init__(self, number, run, rng):
        self.number = number
        text = " ".join(rng.choice(WORDS) for _ in range(260))
        # What is unique stands first: no two conversations, and no two runs,
        # share a block.
        self.messages = [{"role": "system", "content": f"{run}-{number}. You keep this list in mind: {text}."}]
        self.rng = rng
        self.turns = []

    def ask(self, args):
        question = " ".join(self.rng.choice(WORDS) for _ in range(40))
        self.messages.append({"role": "user", "content": f"Turn {len(self.turns) + 1}: what connects {question}?"})
        stream = (self.number + len(self.turns)) % 2 == 1
        body = {"model": args.model, "messages": self.messages, "max_tokens": args.max_tokens, "temperature": 0}
        if stream:
            body.update(stream=True, stream_options={"include_usage": True})
        turn = {"stream": stream, "node": None, "id": None, "error": None, "prompt": 0, "cached": 0, "ms": 0.0, "ttft_ms": None}
        self.turns.append(turn)
        began = time.monotonic()
        try:
            text = send(args, body, turn, began)
            self.messages.append({"role": "assistant", "content": text})
        except (Failure, OSError, http.client.HTTPException, ValueError, KeyError) as e:
            turn["error"] = f"{type(e).__name__}: {e}"
            self.messages.append({"role": "assistant", "content": ""})
        turn["ms"] = (time.monotonic() - began) * 1000


def send(args, body, turn, began):
    """Send one chat request, fill turn in, and return the answer's text."""
    connection, prefix = connect(args.router, args.timeout)
    try:
        connection.request(
            "POST", prefix + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        turn["node"], turn["id"] = answer.getheader("X-Routed-To"), answer.getheader("X-Request-Id")
        if answer.status != 200:
            raise Failure(f"status {answer.status}: {answer.read(300).decode('utf-8', 'replace')}")
        if not args.direct:
            wanted = ["X-Routed-To", "X-Request-Id"] + ([] if turn["stream"] else ["X-Request-Duration"])
            missing = [h for h in wanted if not answer.getheader(h)]
            if missing:
                raise Failure(f"answer without {', '.join(missing)}")
        if turn["stream"]:
            text, usage = read_stream(answer, turn, began)
        else:
            whole = json.loads(answer.read())
            text, usage = whole["choices"][0]["message"].get("content") or "", whole["usage"]
    finally:
        connection.close()
    turn["prompt"] = usage["prompt_tokens"]
    turn["cached"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return text


def read_stream(answer, turn, began, usage_wanted=True):
    """Text and usage of an event stream, which must end as the protocol says."""
    if not (answer.getheader("Content-Type") or "").startswith("text/event-stream"):
        raise Failure(f"a stream of type {answer.getheader('Content-Type')}")
    text, usage, finish, done = [], None, None, False
    for line in answer:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if done:
            raise Failure("an event after [DONE]")
        if data == b"[DONE]":
            done = True
            continue
        event = json.loads(data)
        if "error" in event:
            raise Failure(f"error event: {data[:200]!r}")
        usage = event.get("usage") or usage
        for choice in event.get("choices", []):
            finish = choice.get("finish_reason") or finish
            piece = choice.get("delta", {}).get("content") or choice.get("text")
            if piece:
                turn["ttft_ms"] = turn["ttft_ms"] or (time.monotonic() - began) * 1000
                text.append(piece)
    if not (done and finish and (usage or not usage_wanted)):
        raise Failure(f"the stream ended early: done {done}, finish_reason {finish}, usage {usage is not None}")
    return "".join(text), usage


def reason_of(args, request_id):
    """Reason of the decision on a request, or why there is none."""
    try:
        record = get_json(args.admin, "/api/decisions/" + urllib.parse.quote(request_id or "", safe=""), args.timeout)
    except (Failure, OSError, http.client.HTTPException, ValueError) as e:
        return f"no record ({e})"
    return record.get("reason") or "none given"


def check_chat(args, chat, failures):
    """Check one conversation; returns its moves, each with the reason given."""
    seen, moves = set(), []
    for n, turn in enumerate(chat.turns, 1):
        where = f"conversation {chat.number} turn {n}{' (streamed)' if turn['stream'] else ''} id {turn['id']}"
        if turn["error"]:
            failures.append(f"{where}: {turn['error']}")
            continue
        if n == 1 and turn["prompt"] <= 200:
            failures.append(f"{where}: only {turn['prompt']} prompt tokens: too short to tell")
        moved = False
        if seen and not args.direct and turn["node"] not in seen:
            moved = True
            reason = reason_of(args, turn["id"])
            moves.append({"conversation": chat.number, "turn": n, "from": sorted(seen), "to": turn["node"], "reason": reason})
            if reason not in MOVES:
                failures.append(f"{where}: went to {turn['node']}, earlier turns to {sorted(seen)}; reason: {reason}")
        if n > 1 and not moved and turn["cached"] <= 0:
            failures.append(f"{where}: {turn['prompt']} prompt tokens at {turn['node'] or 'the engine'}, none of them cached")
        if turn["node"]:
            seen.add(turn["node"])
    return moves


def mean(values):
    values = [v for v in values if v is not None]
    return sum(values) / len(values) if values else None


def by_turn(chats, turns):
    """Means over the conversations, turn by turn."""
    rows = []
    for n in range(turns):
        good = [c.turns[n] for c in chats if not c.turns[n]["error"]]
        rows.append({
            "turn": n + 1,
            "answers": len(good),
            "prompt_tokens": mean(t["prompt"] for t in good),
            "cached_tokens": mean(t["cached"] for t in good),
            "least_cached_tokens": min((t["cached"] for t in good), default=None),
            "ms": mean(t["ms"] for t in good),
            "ttft_ms": mean(t["ttft_ms"] for t in good),
        })
    return rows


def cell(value):
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def table(rows):
    """Rows of cells as text, columns to the right."""
    rows = [[cell(c) for c in r] for r in rows]
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.rjust(w) for c, w in zip(r, widths)) for r in rows)


def print_tables(chats, rows):
    head = ["conversation", "nodes"] + [f"turn {r['turn']}: prompt/cached" for r in rows]
    lines = [head]
    for c in chats:
        nodes = "→".join(dict.fromkeys(t["node"] or "?" for t in c.turns))
        lines.append([c.number, nodes] + ["failed" if t["error"] else f"{t['prompt']}/{t['cached']}" + ("s" if t["stream"] else "") for t in c.turns])
    print(table(lines))
    print("(s: streamed)\n")
    keys = list(rows[0])
    print(table([keys] + [[r[k] for k in keys] for r in rows]))


def run_rounds(args, chats, rng):
    """All conversations' first turns, then all second turns …, in an order of
    their own each round, several at once."""
    with concurrent.futures.ThreadPoolExecutor(args.concurrency) as pool:
        for _ in range(args.turns):
            order = chats[:]
            rng.shuffle(order)
            for task in [pool.submit(c.ask, args) for c in order]:
                task.result()


def check_counters(args, chats, before, after, failures):
    """Engines' own hit counters against what the answers said."""
    said = sum(t["cached"] for c in chats for t in c.turns)
    grew = sum(after) - sum(before)
    if any(b > a for b, a in zip(before, after)):
        failures.append("an engine's hit counter fell: it was restarted meanwhile")
    elif abs(grew - said) > max(64, 0.05 * said):
        failures.append(f"answers said {said} cached tokens, the engines' counters grew by {grew:.0f}")
    return said, grew


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--router", required=True, help="base URL that chats are sent to")
    p.add_argument("--admin", help="base URL of the router's admin side")
    p.add_argument("--engine", action="append", required=True, help="base URL of an engine; once for each")
    p.add_argument("--direct", action="store_true", help="--router is an engine itself: no routing checks")
    p.add_argument("--model", help="default: the first that /v1/models names")
    p.add_argument("--conversations", type=int, default=12)
    p.add_argument("--turns", type=int, default=4)
    p.add_argument("--max-tokens", type=int, default=16)
    p.add_argument("--concurrency", type=int, default=4)
    p.add_argument("--max-moved", type=float, default=0.25, help="share of later turns that may move, with a reason")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--timeout", type=float, default=60, help="seconds a request")
    args = p.parse_args()
    if not args.direct and not args.admin:
        p.error("--admin is needed, or --direct")
    if min(args.conversations, args.concurrency, args.max_tokens) < 1 or args.turns < 2:
        p.error("--conversations, --concurrency and --max-tokens must be at least 1, --turns at least 2")
    return args


def main():
    args = arguments()
    failures = []
    try:
        args.model = args.model or get_json(args.router, "/v1/models", args.timeout)["data"][0]["id"]
        versions = {e: get_json(e, "/version", args.timeout).get("version") for e in args.engine}
        before = settled_hits(args.engine, args.timeout)
    except (Failure, OSError, http.client.HTTPException, ValueError, KeyError, IndexError) as e:
        print(f"e2e_vllm: cannot begin: {type(e).__name__}: {e}", file=sys.stderr)
        return 1
    rng = random.Random(args.seed)
    run = secrets.token_hex(4)
    chats = [Chat(n, run, random.Random(f"{args.seed}/{n}")) for n in range(1, args.conversations + 1)]
    began = time.monotonic()
    run_rounds(args, chats, rng)
    seconds = time.monotonic() - began
    moves = [m for c in chats for m in check_chat(args, c, failures)]
    later = args.conversations * (args.turns - 1)
    if len(moves) > args.max_moved * later:
        failures.append(f"{len(moves)} of {later} later turns moved to another node: more than {args.max_moved:.0%}")
    said, grew = None, None
    try:
        said, grew = check_counters(args, chats, before, settled_hits(args.engine, args.timeout), failures)
    except (Failure, OSError, http.client.HTTPException) as e:
        failures.append(f"engines' counters: {e}")
    rows = by_turn(chats, args.turns)
    print_tables(chats, rows)
    nodes = {}
    for t in (t for c in chats for t in c.turns if t["node"]):
        nodes[t["node"]] = nodes.get(t["node"], 0) + 1
    for f in failures:
        print("FAILED", f)
    summary = {
        "check": "e2e_vllm", "ok": not failures, "direct": args.direct, "model": args.model, "engine_versions": versions,
        "conversations": args.conversations, "turns": args.turns, "seconds": round(seconds, 2), "nodes": nodes, "moves": moves,
        "cached_tokens_said": said, "hit_tokens_counted": grew, "by_turn": rows, "failures": failures,
    }
    print(json.dumps(summary))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
