package doctor

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"warmpath/controlplane/config"
	"warmpath/controlplane/kernel"
)

// judge makes checks of what was found, under a configuration: pure.
func judge(h *Host, c *config.Config) []Check {
	checks := []Check{
		h.plane(c), h.release(), h.btf(), h.cgroup(), h.capabilities(),
		h.descriptors(c), h.loops(c), h.synCookies(), h.acceptQueue(), h.rtoMin(c), h.memory(c), h.clock(), h.clockSource(),
	}
	if c.Kernel.NodeLoad {
		checks = append(checks, h.nodeLoad(c))
	}
	return checks
}

// tells is what each tier means.
var tells = map[kernel.Tier]string{
	kernel.Full:    "connections are followed, segments timed, resets counted",
	kernel.Lite:    "connections are followed; first bytes are timed by the loops",
	kernel.Passive: "nothing could be loaded; all times are the loops' own, the rest is TCP_INFO's",
}

// plane says what the kernel tells. It is needed only where the configuration says
// so.
func (h *Host) plane(c *config.Config) Check {
	const name = "kernel plane"
	switch {
	case slices.Contains([]string{"off", "passive", "lite"}, c.Kernel.Mode):
		return good(name, "%s by kernel.mode; this host allows the tier %s", c.Kernel.Mode, h.Tier)
	case h.Tier == kernel.Full:
		return good(name, "%s: %s", h.Tier, tells[h.Tier])
	}
	detail, remedies := fmt.Sprintf("%s: %s", h.Tier, tells[h.Tier]), []string(nil)
	for i, r := range h.Reasons {
		if i > 0 && r.Why == h.Reasons[i-1].Why {
			continue // said with the one before
		}
		parts := r.Part
		for _, same := range h.Reasons[i+1:] {
			if same.Why != r.Why {
				break
			}
			parts += ", " + same.Part
		}
		detail += fmt.Sprintf(" (%s: %s)", parts, r.Why)
		if !slices.Contains(remedies, r.Remedy) {
			remedies = append(remedies, r.Remedy)
		}
	}
	check := lacking(name, detail, strings.Join(remedies, "; "))
	if c.Kernel.Mode == "require" {
		check.Detail += "; kernel.mode is require"
		return needed(check)
	}
	return check
}

// nodeLoad says whether nodes are heard, where that is configured.
func (h *Host) nodeLoad(c *config.Config) Check {
	const name = "node load"
	switch {
	case c.Kernel.Mode == "off":
		return lacking(name, "kernel.node_load does nothing: kernel.mode is off", "set kernel.mode to auto, or kernel.node_load to false")
	case h.Deaf == nil:
		return good(name, "what agents have nodes say of their load is read")
	case len(h.Reasons) > 0 && h.Tier == kernel.Passive: // which says it all
		return lacking(name, "not read: "+h.Reasons[0].Why, h.Reasons[0].Remedy)
	}
	check := lacking(name, "not read: "+h.Deaf.Why, h.Deaf.Remedy)
	if c.Kernel.Mode == "require" {
		return needed(check)
	}
	return check
}

func (h *Host) release() Check {
	const name, major, minor = "kernel release", 5, 15
	var have [2]int
	if _, err := fmt.Sscanf(h.Release, "%d.%d", &have[0], &have[1]); err == nil && (have[0] < major || have[0] == major && have[1] < minor) {
		return lacking(name, h.Release+": the kernel plane is made for 5.15 and later", "use Linux 5.15 or later")
	}
	return good(name, "%s", h.Release)
}

func (h *Host) btf() Check {
	const name, path = "type information", "/sys/kernel/btf/vmlinux"
	if !h.BTF {
		return lacking(name, path+" cannot be read: segments are not timed, resets not counted", "use a kernel built with CONFIG_DEBUG_INFO_BTF, and let /sys be seen")
	}
	return good(name, path)
}

func (h *Host) cgroup() Check {
	const name = "cgroup v2"
	if h.NoCgroup != "" {
		return lacking(name, "none is mounted where this process can see it", "mount one (mount -t cgroup2 none /sys/fs/cgroup/unified), or start warmpath as a systemd unit")
	}
	return good(name, "%s", h.Cgroup)
}

// capabilities that the programs need. Who may administer the whole system has the
// first two with that (bpf_capable and perfmon_capable of linux/capability.h).
func (h *Host) capabilities() Check {
	const name = "capabilities"
	has := func(bit int) bool { return h.Capabilities>>bit&1 != 0 }
	admin := has(unix.CAP_SYS_ADMIN)
	var have, miss []string
	for _, c := range []struct {
		name string
		has  bool
	}{
		{"CAP_BPF", has(unix.CAP_BPF) || admin},
		{"CAP_PERFMON", has(unix.CAP_PERFMON) || admin},
		{"CAP_NET_ADMIN", has(unix.CAP_NET_ADMIN)},
	} {
		if c.has {
			have = append(have, c.name)
		} else {
			miss = append(miss, c.name)
		}
	}
	if len(miss) > 0 {
		return lacking(name, "missing: "+strings.Join(miss, ", "),
			"AmbientCapabilities= of a systemd unit (scripts/warmpath.service), --cap-add for a container, or setcap cap_bpf,cap_perfmon,cap_net_admin+ep on the binary")
	}
	return good(name, "%s", strings.Join(have, ", "))
}

// descriptors compares the hard limit with limits.connections. One that was given
// has to fit; the default is lowered.
func (h *Host) descriptors(c *config.Config) Check {
	const name = "open descriptors"
	if problems := c.CheckLimits(h.Descriptors); len(problems) > 0 {
		return broken(name, fmt.Sprintf("limits.connections %s %s", problems[0].Value, problems[0].What), problems[0].Remedy)
	}
	if fitted := c.FitLimits(h.Descriptors); fitted != c {
		return lacking(name,
			fmt.Sprintf("the hard limit is %d: room for %d connections of clients, the default is %d", h.Descriptors, fitted.Limits.Connections, c.Limits.Connections),
			"raise the hard limit (LimitNOFILE= of a systemd unit)")
	}
	return needed(good(name, "the hard limit is %d, limits.connections %d may need %d", h.Descriptors, c.Limits.Connections, c.DescriptorsNeeded()))
}

func (h *Host) loops(c *config.Config) Check {
	const name = "event loops"
	loops := c.Loops
	if loops == 0 {
		loops = h.CPUs
	}
	switch {
	case h.Quota > 0 && float64(loops) > math.Ceil(h.Quota):
		return lacking(name, fmt.Sprintf("%d loops, and the control group allows %.3g CPUs: when its time is used up all of them stand still", loops, h.Quota),
			fmt.Sprintf("set loops to %.0f, or raise CPUQuota= of the systemd unit, the limit of the container", math.Ceil(h.Quota)))
	case loops > h.CPUs:
		return lacking(name, fmt.Sprintf("%d loops on %d CPUs: they wait for each other", loops, h.CPUs), "leave loops at 0, which is one a CPU")
	}
	return good(name, "%d on %d CPUs", loops, h.CPUs)
}

func (h *Host) synCookies() Check {
	const name = "SYN cookies"
	switch {
	case h.SynCookies < 0:
		return good(name, "not known: net.ipv4.tcp_syncookies cannot be read here")
	case h.SynCookies == 0:
		return lacking(name, "off: a flood of SYNs keeps clients from connecting", "sysctl -w net.ipv4.tcp_syncookies=1")
	}
	return good(name, "net.ipv4.tcp_syncookies is %d", h.SynCookies)
}

// leastBacklog is the kernel's default since 5.4.
const leastBacklog = 4096

func (h *Host) acceptQueue() Check {
	const name = "accept queue"
	switch {
	case h.Backlog < 0:
		return good(name, "not known: net.core.somaxconn cannot be read here")
	case h.Backlog < leastBacklog:
		return lacking(name, fmt.Sprintf("net.core.somaxconn is %d: clients that come at once wait a second for their SYN to be sent again", h.Backlog),
			fmt.Sprintf("sysctl -w net.core.somaxconn=%d", leastBacklog))
	}
	return good(name, "net.core.somaxconn is %d", h.Backlog)
}

// rtoMin says what the kernel waits at least before it sends a segment to a node
// again.
func (h *Host) rtoMin(c *config.Config) Check {
	const name = "RTO_min"
	set := max(c.Kernel.RTOMin, kernel.RTOMinLeast)
	tunes := c.Kernel.Mode != "off" && c.Kernel.Mode != "passive" && c.Kernel.RTOMin > 0 && (h.Tier == kernel.Full || h.Tier == kernel.Lite)
	switch {
	case h.RTOMin > 0 && h.RTOMin < kernel.RTOMinLeast:
		return lacking(name, fmt.Sprintf("net.ipv4.tcp_rto_min_us is set to %v: nodes that are slow to acknowledge get segments twice", h.RTOMin),
			fmt.Sprintf("sysctl -w net.ipv4.tcp_rto_min_us=%d, or more", kernel.RTOMinLeast.Microseconds()))
	case h.RTOMin > 0 && h.RTOMin != kernel.DefaultRTOMin:
		return good(name, "net.ipv4.tcp_rto_min_us is set to %v, which is left alone (kernel.rto_min does nothing)", h.RTOMin)
	case tunes:
		return good(name, "the kernel's %v, and %v for connections to near nodes (kernel.rto_min)", kernel.DefaultRTOMin, set)
	}
	return good(name, "the kernel's %v for all connections", kernel.DefaultRTOMin)
}

// memory adds up what the router may take.
func (h *Host) memory(c *config.Config) Check {
	const name = "memory"
	if h.Memory == 0 && h.Budget == 0 {
		return lacking(name, "bodies and answers have no bound: neither /proc/meminfo nor the control group says how much there is", "set limits.memory to what they may take")
	}
	all := h.Budget + c.Index.MemoryBytes + c.Index.MemoBytes
	detail := fmt.Sprintf("bodies and answers %s, index %s, memos %s, of %s", size(h.Budget), size(c.Index.MemoryBytes), size(c.Index.MemoBytes), size(h.Memory))
	if h.Memory > 0 && all > h.Memory {
		return lacking(name, detail+": full, they are more than there is", "lower limits.memory, index.memory or index.memo")
	}
	return good(name, "%s", detail)
}

// size is a number of bytes as people say it.
func size(n int64) string {
	if n == 0 {
		return "unknown"
	}
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}

func (h *Host) clock() Check {
	const name = "clock"
	if !h.ClockSynced {
		return lacking(name, "nothing keeps it in step: logs and decision records of hosts cannot be put side by side", "run chrony or systemd-timesyncd; in a container or a virtual machine its host may do so already")
	}
	return good(name, "in step (adjtimex)")
}

// slowClocks cannot be read without a system call.
var slowClocks = []string{"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"}

func (h *Host) clockSource() Check {
	const name = "clock source"
	switch {
	case h.ClockSource == "":
		return good(name, "not known")
	case slices.Contains(slowClocks, h.ClockSource):
		return lacking(name, h.ClockSource+": each reading is a system call", "choose another one of /sys/devices/system/clocksource/clocksource0/available_clocksource, tsc if it is there")
	}
	return good(name, "%s", h.ClockSource)
}
