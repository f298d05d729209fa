package backend

// Live is a loop's connections to nodes that have a socket, by node, so that they
// can be looked at in turn.
type Live struct {
	bySlot [][]*Conn
	next   []int // by slot: who is looked at next
}

// Add takes a connection up whose socket was just made. One that has had another
// socket before is in already.
func (v *Live) Add(c *Conn) {
	if c.live > 0 {
		return
	}
	for c.Slot >= len(v.bySlot) {
		v.bySlot, v.next = append(v.bySlot, nil), append(v.next, 0)
	}
	v.bySlot[c.Slot] = append(v.bySlot[c.Slot], c)
	c.live = len(v.bySlot[c.Slot])
}

// Remove forgets a connection, if it is in.
func (v *Live) Remove(c *Conn) {
	if c.live == 0 {
		return
	}
	conns := v.bySlot[c.Slot]
	last := len(conns) - 1
	conns[c.live-1] = conns[last]
	conns[c.live-1].live = c.live
	conns[last] = nil
	v.bySlot[c.Slot] = conns[:last]
	c.live = 0
}

// Of returns how many connections to a node there are.
func (v *Live) Of(slot int) int {
	if slot >= len(v.bySlot) {
		return 0
	}
	return len(v.bySlot[slot])
}

// Next returns the next connection to a node of which there are some: each in its
// turn, as far as none come or go.
func (v *Live) Next(slot int) *Conn {
	v.next[slot] = (v.next[slot] + 1) % len(v.bySlot[slot])
	return v.bySlot[slot][v.next[slot]]
}
