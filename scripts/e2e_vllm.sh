#!/usr/bin/env bash
# Real vLLM engines on the CPU, the router before them, real conversations
# through both. Starts what does not run yet and ends what it started.
#
#   scripts/e2e_vllm.sh [arguments of e2e_vllm.py]
#
# The variables of scripts/vllm-cpu.sh apply; ROUTER_PORT and ADMIN_PORT move
# the router.
set -euo pipefail
cd "$(dirname "$0")/.."

engines=scripts/vllm-cpu.sh
folder=$(mktemp -d)
router=
started=

finish() {
  local code=$?
  if [ -n "$router" ]; then
    kill "$router" 2>/dev/null || true
    wait "$router" 2>/dev/null || true
  fi
  if [ $code -ne 0 ] && [ -s "$folder/warmpath.log" ]; then
    echo 'the router printed:' >&2
    tail -n 40 "$folder/warmpath.log" >&2
  fi
  [ -z "$started" ] || "$engines" stop
  rm -rf "$folder"
  exit $code
}
trap finish EXIT

if ! "$engines" status; then
  "$engines" install
  started=yes
  "$engines" start
fi
mapfile -t urls < <("$engines" status | sed -n 's/^engine [0-9]* \(http[^ ]*\) healthy .*/\1/p')
[ "${#urls[@]}" -gt 0 ] || { echo 'e2e-vllm: no healthy engine' >&2; exit 1; }

listen=127.0.0.1:${ROUTER_PORT:-18080}
admin=127.0.0.1:${ADMIN_PORT:-18081}
{
  printf 'listen: %s\nadmin: {listen: "%s"}\nlimits: {connections: 1000}\nnodes:\n' "$listen" "$admin"
  for i in "${!urls[@]}"; do
    printf '  - {name: vllm%d, url: "%s", engine: vllm}\n' "$((i + 1))" "${urls[i]}"
  done
} >"$folder/warmpath.yaml"

bin/warmpath serve --config "$folder/warmpath.yaml" >"$folder/warmpath.log" 2>&1 &
router=$!
ready=
for _ in $(seq 300); do
  kill -0 "$router" 2>/dev/null || break
  if curl -fsS -o /dev/null "http://$admin/readyz" 2>/dev/null; then
    ready=yes
    break
  fi
  sleep 0.1
done
[ -n "$ready" ] || { echo "e2e-vllm: the router is not ready on $admin" >&2; exit 1; }

python3 scripts/e2e_vllm.py --router "http://$listen" --admin "http://$admin" "${urls[@]/#/--engine=}" "$@"
