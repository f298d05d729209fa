package sentinel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// world is a network without sockets, for a synctest bubble: hosts by address.
type world struct {
	t      *testing.T
	start  time.Time
	nodes  atomic.Pointer[[]*state.Node]
	hosts  map[netip.AddrPort]*host
	rand   *rand.Rand
	lack   error // what opening a socket fails with
	open   int
	most   int
	sent   int
	silent []told
	alive  []told
	refuse int
	stall  atomic.Int64 // ns that the next look is late
}

type told struct {
	node    string
	at      time.Duration
	since   time.Duration
	because string
}

// host is a node's kernel and program.
type host struct {
	rtt    func() time.Duration
	loss   float64       // of each packet
	diesAt time.Duration // nothing is answered from then on …
	backAt time.Duration // … until then; 0 = for ever
	shut   bool          // nobody listens
	stuck  bool          // its program takes nothing
	open   int           // SYNs that were answered and not ended by either side
	most   int
	first  time.Duration // when the first SYN came to it
}

// wire is one SYN in that network.
type wire struct {
	w         *world
	h         *host
	sentAt    time.Duration
	comesAt   time.Duration // the answer; 0 = never
	connected bool
	closed    bool
}

func newWorld(t *testing.T, hosts ...*host) *world {
	w := &world{t: t, start: time.Now(), hosts: map[netip.AddrPort]*host{}, rand: rand.New(rand.NewPCG(1, 2))}
	var nodes []*state.Node
	for i, h := range hosts {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8000)
		w.hosts[at] = h
		if h.rtt == nil {
			h.rtt = func() time.Duration { return 200 * time.Microsecond }
		}
		nodes = append(nodes, &state.Node{
			Spec: state.Spec{Name: fmt.Sprint("n", i)}, Endpoint: state.Endpoint{Address: at.String()},
			Incarnation: uint64(i + 1), Health: fleet.Ready, Load: new(fleet.Load),
		})
	}
	w.nodes.Store(&nodes)
	return w
}

func (w *world) node(i int) *state.Node { return (*w.nodes.Load())[i] }

func (w *world) now() time.Duration { return time.Since(w.start) + time.Second }

func (w *world) nowNs() int64 { return int64(w.now()) }

func (w *world) dial(at netip.AddrPort) (Socket, error) {
	if w.lack != nil {
		return nil, w.lack
	}
	h, now := w.hosts[at], w.now()
	if h.first == 0 {
		h.first = now
	}
	s := &wire{w: w, h: h, sentAt: now}
	rtt := h.rtt()
	dead := func(at time.Duration) bool {
		return h.diesAt > 0 && at >= h.diesAt && (h.backAt == 0 || at < h.backAt)
	}
	there, back := w.rand.Float64() >= h.loss, w.rand.Float64() >= h.loss
	if there && back && !dead(now+rtt/2) {
		s.comesAt = now + rtt
	} else if again := now + time.Second; h.backAt > 0 && !dead(again) { // the kernel's own second SYN
		s.comesAt = again + rtt
	}
	w.sent++
	w.open++
	w.most = max(w.most, w.open)
	return s, nil
}

func (s *wire) Look() Answer {
	switch now := s.w.now(); {
	case s.closed:
		s.w.t.Error("a closed socket was looked at")
	case s.comesAt == 0 || now < s.comesAt:
	case s.h.shut:
		return Refused
	case !s.connected:
		s.connected = true
		s.h.open++
		s.h.most = max(s.h.most, s.h.open)
		return Answered
	case s.h.stuck:
		return Answered
	default:
		return Ended
	}
	return Waiting
}

func (s *wire) Close() {
	if s.closed {
		s.w.t.Error("a socket was closed twice")
	}
	s.closed = true
	s.w.open--
	if s.connected {
		s.h.open--
	}
}

func (w *world) keeper() *Keeper {
	note := func(to *[]told, n *state.Node, ns int64, why string) {
		*to = append(*to, told{n.Spec.Name, w.now(), time.Duration(ns), why})
	}
	return New(Options{
		Nodes: func() []*state.Node {
			if late := w.stall.Swap(0); late > 0 {
				<-time.After(time.Duration(late))
			}
			return *w.nodes.Load()
		},
		NowNs:   w.nowNs,
		Silent:  func(n *state.Node, sinceNs int64, evidence string) { note(&w.silent, n, sinceNs, evidence) },
		Alive:   func(n *state.Node, atNs int64) { note(&w.alive, n, atNs, "") },
		Refused: func(*state.Node) { w.refuse++ },
		Open:    w.dial,
		Resolve: func(_ context.Context, address string) ([]netip.AddrPort, error) {
			if address == "known:8000" {
				return []netip.AddrPort{netip.MustParseAddrPort("10.0.0.0:8000")}, nil
			}
			return nil, errors.New("no such host")
		},
	})
}

// run keeps watch for so long; meanwhile, if it is not nil, runs beside it.
func (w *world) run(d time.Duration, meanwhile func()) *Keeper {
	w.t.Helper()
	k := w.keeper()
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	if meanwhile != nil {
		go meanwhile()
	}
	k.Run(ctx)
	if w.open != 0 {
		w.t.Errorf("%d sockets are open at the end", w.open)
	}
	if w.most > socketsMost {
		w.t.Errorf("%d sockets were open, at most %d may be", w.most, socketsMost)
	}
	return k
}

// waits gives a node a request that waits from now on.
func (w *world) waits(i int) { w.node(i).Load.Requests.Store(1) }

// bubble runs f with a clock of its own.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// A node is told to be silent within 300 ms of its death, whenever in the turn
// of exchanges it dies, and not before it has had its time.
func TestDeadInTime(t *testing.T) {
	for dies := 1500 * time.Millisecond; dies < 1750*time.Millisecond; dies += 7 * time.Millisecond {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, &host{diesAt: dies})
			w.waits(0)
			w.run(time.Second, nil)
			if len(w.silent) == 0 || len(w.alive) != 0 {
				t.Fatalf("died at %v: told %v, %v", dies, w.silent, w.alive)
			}
			if s := w.silent[0]; s.at-dies > 255*time.Millisecond || s.at-s.since < 130*time.Millisecond || s.since < dies-time.Millisecond {
				t.Errorf("died at %v, told so at %v of the time since %v (%s)", dies, s.at, s.since, s.because)
			}
		})
	}
}

// So is one that was streaming until it died.
func TestDeadWhileStreaming(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const dies = 1505 * time.Millisecond
		w := newWorld(t, &host{diesAt: dies})
		w.waits(0)
		w.run(time.Second, func() {
			for w.now() < dies {
				w.node(0).Load.Heard(w.nowNs())
				<-time.After(5 * time.Millisecond)
			}
		})
		if w.sent == 0 || w.hosts[netip.MustParseAddrPort("10.0.0.0:8000")].first < dies {
			t.Error("a node that says something was asked")
		}
		if len(w.silent) == 0 || w.silent[0].at-dies > 265*time.Millisecond {
			t.Errorf("died at %v: told %v", dies, w.silent)
		}
	})
}

// The first connection to it took ten seconds, of which most was the time-out of
// another of its addresses: that does not make its death known only after forty.
func TestDeadAfterASlowStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const dies = 1505 * time.Millisecond
		w := newWorld(t, &host{diesAt: dies})
		w.node(0).Load.ConnectNs.Store(int64(10 * time.Second))
		w.waits(0)
		w.run(5*time.Second, func() {
			for w.now() < dies {
				w.node(0).Load.Heard(w.nowNs())
				<-time.After(5 * time.Millisecond)
			}
		})
		if len(w.silent) == 0 || w.silent[0].at-dies > 4*time.Second {
			t.Errorf("died at %v: told %v", dies, w.silent)
		}
	})
}

// Nothing that a living host does makes it silent: answers after 25 to 35 ms,
// lost packets, a program that takes nothing, and a way that is long.
func TestLivingIsNeverDead(t *testing.T) {
	for _, c := range []struct {
		name string
		host func(r *rand.Rand) *host
		long time.Duration // what connecting takes, as is known
	}{
		{"near", func(*rand.Rand) *host { return &host{} }, 0},
		{"25 to 35 ms, one packet in a hundred lost", func(r *rand.Rand) *host {
			return &host{loss: 0.01, rtt: func() time.Duration { return 25*time.Millisecond + time.Duration(r.Int64N(10e6)) }}
		}, 0},
		{"one packet in twenty lost", func(*rand.Rand) *host { return &host{loss: 0.05} }, 0},
		{"100 ms", func(*rand.Rand) *host { return &host{rtt: func() time.Duration { return 100 * time.Millisecond }} }, 0},
		{"far", func(*rand.Rand) *host { return &host{rtt: func() time.Duration { return 290 * time.Millisecond }} }, 290 * time.Millisecond},
		{"its program takes nothing", func(*rand.Rand) *host { return &host{stuck: true} }, 0},
		{"nobody listens", func(*rand.Rand) *host { return &host{shut: true} }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := c.host(rand.New(rand.NewPCG(3, 4)))
				w := newWorld(t, h)
				w.waits(0)
				w.node(0).Load.ConnectNs.Store(int64(c.long))
				k := w.run(10*time.Minute, nil)
				counts := k.Counts("n0")
				if len(w.silent) > 0 || counts[OutcomeUnanswered] > 0 {
					t.Errorf("a living node was called silent: %v", w.silent)
				}
				switch {
				case h.stuck:
					if h.most > untakenMost || counts[OutcomeAnswered] < 50*untakenMost {
						t.Errorf("%d connections waited to be taken, %d were made", h.most, counts[OutcomeAnswered])
					}
				case h.shut:
					if w.refuse < 2500 || counts[OutcomeRefused] != uint64(w.refuse) {
						t.Errorf("%d refusals were told of, %d counted", w.refuse, counts[OutcomeRefused])
					}
				default:
					if counts[OutcomeAnswered] < 1500 || counts[OutcomeAnswered] > 6000 {
						t.Errorf("%d exchanges in ten minutes, want one each 100 ms and a bit", counts[OutcomeAnswered])
					}
				}
			})
		})
	}
}

// A node that is farther away than anybody knew is mistaken once at most.
func TestFarIsLearned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, &host{rtt: func() time.Duration { return 400 * time.Millisecond }})
		w.waits(0)
		w.run(time.Minute, nil)
		if len(w.silent) > 3 || len(w.alive) != 1 || w.alive[0].at < w.silent[0].at || w.silent[len(w.silent)-1].at > w.alive[0].at {
			t.Errorf("told silent %d times, alive %v", len(w.silent), w.alive)
		}
	})
}

// A dead node that comes back is told of, by the kernel's own second SYN, or the
// next exchange, or bytes.
func TestRevived(t *testing.T) {
	for _, back := range []time.Duration{1900, 2600, 9000} {
		bubble(t, func(t *testing.T) {
			h := &host{diesAt: 1500 * time.Millisecond, backAt: back * time.Millisecond}
			w := newWorld(t, h)
			w.waits(0)
			w.run(20*time.Second, func() {
				<-time.After(900 * time.Millisecond)
				n := *w.node(0)
				n.Health, n.Cause = fleet.Down, fleet.CauseDead
				w.nodes.Store(&[]*state.Node{&n})
			})
			last := w.silent[len(w.silent)-1]
			if len(w.alive) != 1 || w.alive[0].at < h.backAt || w.alive[0].at > h.backAt+1300*time.Millisecond || last.at > w.alive[0].at {
				t.Errorf("back at %v: told alive %v, silent last at %v", h.backAt, w.alive, last.at)
			}
			if len(w.silent) > 12 { // one each 1.15 s
				t.Errorf("a dead node was asked %d times", len(w.silent))
			}
		})
	}
}

// A node that was dead, came back and dies again is found out as soon as the
// first time: the pause between exchanges with a dead node does not outlast it.
func TestDeadAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const diesAgain = 2300 * time.Millisecond
		w := newWorld(t, &host{diesAt: 1500 * time.Millisecond})
		w.waits(0)
		set := func(health fleet.State, cause fleet.Cause) {
			n := *w.node(0)
			n.Health, n.Cause = health, cause
			w.nodes.Store(&[]*state.Node{&n})
		}
		w.run(2*time.Second, func() {
			<-time.After(800 * time.Millisecond)
			set(fleet.Down, fleet.CauseDead)
			<-time.After(250 * time.Millisecond)
			set(fleet.Ready, fleet.CauseNone)
			for w.now() < diesAgain {
				w.node(0).Load.Heard(w.nowNs())
				<-time.After(5 * time.Millisecond)
			}
		})
		again := slices.IndexFunc(w.silent, func(s told) bool { return s.at > diesAgain })
		if len(w.alive) != 1 || again < 2 || w.silent[again].at-diesAgain > 265*time.Millisecond {
			t.Errorf("died again at %v: told silent %v, alive %v", diesAgain, w.silent, w.alive)
		}
	})
}

// Nodes without requests, and those that were never ready, are not asked.
func TestIdleIsNotAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, &host{}, &host{})
		w.waits(1)
		w.node(1).Health = fleet.Warming
		w.run(time.Minute, nil)
		if w.sent != 0 {
			t.Errorf("%d SYNs", w.sent)
		}
	})
}

// A short request ends before its node is asked; one that ends meanwhile makes
// the exchange void.
func TestRequestsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, &host{diesAt: 1})
		k := w.run(2*time.Second, func() {
			for _, lasts := range []time.Duration{80, 200} {
				w.waits(0)
				<-time.After(lasts * time.Millisecond)
				w.node(0).Load.Requests.Store(0)
				<-time.After(300 * time.Millisecond)
			}
		})
		if c := k.Counts("n0"); c != (Counts{OutcomeVoid: 1}) || len(w.silent) > 0 {
			t.Errorf("counted %v, told %v", c, w.silent)
		}
	})
}

// A fleet that dies as a whole is asked within the bound on sockets, and each of
// its nodes is told of.
func TestSocketsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hosts := make([]*host, 300)
		for i := range hosts {
			hosts[i] = &host{diesAt: 1}
		}
		w := newWorld(t, hosts...)
		for i := range hosts {
			w.waits(i)
		}
		w.run(20*time.Second, nil)
		names := map[string]bool{}
		for _, s := range w.silent {
			names[s.node] = true
		}
		if len(names) != len(hosts) {
			t.Errorf("%d of %d nodes were told of", len(names), len(hosts))
		}
	})
}

// When this process stood still, what came meanwhile counts, and what could not
// come has the time that was lost.
func TestStandingStill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, &host{rtt: func() time.Duration { return 60 * time.Millisecond }})
		w.waits(0)
		w.run(10*time.Second, func() {
			for range 30 {
				<-time.After(173 * time.Millisecond)
				w.stall.Store(400e6)
			}
		})
		if len(w.silent) > 0 {
			t.Errorf("told %v", w.silent)
		}
	})
}

// What this host lacks says nothing of a node.
func TestLack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, &host{diesAt: 1})
		w.lack = fmt.Errorf("open: %w", syscall.EMFILE)
		w.waits(0)
		k := w.run(10*time.Second, nil)
		if c := k.Counts("n0"); len(w.silent) > 0 || c[OutcomeVoid] < 5 || c[OutcomeVoid] > 12 {
			t.Errorf("counted %v, told %v", c, w.silent)
		}
	})
}

// That there is no way to a node is no answer of its host.
func TestNoRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, &host{})
		w.lack = fmt.Errorf("connect: %w", syscall.ENETUNREACH)
		w.waits(0)
		w.run(time.Second, nil)
		if len(w.silent) == 0 {
			t.Error("not told")
		}
	})
}

// Names are looked up; a node whose name is not known is not asked.
func TestNames(t *testing.T) {
	for address, known := range map[string]bool{"known:8000": true, "unknown:8000": false} {
		bubble(t, func(t *testing.T) {
			w := newWorld(t, &host{diesAt: 1})
			w.node(0).Endpoint.Address = address
			w.waits(0)
			w.run(10*time.Second, nil)
			if told := len(w.silent) > 0; told != known || (w.sent > 0) != known {
				t.Errorf("%s: %d SYNs, told %v", address, w.sent, w.silent)
			}
		})
	}
}

// Counts of nodes that have gone are forgotten, and what is open to them closed.
func TestNodesGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, &host{diesAt: 1}, &host{})
		w.waits(0)
		w.waits(1)
		k := w.run(5*time.Second, func() {
			<-time.After(2 * time.Second)
			rest := (*w.nodes.Load())[1:]
			w.nodes.Store(&rest)
		})
		if c := k.Counts("n0"); c != (Counts{}) || k.Counts("n1")[OutcomeAnswered] < 20 {
			t.Errorf("counted %v and %v", c, k.Counts("n1"))
		}
	})
}
