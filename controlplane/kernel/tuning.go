package kernel

import (
	"cmp"
	"math"
	"time"

	"warmpath/bpf"
)

// Tuning is how connections to nodes are treated; 0 leaves the host's setting.
type Tuning struct {
	RTOMin            time.Duration // not below RTOMinLeast
	SynRTO            time.Duration
	UserTimeout       time.Duration // TCP_USER_TIMEOUT
	NotSentLowatBytes int64         // TCP_NOTSENT_LOWAT
	Mark              Mark
	Marks             map[string]Mark // of nodes, by name; what is 0 there is Mark's
}

// Mark says how packets to a node are marked: per node, since one connection serves
// requests of all classes in turn. Both are plus 1; 0 leaves them alone.
type Mark struct {
	DSCP, Priority int
}

// markOf is a node's own.
func (t *Tuning) markOf(name string) Mark {
	own := t.Marks[name]
	return Mark{cmp.Or(own.DSCP, t.Mark.DSCP), cmp.Or(own.Priority, t.Mark.Priority)}
}

// RTOMinLeast is the least RTO_min that is set. Below it, a node that holds its
// acknowledgements back while it thinks (25 to 35 ms is common) makes the kernel
// send segments again that nothing was wrong with.
const RTOMinLeast = 50 * time.Millisecond

// nearShare is what part of RTO_min a round trip may take for it to be set.
const nearShare = 4

// ruleOf is what connections to a node get: pure.
func (t *Tuning) ruleOf(name string, ticks int64, host hostSets, synRTTNs int64) bpf.Rule {
	var r bpf.Rule
	if t.SynRTO > 0 && ticks > 0 {
		r.SynRtoJiffies = uint32(max(int64(t.SynRTO)*ticks/int64(time.Second), 1))
	}
	if t.RTOMin > 0 && !host.rtoMin {
		least := max(t.RTOMin, RTOMinLeast)
		r.RtoMinUs = uint32(least.Microseconds())
		if synRTTNs > 0 && synRTTNs < int64(least)/nearShare {
			r.Near = 1
		}
	}
	if !host.userTimeout {
		r.UserTimeoutMs = uint32(t.UserTimeout.Milliseconds())
	}
	if !host.notSentLowat {
		r.NotsentLowatBytes = uint32(min(t.NotSentLowatBytes, math.MaxInt32))
	}
	m := t.markOf(name)
	r.Priority = uint32(m.Priority)
	if m.DSCP > 0 {
		r.Tos = uint32(m.DSCP-1)<<2 + 1
	}
	return r
}

// leftAlone names the keys that do nothing because the administrator decided.
func (t *Tuning) leftAlone(host hostSets) []string {
	keys := []string{}
	for _, k := range []struct {
		key, by   string
		set, host bool
	}{
		{"kernel.rto_min", "net.ipv4.tcp_rto_min_us", t.RTOMin > 0, host.rtoMin},
		{"kernel.user_timeout", "net.ipv4.tcp_retries2", t.UserTimeout > 0, host.userTimeout},
		{"kernel.notsent_lowat", "net.ipv4.tcp_notsent_lowat", t.NotSentLowatBytes > 0, host.notSentLowat},
	} {
		if k.set && k.host {
			keys = append(keys, k.key+": "+k.by+" is set on this host")
		}
	}
	return keys
}

// Retune treats connections that are made from now on in another way.
func (p *Plane) Retune(t Tuning) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opt.Tuning = t
}

// tune writes a node's rule if it has changed.
func (p *Plane) tune(slot uint32, n *node) {
	rule := p.opt.Tuning.ruleOf(n.name, p.ticks.Load(), p.host, leastNs(&n.times.SynRtt))
	if was, ok := p.tuned[slot]; ok && was == rule {
		return
	}
	if err := p.flow.SetRule(slot, rule); err != nil {
		p.opt.Log.Warn("connections to a node are treated as this host treats all", "node", n.name, "err", err)
		return
	}
	p.tuned[slot] = rule
}
