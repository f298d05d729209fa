package bpf

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// tick is about what the kernel's coarse clock advances by at a time: a bucket
// must hold what comes meanwhile.
const tick = 20 * time.Millisecond

// ShedAll is the share that sheds everything.
const ShedAll = 1000

// Rate is how much of something may come: so many a second in the long run, and
// so many at once.
type Rate struct {
	PerSecond int // 0 = no bound
	Burst     int // 0 = twice a second's
}

// bucket is the rate as programs have it.
func (r Rate) bucket() (intervalNs, depthNs uint64) {
	if r.PerSecond <= 0 {
		return 0, 0
	}
	burst := r.Burst
	if burst <= 0 {
		burst = 2 * r.PerSecond
	}
	intervalNs = max(1, uint64(time.Second)/uint64(r.PerSecond))
	return intervalNs, max(uint64(burst)*intervalNs, intervalNs+uint64(tick))
}

// put stores the limits, unless another process has the guard by now: it would
// find itself robbed of it by them, and nobody would tend it.
func (g *Guard) put() error {
	if g.limits.Owner != 0 && !g.Owned() {
		return fmt.Errorf("set limits of guard: %w", ErrGuardGiven)
	}
	return g.store()
}

func (g *Guard) store() error {
	if err := g.objects.Settings.Put(uint32(0), &g.limits); err != nil {
		return fmt.Errorf("set limits of guard: %w", err)
	}
	return nil
}

// SetSourceRate bounds the SYNs of each source: an IPv4 address, or an IPv6 /64.
func (g *Guard) SetSourceRate(r Rate) error {
	g.limits.IntervalNs, g.limits.DepthNs = r.bucket()
	return g.put()
}

// SetShed has the guard drop a share, in thousandths, of the SYNs of sources that
// are not on the allow list, for as long as is said: it has to be renewed. SYNs
// are chosen by their addresses and ports, so one that is sent again meets the
// same verdict; salt keeps senders from choosing ports that come through.
func (g *Guard) SetShed(permille uint32, salt uint32, last time.Duration) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read clock: %w", err)
	}
	g.limits.ShedPermille, g.limits.Salt = min(permille, ShedAll), salt
	g.limits.ShedUntilNs = uint64(now.Nano()) + uint64(last)
	return g.put()
}

// PortCap is a guarded port and how many new connections it takes.
type PortCap struct {
	Port uint16
	Rate Rate
}

// SetPorts guards these ports and no others. Counts of ports that stay go on.
func (g *Guard) SetPorts(ports []PortCap) error {
	if len(ports) > MaxGuardPorts {
		return fmt.Errorf("guard %d ports: %d at most", len(ports), MaxGuardPorts)
	}
	was, err := g.rules()
	if err != nil {
		return err
	}
	var taken [MaxGuardPorts]bool
	for port, rule := range was {
		if slices.ContainsFunc(ports, func(p PortCap) bool { return p.Port == port }) {
			taken[rule.Index%MaxGuardPorts] = true
			continue
		}
		if err := g.objects.Ports.Delete(port); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("leave port %d unguarded: %w", port, err)
		}
	}
	for _, p := range ports {
		rule, had := was[p.Port]
		if !had {
			rule = guardPortRule{Index: uint32(slices.Index(taken[:], false))}
			taken[rule.Index] = true
			if err := g.clearPort(rule.Index); err != nil {
				return err
			}
		}
		rule.IntervalNs, rule.DepthNs = p.Rate.bucket()
		if err := g.objects.Ports.Put(p.Port, &rule); err != nil {
			return fmt.Errorf("guard port %d: %w", p.Port, err)
		}
	}
	return nil
}

// clearPort empties the counts and fills the bucket of an index that another port
// had.
func (g *Guard) clearPort(index uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err == nil {
		err = g.objects.PortCounters.Put(index, make([]guardPortCounts, cpus))
	}
	if err == nil {
		err = g.objects.PortBuckets.Put(index, &guardPortBucket{})
	}
	if err != nil {
		return fmt.Errorf("clear counts of a port: %w", err)
	}
	return nil
}

func (g *Guard) rules() (map[uint16]guardPortRule, error) {
	rules := map[uint16]guardPortRule{}
	var port uint16
	var rule guardPortRule
	all := g.objects.Ports.Iterate()
	for all.Next(&port, &rule) {
		rules[port] = rule
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("read guarded ports: %w", err)
	}
	return rules, nil
}

// PortCounts are of one guarded port, since it is guarded.
type PortCounts struct {
	Port          uint16
	SYNs, Dropped uint64
}

// Ports are the counts of the guarded ports, ascending by port.
func (g *Guard) Ports() ([]PortCounts, error) {
	rules, err := g.rules()
	if err != nil {
		return nil, err
	}
	counts := make([]PortCounts, 0, len(rules))
	for port, rule := range rules {
		c := PortCounts{Port: port}
		var cpus []guardPortCounts
		if err := g.objects.PortCounters.Lookup(rule.Index, &cpus); err != nil {
			return nil, fmt.Errorf("read counts of port %d: %w", port, err)
		}
		for i := range cpus {
			c.SYNs += cpus[i].Syns
			c.Dropped += cpus[i].Dropped
		}
		counts = append(counts, c)
	}
	slices.SortFunc(counts, func(a, b PortCounts) int { return int(a.Port) - int(b.Port) })
	return counts, nil
}

// Verdicts count packets by what became of them and why. Each packet that came
// through the interface is in one of them.
type Verdicts struct {
	// Passed: segments of connections, SYNs to other ports, SYNs to guarded ones,
	// those of allowed sources, later fragments, what cannot be read, no TCP.
	Established, Unguarded, SYN, Allowed, Fragment, Malformed, Other uint64
	// SYNs that were dropped, and what hides whether it is one.
	Denied, Rate, Shed, PortCap, Hidden uint64
}

// Each visits the counts by name, those of dropped ones last.
func (v *Verdicts) Each(visit func(verdict string, packets uint64)) {
	visit("established", v.Established)
	visit("unguarded", v.Unguarded)
	visit("syn", v.SYN)
	visit("allowed", v.Allowed)
	visit("fragment", v.Fragment)
	visit("malformed", v.Malformed)
	visit("other", v.Other)
	visit("denied", v.Denied)
	visit("rate", v.Rate)
	visit("shed", v.Shed)
	visit("port_cap", v.PortCap)
	visit("hidden", v.Hidden)
}

// Counts are those of all CPUs, since the guard was first attached.
func (g *Guard) Counts() (Verdicts, error) {
	var v Verdicts
	var cpus []guardVerdicts
	if err := g.objects.Counters.Lookup(uint32(0), &cpus); err != nil {
		return v, fmt.Errorf("read counts of guard: %w", err)
	}
	for i := range cpus {
		c := &cpus[i]
		v.Established += c.Established
		v.Unguarded += c.Unguarded
		v.SYN += c.Syn
		v.Allowed += c.Allowed
		v.Fragment += c.Fragment
		v.Malformed += c.Malformed
		v.Other += c.Other
		v.Denied += c.Denied
		v.Rate += c.Rate
		v.Shed += c.Shed
		v.PortCap += c.PortCap
		v.Hidden += c.Hidden
	}
	return v, nil
}
