#!/usr/bin/env python3
"""Writes a table and plots of what `make bench-peers` measured.

    python bench/peers/plot.py bench/results/peers.jsonl

The table peers.md and the plots peers-bodies.svg, peers-streams.svg and
peers-latency.svg lie beside the results. Without matplotlib there is the table
only. Nothing is measured here: all figures are medians of the summaries.
"""

import json
import pathlib
import sys

# The order of rows and legends, with names for people.
NAMES = {
    "direct": "no proxy",
    "warmpath": "warmpath (text)",
    "warmpath-exact": "warmpath (tokens, seen before)",
    "warmpath-exact-new": "warmpath (tokens, never seen)",
    "nginx": "nginx",
    "haproxy": "HAProxy",
    "envoy": "Envoy",
    "smg": "SMG",
    "vllm-router": "vllm-router",
    "litellm": "LiteLLM",
    "httputil": "Go httputil",
}
# Two ways of one peer: the cheaper one counts, and the table says which.
WAYS = {
    "nginx": {"nginx": "passed on", "nginx-buffered": "read first"},
    "haproxy": {"haproxy": "16 KB buffers", "haproxy-128k": "128 KB buffers"},
}
COLOURS = {
    "warmpath": "#c1121f", "warmpath-exact": "#f4743b", "warmpath-exact-new": "#f7b267",
    "nginx": "#1b7837", "haproxy": "#2166ac", "envoy": "#762a83", "smg": "#01665e",
    "vllm-router": "#8c510a", "litellm": "#636363", "httputil": "#35978f",
}
ABSENT = "–"
DIRECT = "direct"


class Results:
    """The summaries of one file, by load and what it was measured with."""

    def __init__(self, path):
        self.environments, self.failures, self.summaries, self.rows = [], [], [], {}
        for line in path.read_text().splitlines():
            record = json.loads(line)
            kind = record["record"]
            if kind == "environment":
                self.environments.append(record)
            elif kind == "failure":
                self.failures.append(record)
            elif kind == "summary":
                self.summaries.append(record)
                self.rows[(point(record), record["proxy"])] = record

    def points(self, load, one_core=False):
        found = {point(s) for s in self.summaries if s["load"] == load and s["one_core"] == one_core}
        return sorted(found)

    def best(self, at, name, figure):
        """The summary of a peer at a point, its cheaper way if it has two."""
        ways = WAYS.get(name, {name: ""})
        rows = [self.rows[(at, way)] for way in ways if (at, way) in self.rows]
        rows = [r for r in rows if not r["errors"] and median(r, figure) is not None]
        return min(rows, key=lambda r: median(r, figure), default=None)

    def names(self):
        present = {s["proxy"] for s in self.summaries}
        return [n for n in NAMES if n in present or present & set(WAYS.get(n, {}))]


def point(s):
    return (s["load"], s["one_core"], s["size_bytes"], s["concurrency"], s.get("interval_ms", 0))


def median(row, figure):
    value = row.get(figure)
    return value["median"] if isinstance(value, dict) else value


def number(value):
    """Three digits say all that is known."""
    if value is None:
        return ABSENT
    if abs(value) >= 100:
        return f"{round(value):,}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def noise(row):
    """Marks what was measured on a busy machine in more than half of its runs."""
    return " ≈" if 2 * row["noisy_runs"] > row["runs"] else ""


def size(n):
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if n >= unit:
            return f"{n / unit:g} {name}"
    return f"{n} B"


def title(at):
    load, _, body, connections, interval = at
    if load == "get":
        return f"GET, {connections}"
    if load == "stream":
        return f"{connections:,} at {interval:g} ms"
    return f"{size(body)}, {connections}"


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def bodies_tables(r):
    points = r.points("get") + r.points("post")
    costs, speeds = [], []
    for name in r.names():
        cost, speed = [NAMES[name]], [NAMES[name]]
        for at in points:
            row = r.best(at, name, "requests_per_s" if name == DIRECT else "cpu_us_per_request")
            if name == DIRECT and row:
                speed.append(f"{number(median(row, 'requests_per_s'))} / {number(median(row, 'p99_us') / 1000)}")
                continue
            if row is None:
                cost.append(ABSENT)
                speed.append(ABSENT)
                continue
            value, reference = median(row, "cpu_us_per_request"), r.best(at, "nginx", "cpu_us_per_request")
            text = number(value)
            if reference and name != "nginx":
                text += f" ({median(reference, 'cpu_us_per_request') / value:.2f})"
            if name in WAYS and at[0] == "post" and any((at, w) in r.rows for w in list(WAYS[name])[1:]):
                text += ", " + WAYS[name][row["proxy"]]
            cost.append(text + noise(row))
            speed.append(" / ".join([
                number(median(row, "requests_per_s")), number(median(row, "p99_us") / 1000), number(median(row, "rss_mib")),
            ]))
        if name != DIRECT:
            costs.append(cost)
        speeds.append(speed)
    heads = ["body, connections"] + [title(at) for at in points]
    return (
        "## CPU µs a request\n\nIn brackets: requests per CPU second, nginx = 1 (above 1 is cheaper than nginx).\n\n" + table(heads, costs)
        + "\n## Requests a second on one core / p99 in ms / peak MiB\n\n"
        + "A closed loop fills the core, so that p99 here is mostly queueing.\n\n" + table(heads, speeds)
    )


def streams_table(r):
    points = r.points("stream")
    costs, delays = [], []
    for name in r.names():
        if name == DIRECT:
            rows = [r.best(at, name, "chunk_p50_us") for at in points]
            delays.append(["no proxy: the times themselves"] + [
                " / ".join(number(median(row, f)) for f in ("chunk_p50_us", "chunk_p99_us", "reads_per_chunk")) if row else ABSENT
                for row in rows
            ])
            continue
        rows = [r.best(at, name, "cpu_us_per_chunk") for at in points]
        if not any(rows):
            continue
        costs.append([NAMES[name]] + [number(median(row, "cpu_us_per_chunk")) + noise(row) if row else ABSENT for row in rows])
        delays.append([NAMES[name]] + [
            " / ".join(number(median(row, f)) for f in ("added_chunk_p50_us", "added_chunk_p99_us", "reads_per_chunk")) if row else ABSENT
            for row in rows
        ])
    heads = ["streams"] + [title(at) for at in points]
    return (
        "## Event streams: CPU µs a chunk\n\nThe requests that begin the streams, one for each 20 chunks, are in it.\n\n" + table(heads, costs)
        + "\n## Event streams: added p50 / added p99 in µs / reads a chunk\n\n"
        + "Added to what the same chunk takes without a proxy. Fewer reads than chunks: chunks came together.\n\n" + table(heads, delays)
    )


def latency_rows(r):
    """For each peer: added p50 and p99, closed and open loop, and the open loop's rate."""
    closed, opened = r.points("post", True), r.points("open", True) or r.points("open")
    for name in r.names():
        if name == DIRECT:
            continue
        pair = [r.best(points[0], name, "p50_us") if points else None for points in (closed, opened)]
        if any(pair):
            yield name, pair[0], pair[1]


def latency_table(r):
    rows = []
    closed = r.points("post", True)
    alone = r.best(closed[0], DIRECT, "p50_us") if closed else None
    if alone:
        rows.append(["no proxy: the times themselves", number(median(alone, "p50_us")), number(median(alone, "p99_us")), ABSENT, ABSENT, ABSENT])
    for name, closed, opened in latency_rows(r):
        rows.append([NAMES[name]] + [
            number(median(row, f)) + (noise(row) if row and f.endswith("p99_us") else "") if row else ABSENT
            for row, f in ((closed, "added_p50_us"), (closed, "added_p99_us"), (opened, "rate_per_s"), (opened, "added_p50_us"), (opened, "added_p99_us"))
        ])
    heads = ["4 KB, everything on one core", "one connection: added p50 µs", "added p99 µs", "open loop at requests/s", "added p50 µs", "added p99 µs"]
    return (
        "## Added latency\n\nOpen loop: Poisson arrivals at 30 % of what each carries, beside the node alone at the same rate.\n\n" + table(heads, rows)
    )


def head(r):
    first = r.environments[0]
    versions, missing, left = {}, set(), {}
    for e in r.environments:
        versions.update(e["versions"])
        missing.update(e["missing"])
        left.update(e.get("left_out", {}))
    ours = [f"{name} ({text})" for name, text in sorted(versions.items()) if name in ("nginx", "haproxy", "envoy", "smg", "vllm-router", "litellm", "go", "wrk")]
    lines = [
        "# Peers side by side\n",
        "Written by `bench/peers/plot.py` from `peers.jsonl` (`make bench-peers`). Configurations: `bench/peers/`; method: `bench/README.md`.\n",
        f"{first['cpu']}, {first['cpus']} cores, Linux {first['kernel']}, commit {first['commit']}, begun {first['started']}. {'; '.join(ours)}.\n",
        "Each proxy has one core, load and nodes the other, unless a table says otherwise. Figures are medians; "
        "≈ marks those where most runs met other work on the machine. SMG, vllm-router and LiteLLM parse bodies and write them again.\n",
    ]
    if missing:
        lines.append(f"Not installed: {', '.join(sorted(missing))}.\n")
    for name, why in sorted(left.items()):
        if name in NAMES and not name.startswith("warmpath"):
            lines.append(f"Left out in part, {NAMES[name]}: {why}.\n")
    for f in r.failures:
        lines.append(f"Failed, {NAMES.get(f['proxy'], f['proxy'])} at {title(point(f))}: {f['error'].splitlines()[0][:200]}\n")
    for s in r.summaries:
        if s["errors"]:
            lines.append(f"{NAMES.get(s['proxy'], s['proxy'])} at {title(point(s))}: {s['errors']} requests failed, its figures do not count.\n")
    return "\n".join(lines)


def drawn(r):
    return [name for name in r.names() if name != DIRECT]


def line(axes, r, name, points, x, value):
    """Draws one peer over the points at which it was measured."""
    values = [(x[i], value(at)) for i, at in enumerate(points)]
    values = [(a, b) for a, b in values if b is not None]
    if values:
        bold = name.startswith("warmpath")
        axes.plot(
            *zip(*values), marker="o", markersize=4, color=COLOURS[name], label=NAMES[name],
            linewidth=2.4 if bold else 1.3, zorder=3 if bold else 2,
        )


def finish(axes, points, x, text, logarithmic=True):
    axes.set_title(text, fontsize=11, loc="left")
    axes.set_xticks(x, [title(at) for at in points], rotation=20, ha="right")
    if logarithmic:
        axes.set_yscale("log")
    axes.grid(True, which="both", axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def plain_numbers(axes):
    from matplotlib.ticker import FuncFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.10g}"))


def two(plt, draw, path):
    figure, axes = plt.subplots(1, 2, figsize=(13, 5.2))
    draw(axes)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=5, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)


def draw_bodies(r):
    points = r.points("get") + r.points("post")
    x = range(len(points))

    def cost(name):
        def value(at):
            row = r.best(at, name, "cpu_us_per_request")
            return median(row, "cpu_us_per_request") if row else None
        return value

    def ratio(name):
        def value(at):
            own, reference = cost(name)(at), cost("nginx")(at)
            return reference / own if own and reference else None
        return value

    def draw(axes):
        for name in drawn(r):
            line(axes[0], r, name, points, x, cost(name))
            line(axes[1], r, name, points, x, ratio(name))
        finish(axes[0], points, x, "CPU µs a request (lower is better)")
        finish(axes[1], points, x, "requests per CPU second, nginx = 1 (higher is better)")
        axes[1].set_ylim(bottom=max(0.01, axes[1].get_ylim()[0]))
        axes[1].axhline(1, color=COLOURS["nginx"], linewidth=0.8, linestyle=":")
        for a in axes:
            plain_numbers(a)

    return draw


def draw_streams(r):
    points = r.points("stream")
    x = range(len(points))

    def of(name, figure):
        def value(at):
            row = r.best(at, name, "cpu_us_per_chunk")
            found = median(row, figure) if row else None
            return found if found is None or found > 0 else None
        return value

    def draw(axes):
        for name in drawn(r):
            line(axes[0], r, name, points, x, of(name, "cpu_us_per_chunk"))
            line(axes[1], r, name, points, x, of(name, "added_chunk_p99_us"))
        finish(axes[0], points, x, "event streams: CPU µs a chunk (lower is better)")
        finish(axes[1], points, x, "event streams: added p99 of a chunk, µs")
        for a in axes:
            plain_numbers(a)

    return draw


def draw_latency(r):
    rows = [(n, c, o) for n, c, o in latency_rows(r)]

    def draw(axes):
        for a, at, text in ((axes[0], 1, "one connection"), (axes[1], 2, "open loop at 30 % of capacity")):
            place = 0
            for row in rows:
                if row[at] is None:
                    continue
                for figure, shade in (("added_p50_us", 1.0), ("added_p99_us", 0.45)):
                    value = median(row[at], figure)
                    if value is not None and value > 0:
                        a.bar(place + (0 if shade == 1.0 else 0.4), value, 0.38, color=COLOURS[row[0]], alpha=shade, label=NAMES[row[0]] if shade == 1.0 else None)
                place += 1
            a.set_yscale("log")
            a.set_xticks([])
            a.set_title(f"{text}: added p50 (dark) and p99 (light), µs", fontsize=11, loc="left")
            a.grid(True, which="both", axis="y", alpha=0.25)
            a.spines[["top", "right"]].set_visible(False)
            plain_numbers(a)

    return draw


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: plot.py RESULTS.jsonl")
    path = pathlib.Path(sys.argv[1])
    r = Results(path)
    if not r.environments:
        sys.exit(f"{path}: no series in it; run make bench-peers")
    parts = [head(r)]
    for wanted, part in (("post", bodies_tables), ("stream", streams_table)):
        if r.points(wanted) or wanted == "post" and r.points("get"):
            parts.append(part(r))
    if list(latency_rows(r)):
        parts.append(latency_table(r))
    path.with_suffix(".md").write_text("\n".join(parts))
    try:
        import matplotlib
    except ImportError:
        print("missing: matplotlib (scripts/peers.sh); left out: the plots", file=sys.stderr)
        return
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "peers", "svg.fonttype": "none", "font.size": 9})
    import matplotlib.pyplot as plt

    kind = ".svg"
    for name, points, draw in (
        ("bodies", r.points("get") + r.points("post"), draw_bodies),
        ("streams", r.points("stream"), draw_streams),
        ("latency", list(latency_rows(r)), draw_latency),
    ):
        if points:
            two(plt, draw(r), path.with_name(f"{path.stem}-{name}{kind}"))


main()
