package netlab

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// SkipLacking skips a test if err says that this kernel lacks what a program needs.
// It is the loader that says so; the release only decides who may say it: a kernel
// that all programs are made for lacks nothing, and what it refuses is a failure.
func SkipLacking(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ebpf.ErrNotSupported) && !KernelHasAll() {
		t.Skipf("this kernel lacks what the program needs: %v", err)
	}
}

// KernelHasAll reports whether this is a kernel that all programs are made for:
// Linux 5.15 or later.
func KernelHasAll() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return true
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor)
	return err != nil || major > 5 || major == 5 && minor >= 15
}
