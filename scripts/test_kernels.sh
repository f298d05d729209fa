#!/usr/bin/env bash
# The kernel plane under Debian's kernels: each is booted once in QEMU, without
# KVM, with the tests of bpf and controlplane/kernel and `warmpath doctor` in its
# initramfs; then the same on this host. Prints a Markdown table, program by kernel.
#
#   scripts/test_kernels.sh        as root; about 6 minutes, and 100 MB of downloads once
#
# KERNELS ("5.10 6.1 6.12 host") are what to try, BOOT_SECONDS (420) what a boot may
# take. A kernel under which all passed is not booted again for the same sources,
# unless AGAIN is set. Kernels come by apt from where this host has Debian from, or from MIRROR and
# SECURITY; nothing but QEMU, busybox and cpio is installed. What each guest said is
# kept as .cache/kernels/VERSION.txt. Ends with 1 if a test failed, or was left out
# on a kernel that allows the tier full.
set -euo pipefail
cd "$(dirname "$0")/.."

kernels=${KERNELS:-5.10 6.1 6.12 host} boot_seconds=${BOOT_SECONDS:-420}
cache=$(readlink -f .cache 2>/dev/null || echo "$PWD/.cache")/kernels
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

missing() { echo "missing: $1; left out: $2" >&2; }

# The few programs that a guest is made of and with.
tools() {
  local wanted=() package
  command -v qemu-system-x86_64 >/dev/null || wanted+=(qemu-system-x86)
  [ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || wanted+=(busybox-static)
  command -v cpio >/dev/null || wanted+=(cpio)
  command -v xz >/dev/null || wanted+=(xz-utils)
  for package in "${wanted[@]}"; do
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 ||
      { missing "$package" "all kernels but this host's"; return 1; }
  done
}

# apt with releases of its own: kernels of two of them, whichever this host has.
own_apt() { # PROGRAM ARGS...
  local program=$1
  shift
  "$program" -qq -o Dir::Etc::sourcelist="$cache/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State::lists="$cache/apt/lists" -o Dir::Cache="$cache/apt" -o APT::Sandbox::User=root "$@"
}

listed=false
packages() {
  listed=true
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg release mirror security
  mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' | head -1)}
  security=${SECURITY:-$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian-Security' | head -1)}
  mkdir -p "$cache"/apt/{lists,archives}/partial
  for release in bullseye bookworm; do
    echo "deb [signed-by=$keys] $mirror $release main"
    echo "deb [signed-by=$keys] $security $release-security main"
  done >"$cache/apt/sources.list"
  own_apt apt-get update >/dev/null 2>&1 || true # what could be had is enough
}

# The newest package of a version, unpacked beside the system.
unpack() { # VERSION
  local package
  compgen -G "$cache/$1/boot/vmlinuz-*" >/dev/null && return
  "$listed" || packages
  package=$(own_apt apt-cache search --names-only "^linux-image-$1\.[0-9.-]*(\+deb[0-9]+)?-cloud-amd64\$" | cut -d' ' -f1 | sort -V | tail -1)
  [ -n "$package" ] || return 1
  (cd "$folder" && own_apt apt-get download "$package" >/dev/null 2>&1) || return 1
  rm -rf "${cache:?}/$1"
  dpkg -x "$folder/$package"_*.deb "$cache/$1"
}

# What all guests have: static Go programs, busybox, and ip with its libraries.
build() {
  local package file
  mkdir -p "$folder"/guest/{bin,sbin,proc,sys,dev,run,tmp,etc,var,lib/modules}
  ln -s /run "$folder/guest/var/run"
  for package in bpf controlplane/kernel; do
    CGO_ENABLED=0 go test -c -o "$folder/guest/bin/${package##*/}.test" "./$package"
  done
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$folder/guest/bin/warmpath" ./cmd/warmpath
  cp /bin/busybox "$folder/guest/bin/busybox"
  cp "$(readlink -f "$(command -v ip || echo /sbin/ip)")" "$folder/guest/sbin/ip"
  for file in $(ldd "$folder/guest/sbin/ip" | grep -o '/[^ ]*'); do
    install -D "$file" "$folder/guest$file"
  done
  cat >"$folder/guest/look" <<'SH'
#!/bin/sh
# What a kernel is asked. Each part begins with a line of its own.
echo "=== PART release $(uname -r)"
echo '=== PART doctor'; warmpath doctor --output json
for package in bpf kernel; do
  echo "=== PART $package"; (cd /tmp && $package.test -test.v -test.short -test.timeout 6m; echo "=== EXIT $?")
done
echo '=== PART end'
SH
  cat >"$folder/guest/init" <<'SH'
#!/bin/busybox sh
export PATH=/sbin:/bin HOME=/tmp
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev; mount -t tmpfs none /tmp; mount -t tmpfs none /run
mount -t cgroup2 none /sys/fs/cgroup; mount -t bpf none /sys/fs/bpf
for module in /lib/modules/*.ko; do insmod "$module"; done
ip link set lo up
sh /look
poweroff -f
SH
  chmod +x "$folder/guest/init"
}

boot() { # VERSION
  local module
  rm -f "$cache/$1.txt"
  rm -f "$folder"/guest/lib/modules/*
  module=$(find "$cache/$1/lib/modules" -name 'veth.ko*')
  case $module in
    *.xz) xz -dc "$module" >"$folder/guest/lib/modules/veth.ko" ;;
    *) cp "$module" "$folder/guest/lib/modules/veth.ko" ;;
  esac
  (cd "$folder/guest" && find . | cpio -o -H newc --quiet) >"$folder/initramfs"
  # Nehalem, for what `-cpu max` claims to have crashes some kernels.
  timeout "$boot_seconds" qemu-system-x86_64 -accel tcg,thread=multi -cpu Nehalem -smp 2 -m 1024 -nic none -display none -no-reboot \
    -serial stdio -monitor none -kernel "$cache/$1"/boot/vmlinuz-* -initrd "$folder/initramfs" \
    -append 'console=ttyS0 quiet loglevel=3 panic=-1' </dev/null | tr -d '\r' >"$cache/$1.txt"
}

host() {
  (cd "$folder" && PATH="$folder/guest/bin:$PATH" timeout "$boot_seconds" sh "$folder/guest/look") >"$cache/host.txt" 2>&1
}

# A row: its name, what TestLoads says of it, and the tests that need it.
rows=(
  '`flow` (sockops)|TestLoads/flow|TestLostSYN TestDeadHost TestRefusedConnection TestIdleConnectionClosedByTheNode TestRules'
  '`segments` (tp_btf)|TestLoads/segments|TestSegmentsOfAnAnswer TestTimesAreTheWires TestSlowAndLossyIsNotDead TestForeignSocketsAreLeftAlone TestWhoWaitsBeforeItWrites'
  '`resets` (tp_btf)|TestLoads/resets|TestResetIsTold'
  '`errors` (tp_btf)|TestLoads/errors|TestErrorsOfSockets'
  '`windows` (tp_btf)|TestLoads/windows|TestClosedWindow'
  '`load_read` (sockops)|TestLoads/load_read|TestNodeLoadArrives TestNodeLoadIsRare TestNodeLoadInLargeAnswers TestNodeLoadStripped TestNodeLoadForeign'
  '`load_write` (sockops)|TestLoads/load_write|TestNodeLoadArrives TestNodeLoadOfTheNextAgent TestNodeLoadPorts'
  '`guard` (XDP)|TestLoads/guard|TestVerdicts TestSourceRate TestRefill TestPortCap TestShed TestReplaceLists TestListsAgree TestGuardRandom FuzzGuard'
  '… attached, native|TestLoads/guard|TestGuardOnVeth/native TestGuardRateOnVeth TestGuardOutlivesProcess TestGuardOtherPins TestGuardBusy'
  '… attached, generic|TestLoads/guard|TestGuardOnVeth/generic TestGuardOnLoopback'
  '`jiffies` (run by hand)|TestLoads/jiffies|TestTicksPerSecond'
)

# The cells of one kernel, a line each; a bad one begins with "**".
cells() { # VERSION
  printf '%s\n' "${rows[@]}" | awk -v path="$cache/$1.txt" -v bound="$boot_seconds" '
    function read_log(  line, name, at) {
      while ((getline line <path) > 0) {
        if (sub(/^=== PART /, "", line)) {
          part = line
          if (sub(/^release /, "", line)) release = line
        } else if (line ~ /^=== EXIT /) {
          if (line != "=== EXIT 0") broken = 1
        } else if (line ~ /^=== RUN /) {
          name = line; sub(/^=== RUN +/, "", name)
        } else if (at = index(line, "lacks what the program needs: ")) {
          lacks[name] = substr(line, at + 30)
          sub(/^.*load program: /, "", lacks[name]); sub(/ \([0-9]+ line.*$/, "", lacks[name])
        } else if (line ~ /^ *--- (PASS|FAIL|SKIP): /) {
          split(line, field, " "); result[field[3]] = substr(field[2], 1, 4)
          if (line ~ /^---/) count[substr(field[2], 1, 4)]++
        } else if (part == "doctor") {
          if (line ~ /"checks": /) part = ""
          else if (line ~ /"(tier|part|why|remedy)": /) doctor(line)
        }
      }
    }
    function doctor(line,  key) {
      key = line; sub(/^ *"/, "", key); sub(/".*/, "", key)
      sub(/^[^:]*: "/, "", line); sub(/",?$/, "", line)
      if (key == "part") parts = parts (parts ? ", " : "") line
      else value[key] = line
    }
    BEGIN {
      read_log()
      print release ? release : "not booted"
    }
    {
      split($0, row, "|")
      n = split(row[3], tests, " "); passed = failed = absent = 0
      for (i = 1; i <= n; i++) {
        if (result[tests[i]] == "PASS") passed++
        else if (result[tests[i]] == "FAIL") failed++
        else if (result[tests[i]] == "") absent++
      }
      if (result[row[2]] == "SKIP") print "no: " lacks[row[2]]
      else if (result[row[2]] == "") print "**no result**"
      else if (result[row[2]] != "PASS") print "**does not load**"
      else if (failed) print "**loads, " failed " of " n " tests fail**"
      else if (absent) print "**loads, " absent " of " n " tests did not run**"
      else if (passed < n) print "loads, " passed " of " n " tests pass, the others need what is missing"
      else print "loads, " n (n > 1 ? " tests pass" : " test passes")
    }
    END {
      print value["tier"] (parts ? ": " parts ": " value["why"] "; " value["remedy"] : "")
      all = count["PASS"] + 0 " pass, " count["SKIP"] + 0 " left out, " count["FAIL"] + 0 " fail"
      if (part != "end") all = "no end within " bound " s: " all
      bad = part != "end" || broken || count["FAIL"] || value["tier"] == "full" && count["SKIP"]
      print bad ? "**" all "**" : all
    }'
}

table() { # VERSION...
  local version i columns=()
  echo "# What loads where"
  echo
  echo "\`make test-kernels\`, $(git describe --always)$(git diff --quiet HEAD -- . ":!bench/results" || echo -dirty): Debian's kernels in $(qemu-system-x86_64 --version 2>/dev/null | head -1 | sed -E 's/.*version ([0-9.]+).*/QEMU \1/') without KVM,"
  echo "and this host. A program that a kernel refuses is left out for what that kernel's verifier says."
  echo
  [ "${#absent[@]}" = 0 ] || printf 'Could not be had: Linux %s.\n\n' "${absent[*]}"
  { echo program; printf '%s\n' "${rows[@]%%|*}" 'tier, by `warmpath doctor`' 'all tests of `bpf` and `controlplane/kernel`'; } >"$folder/names"
  for version in "$@"; do
    cells "$version" | sed "1s/.*/$(if [ "$version" = host ]; then echo 'this host, '; fi)&/" >"$folder/cells.$version"
    columns+=("$folder/cells.$version")
  done
  i=0
  paste -d '|' "$folder/names" "${columns[@]}" | while IFS= read -r line; do
    echo "| ${line//|/ | } |"
    [ "$i" != 0 ] || { printf '|---%.0s' "$folder/names" "$@"; echo '|'; }
    i=$((i + 1))
  done
  ! grep -q '^\*\*' "${columns[@]}"
}

# What is tested, as git names it; nothing while it is being changed.
sources() {
  local trees=(bpf netlab controlplane/kernel dataplane/flow)
  ! git diff --quiet HEAD -- "${trees[@]}" || git rev-parse "${trees[@]/#/HEAD:}" | tr '\n' ' '
}

# Whether what a kernel said of the same sources is kept, and was good.
kept() { # VERSION
  [ -z "${AGAIN:-}" ] && [ -n "$tested" ] && [ "$(cat "$cache/$1.sources" 2>/dev/null)" = "$tested" ] &&
    grep -q '^=== PART end' "$cache/$1.txt" && ! grep -q '^=== EXIT [1-9]' "$cache/$1.txt"
}

absent=() # versions without a package
tested=$(sources)
main() {
  local version tried=() guests=true
  [ "$(id -u)" = 0 ] || { missing root 'this test'; exit 1; }
  mkdir -p "$cache"
  tools || guests=false
  build
  for version in $kernels; do
    if kept "$version"; then
      tried+=("$version")
      continue
    fi
    rm -f "$cache/$version.sources"
    if [ "$version" = host ]; then
      host || true # what failed stands in the table
    elif ! "$guests"; then
      absent+=("$version")
      continue
    elif unpack "$version"; then
      boot "$version" || true
    else
      missing "a package of Linux $version" 'that kernel'
      absent+=("$version")
      continue
    fi
    tried+=("$version")
    printf '%s' "$tested" >"$cache/$version.sources"
  done
  table "${tried[@]}"
}

main
