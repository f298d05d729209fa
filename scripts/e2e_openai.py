#!/usr/bin/env python3
"""Drives simulated engines through the router with the OpenAI client.

    .cache/venv/bin/python scripts/e2e_openai.py            starts bin/enginesim and bin/warmpath itself
    .cache/venv/bin/python scripts/e2e_openai.py --direct   talks to one simulated engine, without a router

Prints one line a check and exits with 1 when any of them failed.
"""

import argparse
import contextlib
import json
import pathlib
import select
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import openai

MODEL = "sim"
START_SECONDS = 20


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextlib.contextmanager
def program(arguments, **options):
    """Runs a program of ours and ends it, by SIGTERM first."""
    process = subprocess.Popen(arguments, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def get_json(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def wait_until(what, holds, seconds=START_SECONDS):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError):
            if holds():
                return
        time.sleep(0.05)
    raise RuntimeError(f"waited {seconds} s in vain: {what}")


def first_line(process):
    if not select.select([process.stdout], [], [], START_SECONDS)[0]:
        raise RuntimeError("enginesim printed no addresses")
    return json.loads(process.stdout.readline())


def router_config(listen, admin, engines):
    nodes = [{"name": f"node{i}", "url": e["url"]} for i, e in enumerate(engines)]
    # JSON is YAML.
    return json.dumps({"listen": listen, "admin": {"listen": admin}, "limits": {"connections": 1000}, "nodes": nodes}, indent=1)


def alive(process):
    if process.poll() is not None:
        raise RuntimeError(f"the router ended with status {process.returncode}")
    return True


def answers(url):
    with urllib.request.urlopen(url, timeout=2) as answer:
        return answer.status == 200


class Checks:
    def __init__(self, base, admin, direct):
        self.base, self.admin, self.direct = base, admin, direct
        self.client = openai.OpenAI(base_url=base + "/v1", api_key="not-a-key", max_retries=0, timeout=30)

    def chat(self, messages, **more):
        raw = self.client.chat.completions.with_raw_response.create(
            model=MODEL, messages=messages, max_tokens=16, temperature=0, **more
        )
        return raw, raw.parse()

    def models(self):
        names = [m.id for m in self.client.models.list()]
        assert MODEL in names, f"models are {names}"

    def chat_plain(self):
        raw, answer = self.chat([{"role": "user", "content": "Say something."}])
        assert answer.choices[0].message.content, "no content"
        assert answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0, f"usage is {answer.usage}"
        if not self.direct:
            for name in ("x-request-id", "x-routed-to", "x-request-duration"):
                assert raw.headers.get(name), f"no {name} in {dict(raw.headers)}"

    def chat_stream(self):
        _, stream = self.chat(
            [{"role": "user", "content": "Say something slowly."}], stream=True, stream_options={"include_usage": True}
        )
        text, usage = "", None
        for chunk in stream:
            usage = chunk.usage or usage
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
        assert text, "no text came"
        assert usage and usage.completion_tokens > 0, f"usage is {usage}"

    def completion(self):
        answer = self.client.completions.create(model=MODEL, prompt="Once upon a time", max_tokens=8)
        assert answer.choices[0].text, "no text"

    def turns_stay_warm(self):
        """Later turns go where the first went, and find its blocks."""
        talks = [
            [{"role": "system", "content": f"Assistant {k}. " + "Answer briefly and name your source. " * 40}] for k in range(6)
        ]
        homes = [None] * len(talks)
        for turn in range(3):
            for k, messages in enumerate(talks):
                messages.append({"role": "user", "content": f"Question {turn} of talk {k}: what follows?"})
                raw, answer = self.chat(messages)
                messages.append({"role": "assistant", "content": answer.choices[0].message.content})
                node = raw.headers.get("x-routed-to")
                homes[k] = homes[k] or node
                assert node == homes[k], f"talk {k}, turn {turn}: went to {node}, began on {homes[k]}"
                details = answer.usage.prompt_tokens_details
                cached = details.cached_tokens if details else 0
                assert turn == 0 or cached > 0, f"talk {k}, turn {turn}: nothing was cached on {node}"

    def unknown_model(self):
        try:
            self.client.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "x"}])
        except openai.NotFoundError as error:
            assert error.body and error.body.get("message"), f"body is {error.body}"
            return
        raise AssertionError("an unknown model was accepted")

    def malformed(self):
        request = urllib.request.Request(
            self.base + "/v1/chat/completions", b'{"model":', {"Content-Type": "application/json"}, method="POST"
        )
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except urllib.error.HTTPError as error:
            assert error.code == 400, f"status {error.code}"
            assert "message" in json.load(error)["error"], "the error has no message"
            return
        raise AssertionError("a malformed body was accepted")

    def leaving_frees_the_node(self):
        stream = self.client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Talk for long."}], max_tokens=4000, stream=True
        )
        next(iter(stream))
        stream.close()
        if not self.direct:
            nodes = self.admin + "/api/nodes"
            wait_until("in_flight is 0 on every node", lambda: all(n["in_flight"] == 0 for n in get_json(nodes)), 10)

    def run(self):
        failed = 0
        for check in (
            self.models, self.chat_plain, self.chat_stream, self.completion, self.turns_stay_warm,
            self.unknown_model, self.malformed, self.leaving_frees_the_node,
        ):
            try:
                check()
                print(f"ok    {check.__name__}")
            except (AssertionError, RuntimeError, openai.OpenAIError, OSError, ValueError, KeyError) as error:
                failed += 1
                print(f"FAIL  {check.__name__}: {type(error).__name__}: {error}")
        return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("bin"), help="folder of the programs")
    parser.add_argument("--direct", action="store_true", help="one engine, no router")
    parser.add_argument("--engines", type=int, default=3)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="warmpath-e2e-")))
        simulator = stack.enter_context(program(
            [given.bin / "enginesim", "--engines", str(1 if given.direct else given.engines), "--model", MODEL,
             "--time-scale", "0.1", "--output", "json", "--with-parent"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ))
        engines = first_line(simulator)["engines"]
        if given.direct:
            return 1 if Checks(engines[0]["url"], None, True).run() else 0
        listen, admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
        config, log = folder / "warmpath.yaml", folder / "warmpath.log"
        config.write_text(router_config(listen, admin, engines))
        out = stack.enter_context(log.open("w"))
        router = stack.enter_context(program([given.bin / "warmpath", "serve", "--config", config], stdout=out, stderr=out))
        try:
            wait_until("the router is ready", lambda: alive(router) and answers(f"http://{admin}/readyz"))
            wait_until(
                "every node is ready",
                lambda: all(n["state"] == "ready" for n in get_json(f"http://{admin}/api/nodes")),
            )
            failed = Checks(f"http://{listen}", f"http://{admin}", False).run()
        except RuntimeError as error:
            print(f"FAIL  {error}")
            failed = 1
        if failed:
            print("the router printed:", log.read_text()[-4000:], sep="\n")
        return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
