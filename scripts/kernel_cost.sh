#!/usr/bin/env bash
# What the kernel plane costs: the same loads with it and without, in turns, then
# the nanoseconds of each program as the kernel counts them (bpf_stats).
#
#   scripts/kernel_cost.sh        about 6 minutes, as root, on two quiet cores
#
# RUNS (10) of each; DURATION (2s) of a run.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${RUNS:-10} duration=${DURATION:-2s}
folder=$(mktemp -d)
was=$(sysctl -n kernel.bpf_stats_enabled)
load=
finish() {
  sysctl -qw "kernel.bpf_stats_enabled=$was"
  [ -z "$load" ] || kill "$load" 2>/dev/null || true
  rm -rf "$folder"
}
trap finish EXIT

for tool in bin/warmpath bin/warmbench; do
  [ -x "$tool" ] || { echo "missing: $tool; run make build" >&2; exit 1; }
done

proxy() { bin/warmbench proxy --tries 3 --duration "$duration" "$@"; }

echo "with the kernel plane and without, medians of $runs runs of $duration in turns; $(uname -r), $(bin/warmpath version)"
for load_of in '' '--stream --streams 50' '--stream --streams 200' '--stream --streams 500'; do
  # shellcheck disable=SC2086 # several arguments
  proxy --runs "$runs" --peer warmpath-kernel-off $load_of 2>&1 >/dev/null
done

# Each program's runs and time, of the router's own links and programs.
programs() {
  for info in /proc/"$1"/fdinfo/*; do
    awk '/^prog_type|^prog_id|^run_time_ns|^run_cnt/ { v[$1] = $2 }
      END { if (v["run_cnt:"] > 0) print v["prog_id:"], v["prog_type:"], v["run_cnt:"], v["run_time_ns:"] }' "$info" 2>/dev/null || true
  done
}

echo
echo 'what a run of each program takes, under 200 streams; the count itself adds some 60 ns (13 = sockops, 26 = tracepoints)'
others=" $({ pgrep -x warmpath || true; } | tr '\n' ' ') "
sysctl -qw kernel.bpf_stats_enabled=1
proxy --runs 1 --duration 6s --peer direct --stream --streams 200 >/dev/null 2>&1 & load=$!
for _ in $(seq 60); do
  for pid in $(pgrep -x warmpath || true); do
    [[ "$others" != *" $pid "* ]] || continue
    programs "$pid" >>"$folder/programs"
  done
  kill -0 "$load" 2>/dev/null || break
  sleep 0.25
done
wait "$load" || true
load=
awk '$3 > n[$1] { n[$1] = $3; type[$1] = $2; ns[$1] = $4 / $3 }
  END { for (i in n) printf "program %s of type %s: %d runs, %.0f ns each\n", i, type[i], n[i], ns[i] }' "$folder/programs" | sort
