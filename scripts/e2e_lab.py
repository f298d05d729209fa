"""What e2e_exact.py can start, break and mend: the router, the engines, and the
port that one engine sends its events to.
"""

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request

from e2e_vllm import Failure, get, get_json

CLASSES = {"plain", "tools", "parts", "tools+parts", "options", "tools+options", "parts+options", "tools+parts+options"}


def wait_for(what, seconds, ready, every=0.1):
    """Waits until ready() returns something true, and returns that."""
    deadline = time.monotonic() + seconds
    while True:
        value = ready()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(every)


class Engines:
    """The engines of scripts/vllm-cpu.sh."""

    def __init__(self, script):
        self.script = script
        self.all = self.status()

    def status(self):
        """Engines by number, as the script says."""
        text = subprocess.run([self.script, "status"], capture_output=True, text=True).stdout
        found = {}
        for line in text.splitlines():
            m = re.match(r"engine (\d+) (http\S+) (\w+) (.*)", line)
            if m:
                found[int(m[1])] = dict(p.split("=", 1) for p in m[4].split()) | {"url": m[2], "state": m[3], "name": f"vllm{m[1]}"}
        return found

    def kill(self, number):
        """Ends an engine at once. It leads a process group of its own."""
        pid = int(self.status()[number]["pid"])
        os.killpg(pid, signal.SIGKILL)
        wait_for(f"engine {number} is gone", 30, lambda: self.status()[number]["state"] == "dead")

    def start(self):
        """Starts what does not run."""
        done = subprocess.run([self.script, "start"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"engines do not start: {done.stdout}{done.stderr}")

    def reset(self, number):
        url = self.all[number]["url"] + "/reset_prefix_cache"
        with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=30) as answer:
            answer.read()


class Forwarder:
    """Passes TCP connections on from one local port to another, until cut."""

    def __init__(self, port, to):
        self.port, self.to, self.lock = port, to, threading.Lock()
        self.listener, self.open = None, set()
        self.join()

    def join(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def cut(self):
        """Ends all connections, and takes no new ones."""
        with self.lock:
            listener, self.listener = self.listener, None
            ends, self.open = self.open, set()
        for s in (listener, *ends):
            shut(s)

    def accept(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to), timeout=2)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self.lock:
                if self.listener is not listener:
                    shut(near), shut(far)
                    return
                self.open |= {near, far}
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=(a, b), daemon=True).start()

    def pump(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        with self.lock:
            self.open -= {source, sink}
        shut(source), shut(sink)


def shut(s):
    """Closes a socket that another thread may wait on."""
    try:
        s.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    s.close()


class Router:
    """The router before the engines, as a process."""

    def __init__(self, program, tokenizer, folder, ports, engines):
        listen, admin, self.events = ports
        self.url, self.admin = f"http://127.0.0.1:{listen}", f"http://127.0.0.1:{admin}"
        self.program, self.config, self.log = program, f"{folder}/warmpath.yaml", f"{folder}/warmpath.log"
        self.process, self.forwarder = None, None
        nodes = [self.node(e) for e in engines.all.values()]
        # The rule keeps both engines at work whatever their speed; what is known
        # of prompts and caches does not depend on it.
        config = {
            "policy": {"name": "session"},
            "listen": f"127.0.0.1:{listen}", "admin": {"listen": f"127.0.0.1:{admin}"}, "limits": {"connections": 1000},
            "models": [{"name": "tiny", "tokenizer": tokenizer}], "nodes": nodes,
        }
        with open(self.config, "w") as f:
            json.dump(config, f)  # which is YAML too

    def node(self, engine):
        """An engine that connects is listened to, through the forwarder; one
        that binds is dialled."""
        events = {"endpoint": engine["live"], "replay": engine["replay"]}
        if engine["events"] == "tcp":
            self.forwarder = Forwarder(urllib.parse.urlsplit(engine["live"]).port, self.events)
            self.cuttable = engine["name"]
            events = {"listen": f"tcp://127.0.0.1:{self.events}", "replay": engine["replay"]}
        return {"name": engine["name"], "url": engine["url"], "engine": "vllm", "kv_events": events}

    def start(self):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen([self.program, "serve", "--config", self.config], stdout=log, stderr=log)
        wait_for("the router is ready", 60, self.ready)

    def ready(self):
        if self.process.poll() is not None:
            raise Failure(f"the router ended with {self.process.returncode}")
        try:
            return get(self.admin, "/readyz", 2)[0] == 200
        except OSError:
            return False

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def nodes(self):
        return {n["name"]: n for n in get_json(self.admin, "/api/nodes", 10)}

    def trust(self):
        return {name: n["trust"][0] for name, n in self.nodes().items()}

    def wait_whole(self, seconds=120):
        """Waits until all nodes are ready, followed live, and exact in all
        classes; returns how long that took."""
        began = time.monotonic()
        wait_for("all nodes ready, live and exact", seconds, lambda: all(
            n["state"] == "ready" and n["trust"] == ["live"] and CLASSES <= set(n["exact"]) for n in self.nodes().values()))
        return time.monotonic() - began

    def counters(self, name):
        """A metric's series by their labels."""
        text = get(self.admin, "/metrics", 10)[1]
        found = {}
        for labels, value in re.findall(rf"^{name}(?:\{{([^}}]*)\}})? (\S+)$", text, re.M):
            found[tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels)))] = float(value)
        return found

    def decision(self, request_id):
        """The record of a request that has ended: its end is recorded a moment
        after the client has the last byte."""
        route = "/api/decisions/" + urllib.parse.quote(request_id, safe="")

        def ended():
            record = get_json(self.admin, route, 10)
            return record if record["outcome"] else None

        return wait_for(f"the record of {request_id} is complete", 5, ended, 0.01)
