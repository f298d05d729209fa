"""The comparison behind load_check.sh, which says what it needs."""

import json
import os
import platform
import random
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

BIN, AIPERF, TOKENIZER, RUNS, SECONDS = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
SERVER_CORE, CLIENT_CORE = "0", "1"
FOREIGN, TRIES = 0.1, 8  # share of a core that others may take before a run is done again, and how often


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A program of ours that listens on one port, for the length of a with."""

    def __init__(self, argv, port):
        self.argv, self.port = argv, port

    def __enter__(self):
        self.process = subprocess.Popen(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(500):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.01)
        self.__exit__()
        raise SystemExit("load_check: %s does not listen" % self.argv[0])

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def run(argv, **more):
    """Runs a client; returns what it printed and its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit("load_check: %s: %s%s" % (" ".join(argv), done.stdout[-2000:], done.stderr[-2000:]))
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def busy_seconds():
    """CPU time that the whole machine has used so far, and that its host took."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, softirq, steal = (int(t) for t in f.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def process_seconds(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quietly(server, measure):
    """Measures again, at most TRIES times, while others use the machine."""
    for _ in range(TRIES):
        begun, busy, ours_before = time.time(), busy_seconds(), process_seconds(server.process.pid)
        figures = measure()
        ours_seconds = figures["cpu_s"] + process_seconds(server.process.pid) - ours_before
        figures["foreign"] = max(0, (busy_seconds() - busy - ours_seconds) / (time.time() - begun))
        if figures["foreign"] <= FOREIGN:
            break
    return figures


def micros(text):
    value, unit = re.fullmatch(r"([0-9.]+)(us|ms|s)", text).groups()
    return float(value) * {"us": 1, "ms": 1e3, "s": 1e6}[unit]


def wrk(url, connections, size, script):
    argv = ["taskset", "-c", CLIENT_CORE, "wrk", "-t1", "-c%d" % connections, "-d%ds" % SECONDS, "--latency"]
    if size:
        argv += ["-s", script, url + "/v1/chat/completions"]
    else:
        argv += [url + "/v1/files"]
    out, cpu = run(argv)
    figure = lambda pattern: re.search(pattern, out, re.MULTILINE).group(1)
    requests = int(figure(r"(\d+) requests in"))
    if "Non-2xx" in out or "Socket errors" in out:
        raise SystemExit("load_check: wrk met errors: " + out)
    return {
        "argv": argv, "rate": float(figure(r"Requests/sec:\s+([0-9.]+)")), "cpu": cpu / requests * 1e6, "cpu_s": cpu,
        "p50": micros(figure(r"^ +50%\s+(\S+)")), "p99": micros(figure(r"^ +99%\s+(\S+)")),
    }


def ours(url, connections, size, _):
    argv = ["taskset", "-c", CLIENT_CORE, BIN + "/warmbench", "load", "--concurrency", str(connections),
            "--duration", "%ds" % SECONDS, "--warmup", "0s", "--model", "bench"]
    argv += ["--url", url, "--size", str(size)] if size else ["--url", url + "/v1/files", "--get"]
    out, cpu = run(argv)
    r = json.loads(out)
    if r["errors"] or r["cut"]:
        raise SystemExit("load_check: warmbench load met errors: " + out)
    return {"argv": argv, "rate": r["requests_per_s"], "cpu": cpu / r["requests"] * 1e6, "cpu_s": cpu,
            "p50": r["e2el_ms"]["p50"] * 1e3, "p99": r["e2el_ms"]["p99"] * 1e3}


def compare_wrk():
    print("== wrk: nodes that answer at once, closed loop; server on core %s, client on core %s" % (SERVER_CORE, CLIENT_CORE))
    print("%d runs of %d s each, in turns; medians; µs, of the client's CPU a request" % (RUNS, SECONDS))
    port = free_port()
    url = "http://127.0.0.1:%d" % port
    folder = tempfile.mkdtemp(prefix="load_check_")
    script = folder + "/post.lua"
    with open(script, "w") as f:
        body = '{"model":"bench","messages":[{"role":"user","content":"%s"}]}'
        f.write("wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = '%s'\n"
                % (body % ("y" * (4096 - len(body) + 2))))
    server = ["taskset", "-c", SERVER_CORE, BIN + "/warmbench", "backend", "--listen", "127.0.0.1:%d" % port]
    print("$", " ".join(server).replace(str(port), "PORT"))
    rows, shown = [], set()
    with Server(server, port) as node:
        for size in (0, 4096):
            for connections in (1, 8, 64):
                figures = {"wrk": [], "warmbench load": []}
                for _ in range(RUNS):
                    for name, client in (("wrk", wrk), ("warmbench load", ours)):
                        f = quietly(node, lambda: client(url, connections, size, script))
                        figures[name].append(f)
                        if (name, size) not in shown:
                            shown.add((name, size))
                            print("$", " ".join(f["argv"]).replace(str(port), "PORT").replace(folder, "TMP"))
                rows.append((size, connections, figures))
    foreign = [f["foreign"] for _, _, figures in rows for runs in figures.values() for f in runs]
    print("%d of %d runs met more than %.0f %% of a core taken by others, %d times in a row" % (
        sum(f > FOREIGN for f in foreign), len(foreign), 100 * FOREIGN, TRIES))
    print("%-10s %4s  %-15s %12s %9s %9s %8s" % ("request", "conn", "client", "requests/s", "p50 µs", "p99 µs", "CPU µs"))
    for size, connections, figures in rows:
        median = {}
        for name, runs in figures.items():
            median[name] = {key: statistics.median(f[key] for f in runs) for key in ("rate", "p50", "p99", "cpu")}
            m = median[name]
            print("%-10s %4d  %-15s %12.0f %9.1f %9.1f %8.2f" % (
                "POST %d" % size if size else "GET", connections, name, m["rate"], m["p50"], m["p99"], m["cpu"]))
        a, b = median["wrk"], median["warmbench load"]
        print("%-10s %4s  %-15s %+11.1f%% %+8.1f%% %+8.1f%%" % (
            "", "", "difference", *(100 * (b[k] / a[k] - 1) for k in ("rate", "p50", "p99"))))
    shutil.rmtree(folder)


RATE, REQUESTS, TOKENS, WORDS = 3, 90, 64, 900


def compare_aiperf():
    print("== aiperf: one simulated engine, %d requests at a constant %d/s, %d output tokens; a fresh engine a run"
          % (REQUESTS, RATE, TOKENS))
    folder = tempfile.mkdtemp(prefix="load_check_")
    words = "the node that holds a prefix answers before any other so we measure how long each request waits".split()
    draw = random.Random(1)
    with open(folder + "/prompts.jsonl", "w") as a, open(folder + "/aiperf.jsonl", "w") as b:
        for i in range(REQUESTS):
            text = "Request %d: %s" % (i, " ".join(draw.choice(words) for _ in range(WORDS)))
            a.write(json.dumps({"prompt": text}) + "\n")
            b.write(json.dumps({"text": text}) + "\n")
    results = {"aiperf": [], "warmbench load": []}
    for n in range(min(RUNS, 3)):
        for name in results:
            port = free_port()
            url = "http://127.0.0.1:%d" % port
            engine = ["taskset", "-c", SERVER_CORE, BIN + "/enginesim", "--port", str(port)]
            if name == "aiperf":
                argv = [AIPERF, "profile", "-m", "sim", "--url", url, "--endpoint-type", "chat", "--streaming",
                        "--use-server-token-count", "--tokenizer", TOKENIZER, "--request-rate", str(RATE),
                        "--request-rate-mode", "constant", "--request-count", str(REQUESTS),
                        "--input-file", folder + "/aiperf.jsonl", "--custom-dataset-type", "single_turn",
                        "--osl", str(TOKENS), "--extra-inputs", "ignore_eos:true", "--ui", "none", "--no-auto-plot",
                        "--artifact-dir", "%s/aiperf-%d" % (folder, n)]
            else:
                argv = ["taskset", "-c", CLIENT_CORE, BIN + "/warmbench", "load", "--url", url, "--rate", str(RATE),
                        "--arrivals", "constant", "--duration", "%ds" % (REQUESTS // RATE), "--warmup", "0s", "--stream",
                        "--output-tokens", str(TOKENS), "--ignore-eos", "--prompts", folder + "/prompts.jsonl"]
            with Server(engine, port):
                out, cpu = run(argv, timeout=300)
            if n == 0:
                for command in (engine, argv):
                    print("$", " ".join(command).replace(str(port), "PORT").replace(folder, "TMP"))
            if name == "aiperf":
                results[name].append(read_aiperf("%s/aiperf-%d" % (folder, n), cpu))
            else:
                results[name].append(read_ours(json.loads(out), cpu))
    shutil.rmtree(folder)
    print("%-22s %12s %15s %11s   (medians of %d)" % ("", "aiperf", "warmbench load", "difference", len(results["aiperf"])))
    for key in results["aiperf"][0]:
        a, b = (statistics.median(r[key] for r in results[name]) for name in ("aiperf", "warmbench load"))
        print("%-22s %12.3f %15.3f %+10.1f%%" % (key, a, b, 100 * (b / a - 1)))
    print("TTFT: aiperf takes the time when Python reads the first event, some milliseconds later than the kernel has it.")
    print("tokens/s: both count tokens from the first request's sending to the last answer's end.")


def read_aiperf(folder, cpu):
    with open(folder + "/profile_export_aiperf.json") as f:
        r = json.load(f)
    if r["request_count"]["avg"] != REQUESTS:
        raise SystemExit("load_check: aiperf finished %s of %d requests" % (r["request_count"]["avg"], REQUESTS))
    return {
        "TTFT mean ms": r["time_to_first_token"]["avg"], "TTFT p50 ms": r["time_to_first_token"]["p50"],
        "TTFT p90 ms": r["time_to_first_token"]["p90"],
        "token time mean ms": r["inter_token_latency"]["avg"], "token time p90 ms": r["inter_token_latency"]["p90"],
        "request mean ms": r["request_latency"]["avg"], "request p90 ms": r["request_latency"]["p90"],
        "tokens/s": r["output_token_throughput"]["avg"], "client's CPU s": cpu,
    }


def read_ours(r, cpu):
    if r["ok"] != REQUESTS:
        raise SystemExit("load_check: warmbench load finished %d of %d requests" % (r["ok"], REQUESTS))
    return {
        "TTFT mean ms": r["ttft_ms"]["mean"], "TTFT p50 ms": r["ttft_ms"]["p50"], "TTFT p90 ms": r["ttft_ms"]["p90"],
        "token time mean ms": r["tpot_ms"]["mean"], "token time p90 ms": r["tpot_ms"]["p90"],
        "request mean ms": r["e2el_ms"]["mean"], "request p90 ms": r["e2el_ms"]["p90"],
        "tokens/s": r["output_tokens_per_s"], "client's CPU s": cpu,
    }


def main():
    version, _ = run([BIN + "/warmbench", "--version"])
    print("machine: %d cores, Linux %s, %s, Python %s" % (os.cpu_count(), platform.release(), version.strip(), platform.python_version()))
    for part in sys.argv[6:]:
        busy, _ = busy_seconds(), time.sleep(1)
        print("idle before: %.0f %%" % (100 - 100 * (busy_seconds() - busy) / os.cpu_count()))
        {"wrk": compare_wrk, "aiperf": compare_aiperf}[part]()


main()
