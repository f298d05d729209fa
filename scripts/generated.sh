#!/usr/bin/env bash
# Proves that the committed BPF objects, and the Go made of them, are what
# clang-19 makes of the sources now. Without that clang it says so and leaves it
# out, except in CI (CI=true), where the missing compiler is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in clang-19 llvm-strip-19; do
  command -v "$tool" >/dev/null && continue
  echo "missing: $tool; left out: the check that the committed BPF objects are fresh"
  [ "${CI:-}" != true ]
  exit
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp bpf/*_bpfel.go bpf/*_bpfel.o "$folder"
go generate ./bpf
for made in bpf/*_bpfel.go bpf/*_bpfel.o; do
  cmp -s "$made" "$folder/${made##*/}" && continue
  cp "$folder"/* bpf # as they were: the test changes nothing
  echo "$made is not what its source makes; run make generate and commit what it changes" >&2
  exit 1
done
echo 'BPF objects are fresh'
