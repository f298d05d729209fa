package bpf

import (
	"net"
	"syscall"
	"testing"
	"time"

	"warmpath/netlab"
)

// tenantOf is the tenant that tests give out with a node's number.
func tenantOf(node uint32) uint32 { return node + 100 }

// dialIn connects from the lab's router, followed.
func (f *Flow) dialIn(l *netlab.Lab, address string, node, slot uint32, timeout time.Duration) (c net.Conn, err error) {
	d := net.Dialer{Timeout: timeout, Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = f.Follow(int(fd), node, slot, f.slot(int(slot)).Generation, tenantOf(node)) }); e != nil {
			return e
		}
		return err
	}}
	err = l.Router.In(func() (err error) {
		c, err = d.Dial("tcp", address)
		return err
	})
	return c, err
}

// answering listens on the lab's node, and answers each read after a while.
func answering(l *netlab.Lab, thinks time.Duration) string {
	return l.Serve(l.Node, func(c net.Conn) {
		var b [64]byte
		for {
			n, err := c.Read(b[:])
			if err != nil {
				return
			}
			<-time.After(thinks)
			_, _ = c.Write(b[:n])
		}
	}).String()
}

// TestLostSYN: the first is sent again after the rule's time, not after a second.
func TestLostSYN(t *testing.T) {
	l, f := netlab.New(t), loadFollowing(t)
	address := answering(l, 0)
	if c, err := f.dialIn(l, address, 1, 1, time.Second); err != nil { // they know each other's hardware addresses now
		t.Fatal(err)
	} else {
		_ = c.Close()
	}
	ticks, err := TicksPerSecond()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.SetRule(1, Rule{SynRtoJiffies: uint32(max(ticks*20/1000, 1))}); err != nil {
		t.Fatal(err)
	}
	l.Lose(1000)
	began := uint64(MonotonicNs())
	done := make(chan error, 1)
	go func() {
		c, err := f.dialIn(l, address, 1, 2, 900*time.Millisecond)
		if err == nil {
			_ = c.Close()
		}
		done <- err
	}()
	e := f.expect(t, EventSynRTO, 1)
	if after := time.Duration(e.AtNs - began); after < 10*time.Millisecond || after > 400*time.Millisecond {
		t.Errorf("a SYN timed out after %v, want about 20 ms", after)
	}
	l.Lose(0)
	if err := <-done; err != nil {
		t.Errorf("a SYN that got through later: %v", err)
	}
}

// TestDeadHost: a request goes out, and nothing at all comes back. The second
// time-out in a row says since when; nothing was heard after it.
func TestDeadHost(t *testing.T) {
	l, f := netlab.New(t), loadFollowing(t)
	if err := f.SetRule(1, Rule{RtoMinUs: 50_000, Near: 1}); err != nil {
		t.Fatal(err)
	}
	c, err := f.dialIn(l, answering(l, 0), 1, 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 3 {
		_, _ = c.Write([]byte("x"))
		_, _ = c.Read(make([]byte, 1))
	}
	l.Lose(1000)
	sent := uint64(MonotonicNs())
	_, _ = c.Write([]byte("x"))
	e := f.expect(t, EventRTO, 1)
	if e.Count != 2 || e.Tenant != tenantOf(1) || e.SinceNs < sent || e.AtNs <= e.SinceNs {
		t.Errorf("event %+v of what was sent at %d", e, sent)
	}
	if after := time.Duration(e.AtNs - sent); after > time.Second {
		t.Errorf("the second time-out was after %v", after)
	}
	n, err := f.Counters(1)
	if err != nil || n.HeardNs >= e.SinceNs || n.Rtos < 2 || n.Retransmits == 0 {
		t.Errorf("counters %+v, %v; the first time-out was at %d", n, err, e.SinceNs)
	}
}

// TestEndedConnectionAccusesNobody: of a connection that this side has ended,
// time-outs are counted, and no event tells of them.
func TestEndedConnectionAccusesNobody(t *testing.T) {
	l, f := netlab.New(t), loadAll(t)
	if err := f.SetRule(1, Rule{RtoMinUs: 50_000, Near: 1}); err != nil {
		t.Fatal(err)
	}
	c, err := f.dialIn(l, answering(l, 0), 1, 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("x"))
	_, _ = c.Read(make([]byte, 1))
	l.Lose(1000)
	_ = c.Close()
	for deadline := time.Now().Add(10 * time.Second); ; <-time.After(10 * time.Millisecond) {
		n, err := f.Counters(1)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("counters %+v, %v", n, err)
		}
		if n.Rtos >= 3 {
			break
		}
	}
	f.events.SetDeadline(time.Now())
	for e := (Event{}); f.Next(&e) == nil; {
		t.Errorf("event %+v", e)
	}
}

// TestSlowAndLossyIsNotDead: a node that thinks for longer than a delayed
// acknowledgement takes, and loses a packet in a hundred, never has two time-outs
// in a row with nothing heard between.
func TestSlowAndLossyIsNotDead(t *testing.T) {
	l, f := netlab.New(t), loadAll(t)
	if err := f.SetRule(1, Rule{RtoMinUs: 50_000, Near: 1}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			var e Event
			if f.Next(&e) != nil {
				return
			}
			if EventKind(e.Kind) != EventRTO {
				continue
			}
			if n, err := f.Counters(1); err == nil && n.HeardNs < e.SinceNs {
				t.Errorf("the node would be called dead: %+v", e)
			}
		}
	}()
	address := answering(l, 30*time.Millisecond)
	const conns, requests = 8, 40
	done := make(chan error, conns)
	for i := range conns {
		c, err := f.dialIn(l, address, 1, uint32(i+1), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer c.Close()
			for range requests {
				if _, err := c.Write([]byte("x")); err != nil {
					done <- err
					return
				}
				if _, err := c.Read(make([]byte, 1)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	l.Lose(10)
	for range conns {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	n, err := f.Counters(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests to a node that thinks 30 ms and loses 1 %%: %d segments sent again, %d time-outs", conns*requests, n.Retransmits, n.Rtos)
	if again := n.Retransmits; again > conns*requests/5 {
		t.Errorf("%d of %d segments were sent again", again, conns*requests)
	}
}
