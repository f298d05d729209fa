package doctor

import (
	"io/fs"
	"math"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/controlplane/kernel"
)

// Host is what was found on a host. The zero value of what could not be read is
// said at each field.
type Host struct {
	Tier    kernel.Tier
	Reasons []kernel.Reason
	Deaf    *kernel.Reason // why it cannot read what nodes say of their load; nil = it can

	Release      string // of the kernel
	BTF          bool   // its type information can be read
	Cgroup       string // folder of the own cgroup v2
	NoCgroup     string // why there is none
	Capabilities uint64 // effective ones, a bit each

	Descriptors uint64        // hard limit
	CPUs        int           // that this process may run on
	Quota       float64       // CPUs that its control groups allow, 0 = no bound known
	SynCookies  int           // -1 = not known
	Backlog     int           // net.core.somaxconn, -1 = not known
	RTOMin      time.Duration // 0 = the kernel has no such sysctl
	Memory      int64         // of the host or the control group, 0 = not known
	Budget      int64         // of that for bodies and answers, 0 = no bound

	ClockSynced bool
	ClockSource string // "" = not known
}

// fewSlots suffice to see whether slots can be had.
const fewSlots = 64

// look finds everything that is not a file below root.
func look(root fs.FS) (Host, error) {
	h := Host{CPUs: runtime.NumCPU()}
	h.openKernel()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return h, err
	}
	h.Descriptors = limit.Max
	var err error
	if h.Cgroup, err = kernel.OwnCgroup(); err != nil {
		h.NoCgroup = err.Error()
	}
	h.RTOMin, _ = kernel.HostRTOMin()
	var clock unix.Timex // modes 0: nothing is set, so that anybody may ask
	state, err := unix.Adjtimex(&clock)
	h.ClockSynced = err == nil && state != unix.TIME_ERROR && clock.Status&unix.STA_UNSYNC == 0
	h.read(root)
	return h, nil
}

// openKernel loads the kernel's programs the way the router does, and takes them
// off again. A router that runs is not disturbed: theirs stand side by side, and
// nothing is followed by these.
func (h *Host) openKernel() {
	p, _ := kernel.Open(kernel.Options{Mode: "auto", Slots: fewSlots, NodeLoad: true, Log: discard}) // auto has no error
	defer p.Close()
	v := p.View()
	h.Tier, h.Release = v.Tier, v.Kernel
	for i, r := range v.Reasons {
		if r.Part == kernel.NodeLoadPart { // nothing else depends on it
			h.Deaf = &v.Reasons[i]
			continue
		}
		h.Reasons = append(h.Reasons, r)
	}
}

// read finds what files of the kernel say.
func (h *Host) read(root fs.FS) {
	h.Capabilities = effective(text(root, "proc/self/status"))
	h.SynCookies = number(root, "proc/sys/net/ipv4/tcp_syncookies")
	h.Backlog = number(root, "proc/sys/net/core/somaxconn")
	h.ClockSource = strings.TrimSpace(text(root, "sys/devices/system/clocksource/clocksource0/current_clocksource"))
	if f, err := root.Open("sys/kernel/btf/vmlinux"); err == nil {
		h.BTF = true
		_ = f.Close()
	}
	h.Quota = quota(root, strings.TrimPrefix(h.Cgroup, "/"))
}

// text is a file's, "" if it cannot be read.
func text(root fs.FS, path string) string {
	b, err := fs.ReadFile(root, path)
	if err != nil {
		return ""
	}
	return string(b)
}

// number is what a file holds, -1 if that is none.
func number(root fs.FS, path string) int {
	n, err := strconv.Atoi(strings.TrimSpace(text(root, path)))
	if err != nil {
		return -1
	}
	return n
}

// effective finds the effective capabilities in /proc/self/status.
func effective(status string) uint64 {
	for line := range strings.Lines(status) {
		if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
			bits, _ := strconv.ParseUint(strings.TrimSpace(set), 16, 64) // none if it is no number
			return bits
		}
	}
	return 0
}

// quota is the least number of CPUs that a control group and those above it allow
// (cpu.max of cgroup v2: a time and the period that it is for), 0 if none bounds
// it.
func quota(root fs.FS, group string) float64 {
	least := math.Inf(1)
	for group != "" {
		f := strings.Fields(text(root, group+"/cpu.max"))
		if len(f) == 2 {
			used, err1 := strconv.ParseFloat(f[0], 64) // "max" is no bound
			period, err2 := strconv.ParseFloat(f[1], 64)
			if err1 == nil && err2 == nil && period > 0 {
				least = min(least, used/period)
			}
		}
		group = group[:max(strings.LastIndexByte(group, '/'), 0)]
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}
