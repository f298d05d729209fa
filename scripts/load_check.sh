#!/usr/bin/env bash
# Compares `warmbench load` with generators that others wrote, on the same
# servers, in turns: wrk on nodes that answer at once, aiperf (PyPI) on a
# simulated engine. Prints what it ran and found; needs two quiet cores and
# `make build`, and for aiperf once some minutes to install it into .cache.
#
#   scripts/load_check.sh [wrk|aiperf]...      both without arguments
#   BIN=DIR RUNS=5 SECONDS_EACH=5              folder of the programs, runs and their length
set -euo pipefail
cd "$(dirname "$0")/.."

bin=${BIN:-bin}
aiperf_version=0.13.0
venv=.cache/venv-load
# aiperf loads some tokenizer even where it takes the server's token counts.
tokenizer=.cache/models/qwen3

for program in warmbench enginesim; do
  [ -x "$bin/$program" ] || { echo "load_check: $bin/$program is missing; run make build" >&2; exit 1; }
done
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(wrk aiperf)

for part in "${parts[@]}"; do
  case $part in
    wrk) command -v wrk taskset >/dev/null || { echo "load_check: wrk or taskset is missing; run make setup" >&2; exit 1; } ;;
    aiperf)
      if [ "$("$venv/bin/python" -c 'import importlib.metadata as m; print(m.version("aiperf"))' 2>/dev/null)" != "$aiperf_version" ]; then
        mkdir -p .cache
        python3 -m venv "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "aiperf==$aiperf_version"
      fi
      [ -f "$tokenizer/tokenizer.json" ] || { echo "load_check: $tokenizer is missing; run make models" >&2; exit 1; }
      ;;
    *) echo "load_check: no part $part; use wrk or aiperf" >&2; exit 2 ;;
  esac
done

exec python3 scripts/load_check.py "$bin" "$venv/bin/aiperf" "$tokenizer" "${RUNS:-5}" "${SECONDS_EACH:-5}" "${parts[@]}"
