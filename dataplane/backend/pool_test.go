package backend

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPoolAgainstSlices runs the pool beside one slice a slot, newest last.
func TestPoolAgainstSlices(t *testing.T) {
	type idle struct {
		c    *Conn
		atNs int64
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var p Pool
	twin := make([][]idle, 5)
	var away []*Conn
	now := int64(0)
	for step := range 50_000 {
		now += rng.Int64N(3)
		slot := rng.IntN(len(twin))
		switch k := rng.IntN(20); {
		case k < 8:
			c := &Conn{Slot: slot, Generation: uint32(rng.IntN(3))}
			if len(away) > 0 && k < 4 {
				c, away = away[len(away)-1], away[:len(away)-1]
			}
			if !p.Put(c, now) {
				t.Fatal("refused below the bound")
			}
			twin[c.Slot] = append(twin[c.Slot], idle{c, now})
		case k < 15:
			gen := uint32(rng.IntN(3))
			var want *Conn
			for i := len(twin[slot]) - 1; i >= 0; i-- {
				if e := twin[slot][i]; e.c.Generation == gen {
					want = e.c
					twin[slot] = slices.Delete(twin[slot], i, i+1)
					break
				}
			}
			got := p.Take(slot, gen)
			if got != want {
				t.Fatalf("step %d: took %p, want %p", step, got, want)
			}
			if got != nil {
				away = append(away, got)
			}
		case k < 19:
			if n := len(twin[slot]); n > 0 {
				i := rng.IntN(n)
				c := twin[slot][i].c
				p.Remove(c)
				p.Remove(c) // again: nothing happens
				twin[slot] = slices.Delete(twin[slot], i, i+1)
			}
		default:
			before := now - rng.Int64N(200)
			want := map[*Conn]bool{}
			for s := range twin {
				twin[s] = slices.DeleteFunc(twin[s], func(e idle) bool {
					if e.atNs < before {
						want[e.c] = true
					}
					return e.atNs < before
				})
			}
			p.Expire(before, func(c *Conn) {
				if !want[c] {
					t.Fatalf("step %d: expired a connection that is not old", step)
				}
				delete(want, c)
			})
			if len(want) > 0 {
				t.Fatalf("step %d: %d old connections were kept", step, len(want))
			}
		}
		total := 0
		for _, l := range twin {
			total += len(l)
		}
		if p.Idle() != total {
			t.Fatalf("step %d: %d idle, want %d", step, p.Idle(), total)
		}
	}
}

func TestPoolBound(t *testing.T) {
	var p Pool
	for i := range MaxIdle {
		if !p.Put(&Conn{Slot: 2}, int64(i)) {
			t.Fatalf("refused connection %d", i)
		}
	}
	if p.Put(&Conn{Slot: 2}, 1) {
		t.Error("one more than MaxIdle was kept")
	}
	if !p.Put(&Conn{Slot: 3}, 1) {
		t.Error("another node's share was refused")
	}
	if p.Take(99, 0) != nil {
		t.Error("a slot nobody used has a connection")
	}
}

func TestPoolAllocs(t *testing.T) {
	var p Pool
	c := &Conn{Slot: 1}
	p.Put(c, 0)
	if n := testing.AllocsPerRun(100, func() {
		p.Put(p.Take(1, 0), 1)
		p.Expire(0, func(*Conn) {})
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestClassTable(t *testing.T) {
	for _, c := range []struct {
		class                   Class
		name                    string
		blames, lost, retryable bool
		status                  int
	}{
		{OK, "ok", false, false, false, 502},
		{Refused, "refused", true, true, true, 502},
		{Stale, "stale", false, true, true, 502},
		{Reset, "reset", true, true, true, 502},
		{Malformed, "malformed", true, false, true, 502},
		{Status, "status", true, false, true, 502},
		{ErrorEvent, "error_event", true, false, true, 502},
		{Silent, "silent", true, false, true, 504},
		{Dead, "dead", true, true, true, 502},
		{MidStream, "mid_stream", true, false, false, 502},
		{ClientGone, "client_gone", false, false, false, 502},
	} {
		if c.class.String() != c.name || c.class.Blames() != c.blames || c.class.Lost() != c.lost ||
			c.class.Retryable() != c.retryable || c.class.ClientStatus() != c.status {
			t.Errorf("%v: blames %v, lost %v, retryable %v, status %d; want %+v", c.class, c.class.Blames(), c.class.Lost(), c.class.Retryable(), c.class.ClientStatus(), c)
		}
	}
}
