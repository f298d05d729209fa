#!/usr/bin/env bash
# Where the time of the router and of nginx goes, side by side: perf looks at each
# while `warmbench proxy` measures it. Needs perf, nginx and two quiet cores.
#
#   scripts/profile.sh             prints shares of the samples by size of the body
#   scripts/profile.sh 0 4096      … of these sizes (0 = GET)
#
# For each it says what the kernel and each Go package take, and the most costly
# functions. DURATION (6) seconds a run.
set -u
cd "$(dirname "$0")/.."

duration=${DURATION:-6}
sizes=${*:-0 4096 65536 1048576}

for tool in perf nginx; do
  PATH=$PATH:/usr/sbin command -v "$tool" >/dev/null || { echo "missing: $tool; no profile" >&2; exit 1; }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$folder/warmpath" ./cmd/warmpath || exit 1 # with its symbols

worker() { # PARENT NAME: the newest descendant that serves
  local child
  for child in $(pgrep -P "$1"); do
    worker "$child" "$2"
    case $(ps -o args= -p "$child") in
      *"warmpath serve"*) [ "$2" = warmpath ] && echo "$child" ;;
      *"nginx: worker"*) [ "$2" = nginx ] && echo "$child" ;;
    esac
  done
}

record() { # WARMBENCH NAME: samples the proxy of that name as long as it lives
  local pid=
  while [ -z "$pid" ]; do
    kill -0 "$1" 2>/dev/null || return
    sleep 0.1
    pid=$(worker "$1" "$2" | tail -1)
  done
  perf record -q -e cpu-clock -F 2000 -p "$pid" -o "$folder/$2.data" >/dev/null 2>&1
}

shares() { # NAME: kernel and packages, then functions
  perf report -i "$folder/$1.data" --stdio -g none --sort symbol 2>/dev/null | awk '
    /^ *[0-9.]+%/ {
      share = $1; sub("%", "", share)
      where = $2 == "[k]" ? "kernel" : "user"
      name = $3
      group = where == "kernel" ? "the kernel" : name
      if (where == "user") {
        sub(/\.\(.*/, "", group); sub(/\.abi0$/, "", group)
        if (group ~ /\./) sub(/\.[^.\/]*$/, "", group)
        if (group !~ /\//) group = group ~ /^runtime/ ? "runtime" : "other"
      }
      groups[group] += share
      if (++n <= 20) functions[n] = sprintf("  %5.2f %%  %-6s  %s", share, where, name)
    }
    END {
      for (g in groups) if (groups[g] >= 0.5) printf "  %5.1f %%  %s\n", groups[g], g | "sort -rn"
      close("sort -rn")
      print ""
      for (i = 1; i <= n && i <= 20; i++) print functions[i]
    }'
}

echo "# Where the time goes, router and nginx side by side"
echo "# $(git rev-parse --short HEAD), $(date -u +%F), $(awk -F': ' '/model name/ {print $2; exit}' /proc/cpuinfo), Linux $(uname -r), $(go env GOVERSION), $(PATH=$PATH:/usr/sbin nginx -v 2>&1)"
echo "# scripts/profile.sh: perf's cpu-clock over the processes that \`warmbench proxy\` measures; shares of each process's own samples"
for size in $sizes; do
  load=(--size "$size" --concurrency 64)
  [ "$size" = 0 ] && load=(--get)
  [ "$size" -gt 65536 ] && load=(--size "$size" --concurrency 16)
  bin/warmbench proxy --warmpath "$folder/warmpath" --tries 1 --runs 1 --duration "${duration}s" --peer nginx "${load[@]}" >"$folder/figures" 2>/dev/null &
  bench=$!
  record "$bench" warmpath &
  record "$bench" nginx &
  wait
  for name in warmpath nginx; do
    cost=$(grep '"record":"summary"' "$folder/figures" | grep "\"proxy\":\"$name\"" | grep -o '"cpu_us_per_request":{[^}]*}' | grep -o '"median":[0-9.]*' | cut -d: -f2)
    printf '\n## %s, %s: %s µs of CPU a request\n\n' "$name" "$([ "$size" = 0 ] && echo GET || echo "$size-byte bodies")" "${cost:-?}"
    shares "$name"
  done
done
