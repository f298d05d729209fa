package bpf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// olderKernels is what kernels say of a program that uses what came after them:
// a helper that there is not at all, or not for this kind of program, and an
// instruction (kernel/bpf/verifier.c, over the years).
var olderKernels = [...]string{"invalid func ", "unknown func ", "program of this type cannot use helper ", "uses reserved fields", "unknown opcode "}

// lacking marks the verifier's errors that a later kernel would cure with
// ebpf.ErrNotSupported, as cilium/ebpf does with those that it knows by itself.
func lacking(err error) error {
	var rejected *ebpf.VerifierError
	if !errors.As(err, &rejected) || errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	for _, line := range rejected.Log {
		if slices.ContainsFunc(olderKernels[:], func(s string) bool { return strings.Contains(line, s) }) {
			return fmt.Errorf("%w (%w)", err, ebpf.ErrNotSupported)
		}
	}
	return err
}
