#!/usr/bin/env bash
# Real vLLM engines on the CPU, and the proof that the router knows what they
# hold: it must name the length of every prompt and how much of it is cached,
# before the engine does, also after caches, engines, event ports and the router
# itself were taken away.
#
#   scripts/e2e_exact.sh [arguments of e2e_exact.py, which has e2e_lab.py to
#   start and break things and e2e_talk.py for what is said]
#
# The variables of scripts/vllm-cpu.sh apply, besides
#   BLOCKS       KV blocks an engine holds (default 129): few, so that it evicts
#   ROUTER       the router's program (default bin/warmpath)
#   ROUTER_PORT  ports of the router (default 18080), of its admin side (default
#   ADMIN_PORT   18081), and where it awaits the events that an engine sends by
#   EVENT_PORT   itself, through the script (default 15557)
#   KEEP=yes     take engines that run already, kill them as the check demands,
#                and leave them running at the end
set -euo pipefail
cd "$(dirname "$0")/.."

engines=scripts/vllm-cpu.sh
export N=2 MODEL=tiny EVENTS=mixed BLOCKS=${BLOCKS:-129} MML=${MML:-2048}
W=${W:-$HOME/.cache/warmpath/vllm-cpu}
folder=$(mktemp -d)
started=

finish() {
  local code=$?
  if [ $code -ne 0 ] && [ -s "$folder/warmpath.log" ]; then
    echo 'the router printed:' >&2
    tail -n 60 "$folder/warmpath.log" >&2
  fi
  [ -z "$started" ] || "$engines" stop
  rm -rf "$folder"
  exit $code
}
trap finish EXIT

running=$("$engines" status || true)
if grep -q ' healthy ' <<<"$running"; then
  [ "${KEEP:-}" = yes ] || { echo 'e2e-exact: engines run already: stop them (scripts/vllm-cpu.sh stop), or set KEEP=yes' >&2; exit 1; }
  [ "$(grep -c " blocks=$BLOCKS events=" <<<"$running")" = 2 ] || { echo "e2e-exact: they do not hold $BLOCKS blocks each" >&2; exit 1; }
else
  "$engines" install
  [ "${KEEP:-}" = yes ] || started=yes
  "$engines" start
fi

python3 scripts/e2e_exact.py --engines "$engines" --router "${ROUTER:-bin/warmpath}" --tokenizer "$W/$MODEL/tokenizer.json" \
  --folder "$folder" --ports "${ROUTER_PORT:-18080},${ADMIN_PORT:-18081},${EVENT_PORT:-15557}" "$@"
