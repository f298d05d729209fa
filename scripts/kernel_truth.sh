#!/usr/bin/env bash
# Whose time is it? Streams go through the router at a gentle rate, with and
# without the kernel's programs, on a quiet core and beside programs that burn it.
# Prints how long nodes took to the first event, as the router has it: by the
# kernel it must not move, by user space it does; with time stamps of packets (the
# tier passive) it hardly does.
#
#   scripts/kernel_truth.sh        about five minutes, as root, on two cores
#
# HOGS (24) programs share the router's core; RATE (15) requests a second, so few that
# none is behind another; DURATION (6s) of a
# measurement; ROUNDS (5) of all in turns; THINKS (200us), what the node waits before its event.
set -euo pipefail
cd "$(dirname "$0")/.."

rate=${RATE:-15} duration=${DURATION:-6s} hogs=${HOGS:-24} thinks=${THINKS:-200us} rounds=${ROUNDS:-5}
folder=$(mktemp -d)
pids=()
stop() { [ "${#pids[@]}" = 0 ] || kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; pids=(); }
trap 'stop; rm -rf "$folder"' EXIT

for tool in bin/warmpath bin/warmbench; do
  [ -x "$tool" ] || { echo "missing: $tool; run make build" >&2; exit 1; }
done

scrape() { curl -sf http://127.0.0.1:17081/metrics; }
mean() { # NAME: mean of a histogram over all its series
  scrape | awk -v sum="^warmpath_$1_sum" -v count="^warmpath_$1_count" '
    $0 ~ sum { s += $2 } $0 ~ count { n += $2 } END { if (n) printf "%.0f", s / n * 1e6; else printf "-" }'
}

measure() { # MODE HOGS
  cat >"$folder/warmpath.yaml" <<Y
listen: 127.0.0.1:17080
admin: {listen: "127.0.0.1:17081"}
loops: 1
kernel: {mode: "$1"}
nodes: [{name: a, url: "http://127.0.0.1:17001"}]
Y
  taskset -c 0 bin/warmbench backend --listen 127.0.0.1:17001 --chunks 1 --interval "$thinks" >/dev/null 2>&1 & pids+=($!)
  taskset -c 1 bin/warmpath serve --config "$folder/warmpath.yaml" >"$folder/log" 2>&1 & pids+=($!)
  for _ in $(seq 100); do curl -sf http://127.0.0.1:17081/readyz >/dev/null && break; sleep 0.1; done
  for _ in $(seq "$2"); do
    taskset -c 1 bash -c 'while :; do :; done' & pids+=($!)
  done
  taskset -c 0 bin/warmbench load --url http://127.0.0.1:17080 --stream --rate "$rate" --arrivals constant --duration "$duration" --size 1024 --model bench >/dev/null 2>&1
  echo "$1 $2 $(mean ttft_seconds) $(mean router_lag_seconds)" | tee -a "$folder/rounds"
  stop
}

echo "first event of a node, mean µs; $rate streams a second for $duration, a node that waits $thinks, $(uname -r), $(git describe --always --dirty)"
echo 'each round: kernel.mode, hogs, node µs, router µs'
for _ in $(seq "$rounds"); do
  for mode in require passive off; do
    for n in 0 "$hogs"; do measure "$mode" "$n"; done
  done
done

median() { awk -v mode="$1" -v hogs="$2" -v of="$3" '$1 == mode && $2 == hogs { print $of }' "$folder/rounds" | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
printf '\nmedians of %s rounds\n%-12s %12s %16s %12s %18s\n' "$rounds" kernel.mode 'node, µs' 'beside hogs, µs' ratio 'router, µs'
for mode in require passive off; do
  quiet=$(median "$mode" 0 3) beside=$(median "$mode" "$hogs" 3)
  printf '%-12s %12s %16s %12s %18s\n' "$mode" "$quiet" "$beside" "$(awk -v a="$quiet" -v b="$beside" 'BEGIN { printf "%.2f", b / a }')" "$(median "$mode" 0 4) → $(median "$mode" "$hogs" 4)"
done
