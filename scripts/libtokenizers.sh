#!/usr/bin/env bash
# Builds .cache/libtokenizers/libtokenizers.a, which everything under the build
# tag hf links: the Rust crate inside the Go module github.com/daulet/tokenizers,
# at the version that go.mod names, plus dataplane/tokenize/hf/shim.rs. Takes
# one to two minutes once; a second run finds it built.
#
#   scripts/libtokenizers.sh           build unless built
#   scripts/libtokenizers.sh --check   only say why there is none
#
# Fails with one line that says what is missing.
set -u
cd "$(dirname "$0")/.."

module=github.com/daulet/tokenizers
# The module takes tiktoken-rs from a git repository. 0.9.1 is the release of
# that crate with the same API; later ones changed it. Nothing here uses it.
tiktoken='tiktoken-rs = "=0.9.1"'
shim=dataplane/tokenize/hf/shim.rs
out=.cache/libtokenizers
work=$out/build

lack() { printf 'missing: %s; left out: the library of Hugging Face tokenizers (tag hf)\n' "$1"; exit 1; }

version=$(go list -m -f '{{.Version}}' "$module" 2>/dev/null) || lack "$module in go.mod"
stamp="$version $({ cat "$shim"; echo "$tiktoken"; } | sha256sum | cut -d' ' -f1)"
[ -s "$out/libtokenizers.a" ] && [ "$(cat "$out/stamp" 2>/dev/null)" = "$stamp" ] && exit 0

command -v cargo >/dev/null 2>&1 || lack 'cargo (Rust)'
command -v "${CC:-gcc}" >/dev/null 2>&1 || lack 'a C compiler (gcc)'
command -v "${CXX:-g++}" >/dev/null 2>&1 || lack 'a C++ compiler (g++)'
[ "${1:-}" != --check ] || lack 'the library itself (make libtokenizers)'

# The folder in the module cache is read-only and shared: build a copy.
source=$(go mod download -json "$module@$version" 2>/dev/null | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
[ -d "$source" ] || lack "the Go module $module@$version"
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
cp -R "$source/Cargo.toml" "$source/Cargo.lock" "$source/LICENSE" "$source/crates" "$work/"
chmod -R u+w "$work"

sed -i '/crates\/tokenizers-wasm/d' "$work/Cargo.toml"
sed -i "s/^tiktoken-rs = .*/$tiktoken/" "$work/crates/tokenizers/Cargo.toml"
cp "$shim" "$work/crates/tokenizers/src/warmpath.rs"
echo 'mod warmpath;' >>"$work/crates/tokenizers/src/lib.rs"

echo "building libtokenizers $version, about a minute"
if ! cargo build --quiet --release --manifest-path "$work/Cargo.toml" --target-dir "$work/target" >"$out/build.log" 2>&1; then
  lack "a cargo build that succeeds ($(grep -m 1 -E '^error' "$out/build.log" || tail -n 1 "$out/build.log"); all of it in $out/build.log)"
fi
cp "$work/target/release/libtokenizers_ffi.a" "$out/libtokenizers.a"
strip --strip-debug "$out/libtokenizers.a" 2>/dev/null # 50 MB to 43; it works without
echo "$stamp" >"$out/stamp"
