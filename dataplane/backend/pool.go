package backend

// MaxIdle bounds the idle connections that one loop keeps to one node.
const MaxIdle = 1024

// Pool keeps a loop's idle connections, newest first: the newest is the least
// likely to be closed by the node just now, and old ones age out.
type Pool struct {
	bySlot []list
	total  int
}

type list struct {
	newest *Conn
	oldest *Conn
	n      int
}

// Idle returns how many connections are kept.
func (p *Pool) Idle() int { return p.total }

// Take returns the most recently used idle connection to that incarnation of
// the slot's node, nil if there is none. Connections of an earlier incarnation
// are not returned; Expire closes them.
func (p *Pool) Take(slot int, generation uint32) *Conn {
	if slot >= len(p.bySlot) {
		return nil
	}
	l := &p.bySlot[slot]
	for c := l.newest; c != nil; c = c.older {
		if c.Generation == generation {
			p.Remove(c)
			return c
		}
	}
	return nil
}

// Put keeps c for reuse. It reports false if the node's share is full: the
// caller closes c then.
func (p *Pool) Put(c *Conn, nowNs int64) bool {
	for c.Slot >= len(p.bySlot) {
		p.bySlot = append(p.bySlot, list{})
	}
	l := &p.bySlot[c.Slot]
	if l.n >= MaxIdle {
		return false
	}
	c.idle, c.rested, c.idleSinceNs = true, true, nowNs
	c.older, c.newer = l.newest, nil
	if l.newest != nil {
		l.newest.newer = c
	} else {
		l.oldest = c
	}
	l.newest = c
	l.n++
	p.total++
	return true
}

// Remove takes c out of the pool if it is in it.
func (p *Pool) Remove(c *Conn) {
	if !c.idle {
		return
	}
	l := &p.bySlot[c.Slot]
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		l.newest = c.older
	}
	if c.older != nil {
		c.older.newer = c.newer
	} else {
		l.oldest = c.newer
	}
	c.newer, c.older, c.idle = nil, nil, false
	l.n--
	p.total--
}

// Expire removes the connections that have been idle since before beforeNs and
// hands each to drop. Connections to an incarnation that is no longer the
// slot's are not used again (Take skips them) and age out here.
func (p *Pool) Expire(beforeNs int64, drop func(*Conn)) {
	for i := range p.bySlot {
		for {
			c := p.bySlot[i].oldest
			if c == nil || c.idleSinceNs >= beforeNs {
				break
			}
			p.Remove(c)
			drop(c)
		}
	}
}
