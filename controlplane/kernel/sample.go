package kernel

import (
	"time"

	"warmpath/bpf"
	"warmpath/dataplane/fleet"
)

// sampleEvery is how often nodes are looked at.
const sampleEvery = 100 * time.Millisecond

// hostEvery is in how many samples it is looked once what the host is set to.
const hostEvery = 10

// quietReads is how many of the nodes where nothing happens are read a sample, in
// turns: a read takes two calls of the kernel, of which a fleet of a thousand would
// want twenty thousand a second. What begins, ends or fails at a node is seen in its
// counters of requests, and faults come as events besides.
const quietReads = 5

// node is what was read of a slot's tenant: what was counted since the tenant
// before was last seen, or since the programs were loaded.
type node struct {
	name       string
	generation uint32
	began      reading
	counters   bpf.Counters
	times      bpf.Times
	rttMinNs   int64 // by the loops, 0 = not known
	busy       busy  // as it was when it was read
	quiet      int   // reads in a row in which that did not change
	lastError  string

	said     bpf.NodeLoad // in band, last
	saidNs   uint64       // when that came; 0 = never
	readings uint64
}

// busy is what moves when a node's connections do.
type busy struct{ requests, successes, failures, heardNs int64 }

func busyOf(l *fleet.Load) busy {
	return busy{l.Requests.Load(), l.Successes.Load(), l.Failures.Load(), l.HeardNs.Load()}
}

// quietAfter is how many reads must have found a node quiet: its idle connections are
// closed within that time (timeouts.idle_node, 4 s by default).
const quietAfter = 50

// mayWait reports whether a node need not be read now. turn says that it is its turn.
func (n *node) mayWait(tenant *fleet.Node, turn bool) bool {
	if is := busyOf(tenant.Load); is != n.busy || is.requests > 0 {
		n.busy, n.quiet = is, 0
		return false
	}
	n.quiet++
	return n.quiet > quietAfter && !turn
}

// reading is all that was ever counted of a slot.
type reading struct {
	counters bpf.Counters
	times    bpf.Times
	said     bpf.NodeLoad // in band, last
	saidNs   uint64       // when that came; 0 = never
	readings uint64       // how often anything came
}

func (p *Plane) read(slot uint32) (r reading, err error) {
	if p.flow != nil {
		if r.counters, err = p.flow.Counters(slot); err != nil {
			return r, err
		}
		if r.times, err = p.flow.Times(slot); err != nil {
			return r, err
		}
		r.said, r.saidNs, r.readings = p.flow.NodeLoad(slot)
	}
	r.fill(p.seen.Of(int(slot)), p.from)
	return r, nil
}

// sample reads what the programs counted of every node of the snapshot, and returns
// what nodes have said of their load since.
func (p *Plane) sample(snap *fleet.Snapshot) (loads []Load) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.samples%hostEvery == 0 {
		p.host = readHost()
	}
	p.samples++
	first := p.turn // of those whose turn it is, in a ring of all slots
	p.turn = (p.turn + quietReads) % max(1, len(snap.Nodes))
	for slot := range snap.Nodes {
		tenant := snap.Nodes[slot]
		if slot >= bpf.MaxNodes {
			break
		}
		if tenant == nil {
			p.forget(uint32(slot))
			continue
		}
		if p.waits(uint32(slot), tenant, first, len(snap.Nodes)) {
			continue
		}
		if load, ok := p.sampleNode(uint32(slot), tenant); ok {
			loads = append(loads, load)
		}
	}
	if p.flow == nil {
		return loads
	}
	if lost, err := p.flow.EventsLost(); err == nil {
		p.lost = lost
	}
	return loads
}

// sampleNode reads what is known of a slot's tenant. It returns what the node has said
// of its load since it was last read, false if that is nothing.
func (p *Plane) sampleNode(slot uint32, tenant *fleet.Node) (Load, bool) {
	if n := p.nodes[slot]; n != nil && n.generation != tenant.Generation {
		p.forget(slot)
	}
	now, err := p.read(slot)
	if err != nil {
		return Load{}, false
	}
	n := p.nodes[slot]
	if n == nil {
		n = &node{generation: tenant.Generation, began: p.left[slot]}
		p.nodes[slot] = n
	}
	n.name = tenant.Name
	if m := p.seen.Of(int(slot)); m != nil && m.Generation == tenant.Generation {
		n.rttMinNs = m.RTTMinNs
	}
	n.counters, n.times = since(now.counters, n.began.counters), timesSince(now.times, n.began.times)
	if p.flow != nil {
		p.tune(slot, n)
	}
	return n.hear(slot, &now)
}

// waits reports whether a tenant is quiet and need not be read in this sample, in
// which those from slot first on have their turn.
func (p *Plane) waits(slot uint32, tenant *fleet.Node, first, slots int) bool {
	n := p.nodes[slot]
	if n == nil || n.generation != tenant.Generation || p.flow == nil || tenant.Load == nil {
		return false
	}
	behind := int(slot) - first
	if behind < 0 {
		behind += slots
	}
	if !n.mayWait(tenant, behind < quietReads) {
		return false
	}
	if p.samples%hostEvery == 0 { // what is wanted of its next connection may have changed
		p.tune(slot, n)
	}
	return true
}

// forget ends what is known of a slot's tenant, if it has one. The next one's
// counts begin where its end.
func (p *Plane) forget(slot uint32) {
	if p.nodes[slot] == nil {
		return
	}
	delete(p.nodes, slot)
	if now, err := p.read(slot); err == nil {
		p.left[slot] = now
	}
}

// since returns what has been counted after a reading. When something was heard
// last is no count.
func since(now, then bpf.Counters) bpf.Counters {
	now.Connects -= then.Connects
	now.Established -= then.Established
	now.Failed -= then.Failed
	now.ResetsIn -= then.ResetsIn
	now.ResetsOut -= then.ResetsOut
	now.Errors -= then.Errors
	now.Retransmits -= then.Retransmits
	now.Rtos -= then.Rtos
	now.ClosedIdle -= then.ClosedIdle
	now.ZeroWindows -= then.ZeroWindows
	now.Segments -= then.Segments
	now.Bytes -= then.Bytes
	return now
}

func timesSince(now, then bpf.Times) bpf.Times {
	for b := range bpf.Buckets {
		now.FirstByte[b] -= then.FirstByte[b]
		now.Gap[b] -= then.Gap[b]
		now.Connect[b] -= then.Connect[b]
		now.SynRtt[b] -= then.SynRtt[b]
	}
	return now
}

// leastNs is an upper bound of the least value in a histogram, 0 if it is empty.
func leastNs(h *[bpf.Buckets]uint64) int64 {
	for b, n := range h {
		if n > 0 {
			return int64(1) << b
		}
	}
	return 0
}

// percentileNs is an upper bound of a percentile (0 … 1) of a histogram, 0 if it is
// empty.
func percentileNs(h *[bpf.Buckets]uint64, share float64) int64 {
	total := uint64(0)
	for _, n := range h {
		total += n
	}
	below := uint64(0)
	for b, n := range h {
		if below += n; total > 0 && float64(below) >= share*float64(total) {
			return int64(1) << b
		}
	}
	return 0
}
