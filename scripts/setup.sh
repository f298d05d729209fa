#!/usr/bin/env bash
# Installs what the tests can use, where that is possible, and says in one
# line each what is missing and what is left out for it. Never fails: every
# test that needs a missing part is skipped by its own check.
#
#   scripts/setup.sh           install, then say what is missing
#   scripts/setup.sh --check   say what is missing only
#   scripts/setup.sh --python  install the Python packages only
set -u
cd "$(dirname "$0")/.."

openai_version=3.51.0
jinja_version=3.1.6
venv=.cache/venv

missing() { printf 'missing: %s; left out: %s\n' "$1" "$2"; }

has() { command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ]; }

install_packages() {
  [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] && has apt-get || return 0
  local wanted=()
  has nginx || wanted+=(nginx-light)
  has haproxy || wanted+=(haproxy)
  has wrk || wanted+=(wrk)
  has gcc || wanted+=(gcc libc6-dev)
  has g++ || wanted+=(g++)
  has ip || wanted+=(iproute2)
  has clang-19 || wanted+=(clang-19)
  has llvm-strip-19 || wanted+=(llvm-19)
  [ -f /usr/include/bpf/bpf_helpers.h ] || wanted+=(libbpf-dev)
  if ! has python3; then
    wanted+=(python3 python3-venv)
  elif ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    wanted+=(python3-venv)
  fi
  [ "${#wanted[@]}" -gt 0 ] || return 0
  # One by one: a package that this release does not have must not keep the
  # others out. Servers must not start by themselves.
  timeout 120 apt-get update -qq >/dev/null 2>&1
  local package
  for package in "${wanted[@]}"; do
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 timeout 180 \
      apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1
  done
  return 0
}

install_python() {
  has python3 || return 0
  python_has openai "$openai_version" && python_has jinja2 "$jinja_version" && return 0
  mkdir -p .cache
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv" >/dev/null 2>&1 || { rm -rf "$venv"; return 0; }
  timeout 180 "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    "openai==$openai_version" "jinja2==$jinja_version" >/dev/null 2>&1
  return 0
}

python_has() { # MODULE VERSION
  [ -x "$venv/bin/python" ] && "$venv/bin/python" -c \
    "import $1, sys; sys.exit($1.__version__ != '$2')" 2>/dev/null
}

# What these cannot have, report says.
install_tokenizers() {
  scripts/models.sh >/dev/null 2>&1
  ! has python3 || scripts/templates.sh >/dev/null 2>&1
  scripts/libtokenizers.sh | grep -v '^missing'
  return 0
}

# What is missing of it, report says.
install_moto() { scripts/moto.sh >/dev/null; }

report() {
  has gcc || missing 'a C compiler (gcc)' 'the race detector'
  has python3 || missing python3 'the end-to-end test with the OpenAI client'
  has python3 && ! python_has openai "$openai_version" && missing "the OpenAI client $openai_version for Python" 'the end-to-end test with it'
  has python3 && ! python_has jinja2 "$jinja_version" && missing "jinja2 $jinja_version for Python" 'chat templates on simulated engines with a real model'
  has ip || missing 'ip (iproute2)' 'tests in network namespaces'
  has clang-19 && has llvm-strip-19 && [ -f /usr/include/bpf/bpf_helpers.h ] ||
    missing 'clang-19, llvm-19 or libbpf-dev' 'the check that the committed BPF objects are fresh'
  has wrk || missing wrk 'the test of bench/proxy, bench-proxy'
  has taskset || missing 'taskset (util-linux)' 'the test of bench/proxy, bench-proxy'
  has nginx || missing 'nginx (nginx-light)' 'nginx as a peer'
  has haproxy || missing haproxy 'HAProxy as a peer'
  [ -d ../shared/data ] || missing 'captures and traces beside the checkout (../shared/data)' 'tests that replay them'
  scripts/models.sh --check
  scripts/libtokenizers.sh --check
  scripts/moto.sh --check
  return 0
}

if [ "${1:-}" = --python ]; then
  install_python
  exit 0
fi
if [ "${1:-}" != --check ]; then
  install_packages
  install_python
  install_moto
  install_tokenizers
fi
report
