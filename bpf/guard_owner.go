package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/cilium/ebpf"
)

// processBegan is when a process began, in clock ticks since the host did, modulo
// 2^32; 0 if that is not known. With its number it names a process for as long as
// the host runs: numbers alone are given out again, in a container at once.
func processBegan(pid int) uint32 {
	const field = 22 // starttime of proc_pid_stat(5)
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// The second field is a name that may hold anything, between brackets.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= field-3 {
		return 0
	}
	ticks, _ := strconv.ParseUint(string(fields[field-3]), 10, 64)
	return uint32(ticks)
}

// own puts this process down as the one that tends the guard.
func (l *guardLimits) own() {
	l.Owner, l.OwnerBegan = uint32(os.Getpid()), processBegan(os.Getpid())
}

// GuardOwner is the process that tends the pinned guard of an interface, or that
// last did, 0 if that is not known; runs reports whether it still runs.
func GuardOwner(root, nic string) (pid int, runs bool) {
	limits, ok := pinnedLimits(pinFolder(root, nic))
	if !ok || limits.Owner == 0 {
		return 0, false
	}
	pid = int(limits.Owner)
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return pid, false
	}
	began := processBegan(pid)
	return pid, began == 0 || limits.OwnerBegan == 0 || began == limits.OwnerBegan
}

// pinnedLimits are those of a pinned guard, of whatever version: abi, owner and
// mode stand in the same place in all that have the same size.
func pinnedLimits(folder string) (limits guardLimits, ok bool) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(folder, guardMapSettings), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return limits, false
	}
	defer m.Close()
	return limits, m.ValueSize() == uint32(binary.Size(&limits)) && m.Lookup(uint32(0), &limits) == nil
}
