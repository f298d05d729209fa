package dataplane

import (
	"errors"
	"fmt"

	"warmpath/dataplane/fleet"
)

// AheadBytesMax is the bound of what a client sends ahead.
const AheadBytesMax = pipelineBytes + clientReadBytes

// RaceEnabled says that allocations cannot be counted.
const RaceEnabled = raceEnabled

// HoldLoop stops the first loop until the function it returns is called, so
// that a test can let things happen behind its back.
func (d *Dataplane) HoldLoop() (release func()) {
	held, resume, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		d.on(d.loops[0], func() {
			close(held)
			<-resume
		})
	}()
	<-held
	return func() {
		close(resume)
		<-done
	}
}

// Bytes is what the loops hold for their clients.
type Bytes struct {
	SentAhead int // requests sent ahead
	Outbound  int // answers that clients have not taken
	Request   int // bodies
	Idle      int // exchanges on the free lists
}

// Held returns what the loops hold now.
func (d *Dataplane) Held() (b Bytes) {
	for _, l := range d.loops {
		d.on(l, func() {
			b.Idle += len(l.idle)
			for c := l.open.first; c != nil; c = c.next {
				b.SentAhead += len(c.in)
				b.Outbound += c.conn.Pending()
				if c.x != nil {
					b.Request += len(c.x.data)
				}
			}
		})
	}
	return b
}

// Retrying returns how many tries the budget pays for now.
func (d *Dataplane) Retrying() int64 { return d.retrying.Load() }

// Leftovers returns how many slow connections, draining clients and open
// clients the loops still know of.
func (d *Dataplane) Leftovers() (slow, draining, open int) {
	for _, l := range d.loops {
		d.on(l, func() {
			slow += l.slow
			for c := l.open.first; c != nil; c = c.next {
				open++
				if c.state == stDraining || c.owing {
					draining++
				}
			}
		})
	}
	return slow, draining, open
}

// TakeStock lets every loop take one step of its census, at no more than so many
// clients, whether a walk is due or not.
func (d *Dataplane) TakeStock(clients int) {
	for _, l := range d.loops {
		d.on(l, func() {
			s := &l.census
			if !s.walking {
				l.beginCensus(clients)
			}
			s.step = clients
			l.takeStock()
		})
	}
}

// Stakes returns how many stakes the loops have in nodes' counters.
func (d *Dataplane) Stakes() (n int) {
	for _, l := range d.loops {
		d.on(l, func() { n += len(l.census.stakes) })
	}
	return n
}

// Leak makes mistakes on the loop's counters: it raises requests at the node that
// no client has, or, of fewer than none, settles a try of its first client again.
// It reports whether it could.
func (d *Dataplane) Leak(loop int, n *fleet.Node, requests int) (done bool) {
	l := d.loops[loop]
	d.on(l, func() {
		for range requests {
			x := &exchange{passage: passage{client: &client{loop: l}, snap: l.d.opt.Fleet.Load(), model: -1, try: try{node: n}}}
			x.polReq.PromptTokens, x.polReq.OutputTokens = 1000, -1
			x.raise()
			done = true
		}
		for c := l.open.first; c != nil && requests < 0; c = c.next {
			if c.x != nil && c.x.stake != nil {
				twin := &exchange{passage: passage{client: c, try: c.x.try}}
				twin.settle()
				done = true
				return
			}
		}
	})
	return done
}

// Walked reports whether every loop has gone through all that waits for a node, by
// the snapshot in force.
func (d *Dataplane) Walked() bool {
	walked := true
	for _, l := range d.loops {
		d.on(l, func() {
			p := &l.parking
			walked = walked && (p.count == 0 || p.snap == d.opt.Fleet.Load() && p.next == nil)
		})
	}
	return walked
}

// ExplainBeside is Explain of a prompt that is too long for a turn of a loop:
// meanwhile runs when it has been looked for, before the decision.
func (d *Dataplane) ExplainBeside(path string, body []byte, meanwhile func()) (rec Record, err error) {
	l, x, later := d.loops[0], (*exchange)(nil), false
	d.on(l, func() {
		x, _, err = l.beginExplain(path)
		_ = x.takeBody(body)
		_, later = l.decide(x)
	})
	if err != nil || !later {
		return rec, fmt.Errorf("decided at once, or never: %v", err)
	}
	for !x.ident.work() {
		continue
	}
	meanwhile()
	d.on(l, func() {
		_, later = l.decide(x)
		rec = l.explained(x)
		l.forgetExplained(x)
	})
	if later {
		err = errors.New("not decided")
	}
	return rec, err
}

// Told reports whether the indexer has applied all that the loops have told.
func (d *Dataplane) Told() bool {
	for _, l := range d.loops {
		if l.notes.pending() {
			return false
		}
	}
	return true
}
