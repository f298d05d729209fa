package kernel

import (
	"os"
	"strconv"
	"strings"
	"time"

	"warmpath/bpf"
	"warmpath/dataplane/eventloop"
)

// DefaultRTOMin is RTO_min of a kernel that nobody has told otherwise.
const DefaultRTOMin = 200 * time.Millisecond

// OwnCgroup returns the folder of the cgroup v2 that this process is in, where the
// programs are attached.
func OwnCgroup() (string, error) { return bpf.OwnCgroup() }

// defaultRetries2 is tcp_retries2 of such a kernel.
const defaultRetries2 = 15

// HostRTOMin returns RTO_min of this network namespace, false where the kernel has
// no such sysctl, which is before 6.11.
func HostRTOMin() (time.Duration, bool) {
	us, ok := sysctl("tcp_rto_min_us")
	return time.Duration(us) * time.Microsecond, ok
}

func sysctl(name string) (int, bool) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	return n, err == nil
}

// hostSets is what the administrator of this host has decided for all connections of
// this network namespace, and what is therefore left alone.
type hostSets struct {
	rtoMin, userTimeout, notSentLowat bool
}

// readHost finds out. A route's own rto_min is a floor that the kernel itself
// prefers (tcp_rto_min of include/net/tcp.h).
func readHost() hostSets {
	differs := func(name string, common int) bool {
		is, known := sysctl(name)
		return known && is != common
	}
	return hostSets{
		rtoMin:       differs("tcp_rto_min_us", int(DefaultRTOMin.Microseconds())),
		userTimeout:  differs("tcp_retries2", defaultRetries2),
		notSentLowat: eventloop.HostBoundsUnsent(),
	}
}
