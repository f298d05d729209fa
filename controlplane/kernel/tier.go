package kernel

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"warmpath/bpf"
)

// Tier says how much the kernel tells.
type Tier string

// Tiers, best first.
const (
	Full    Tier = "full"
	Lite    Tier = "lite"
	Passive Tier = "passive"
	Off     Tier = "off"
)

// Reason says why a part is missing and what to do about it.
type Reason struct {
	Part   string `json:"part"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
}

func (r Reason) String() string { return r.Part + ": " + r.Why + "; " + r.Remedy }

// capabilities are what the programs need (capabilities(7)).
const capabilities = "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"

// NoRemedy is the remedy of a Reason where none is known.
const NoRemedy = "warmpath goes on without it"

// Explain says why the loader could not have a part. The errors of cilium/ebpf name
// the limit of locked memory with each EPERM, which is not what is wrong on any
// kernel since 5.11.
func Explain(part string, err error) Reason {
	r := Reason{Part: part}
	var verifier *ebpf.VerifierError
	switch {
	case errors.Is(err, errLeftOut):
		r.Why, r.Remedy = err.Error(), "set kernel.mode to auto"
	case errors.Is(err, bpf.ErrNoCgroup2):
		r.Why, r.Remedy = "no cgroup v2 is mounted where this process can see it", "mount one (mount -t cgroup2 none /sys/fs/cgroup/unified), or start warmpath as a systemd unit"
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) && !errors.As(err, &verifier):
		r.Why, r.Remedy = "this process may not load it", "give it "+capabilities+": AmbientCapabilities= in its systemd unit, --cap-add for a container, or setcap on the binary"
	case errors.Is(err, ebpf.ErrNotSupported):
		r.Why, r.Remedy = "this kernel ("+release()+") does not have what it needs", "use Linux 5.15 or later, built with CONFIG_BPF_SYSCALL, CONFIG_CGROUP_BPF and CONFIG_DEBUG_INFO_BTF"
	case errors.As(err, &verifier):
		r.Why, r.Remedy = "this kernel ("+release()+") refuses it: "+oneLine(verifier), "report this with the output of warmpath doctor"
	default:
		r.Why, r.Remedy = oneLine(err), NoRemedy
	}
	return r
}

// oneLine keeps a verifier's log out of the router's.
func oneLine(err error) string {
	s := err.Error()
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	return s
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return runtime.GOOS
	}
	return unix.ByteSliceToString(u.Release[:])
}

// describe is the tier in one line.
func describe(t Tier, reasons []Reason) string {
	if len(reasons) == 0 {
		return string(t)
	}
	return fmt.Sprintf("%s (%v)", t, reasons[0])
}
