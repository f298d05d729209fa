#!/usr/bin/env bash
# Installs moto's server from PyPI into .cache/venv: AWS as far as the tests of
# scaler/actuate/ec2 need it, on this host. What is there is not installed again.
#
#   scripts/moto.sh            install, then say what is missing
#   scripts/moto.sh --check    say what is missing only
#
# Never fails: without it those tests are skipped by their own check.
set -u
cd "$(dirname "$0")/.."

version=5.2.5
venv=.cache/venv

missing() { printf 'missing: moto %s for Python (%s); left out: tests of actuator ec2 with it\n' "$version" "$1"; exit 0; }

# The metadata says the version at once; importing moto takes seconds.
there() {
  [ -x "$venv/bin/moto_server" ] && "$venv/bin/python" -c \
    "import flask, sys; from importlib.metadata import version; sys.exit(version('moto') != '$version')" 2>/dev/null
}

there && exit 0
command -v python3 >/dev/null 2>&1 || missing 'no python3'
[ "${1:-}" = --check ] && missing 'not installed; scripts/moto.sh'
mkdir -p .cache
[ -x "$venv/bin/python" ] || python3 -m venv "$venv" >/dev/null 2>&1 || { rm -rf "$venv"; missing 'python3 has no venv'; }
timeout 600 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "moto[server]==$version" >/dev/null 2>&1
there || missing 'pip cannot install it'
