package bpf

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"warmpath/netlab"
)

// TestLoads: each program by itself, loaded and where possible attached.
func TestLoads(t *testing.T) {
	needBPF(t)
	for _, c := range []struct {
		program string
		load    func(t *testing.T) error
	}{
		{"flow", func(t *testing.T) error { loadFollowing(t); return nil }},
		{"segments", func(t *testing.T) error { return loadFollowing(t).FollowSegments() }},
		{"resets", func(t *testing.T) error { return loadFollowing(t).CountResets() }},
		{"errors", func(t *testing.T) error { return loadFollowing(t).TellErrors() }},
		{"windows", func(t *testing.T) error { return loadFollowing(t).TellWindows() }},
		{"load_read", func(t *testing.T) error {
			own, err := OwnCgroup()
			if err != nil {
				return err
			}
			return loadFollowing(t).ReadLoads(own)
		}},
		{"load_write", func(t *testing.T) error {
			own, err := OwnCgroup()
			if err != nil {
				return err
			}
			w, err := WriteLoads(own, []uint16{1})
			if err != nil {
				return err
			}
			return w.Close()
		}},
		{"guard", func(t *testing.T) error { load(t); return nil }},
		{"jiffies", func(*testing.T) error { _, err := TicksPerSecond(); return err }},
	} {
		t.Run(c.program, func(t *testing.T) {
			err := c.load(t)
			netlab.SkipLacking(t, err)
			if err != nil {
				t.Errorf("%+v", err)
			}
		})
	}
}

// TestLacking takes what kernels said of these programs, and what no other kernel
// would cure.
func TestLacking(t *testing.T) {
	for log, want := range map[string]bool{
		"BPF_STX uses reserved fields":                                       true,
		"unknown func bpf_sk_storage_get#107":                                true,
		"invalid func unknown#160":                                           true,
		"program of this type cannot use helper bpf_sk_storage_get#107":      true,
		"unknown opcode db":                                                  true,
		"R1 invalid mem access 'scalar'":                                     false,
		"BPF program is too large. Processed 1000001 insn":                   false,
		"invalid access to map value, value_size=8 off=8 size=8":             false,
		"last insn is not an exit or jmp":                                    false,
		"sockops: BPF_SOCK_OPS access prohibited for !root, no unknown word": false,
	} {
		cause := &ebpf.VerifierError{Cause: unix.EINVAL, Log: []string{"0: (bf) r6 = r1", log}}
		err := lacking(fmt.Errorf("load: %w", cause))
		var rejected *ebpf.VerifierError
		if errors.Is(err, ebpf.ErrNotSupported) != want || !errors.As(err, &rejected) {
			t.Errorf("%q: %v", log, err)
		}
	}
	if lacking(nil) != nil || !errors.Is(lacking(unix.EPERM), unix.EPERM) {
		t.Error("another error is not left alone")
	}
}
