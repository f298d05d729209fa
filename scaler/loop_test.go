package scaler

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/scaler/actuate"
)

// inTime runs a test in time of its own, which passes when all wait.
func inTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// TestLoopScales: it asks for what is wanted, and gives back what is not.
func TestLoopScales(t *testing.T) {
	inTime(t, func(t *testing.T) {
		g := newRig(t, 3)
		g.run()
		pass(time.Minute)
		g.expect("wanted", 3, StageServing, 3)
		s := g.loop.Status()
		if len(s.Decided) != 1 || s.Decided[0].Action != ActionUp || s.Actions[[2]string{"up", s.Decided[0].Reason}] != 1 {
			t.Errorf("decided %+v, counted %v", s.Decided, s.Actions)
		}
		if len(s.Offers) != 1 || !s.Offers[0].StartUpSeconds.Known || s.NowNs < int64(58*time.Second) {
			t.Errorf("status %+v", s)
		}
		g.stop()
		g.r.missing = "nothing more is to happen"
		g.run() // without a journal: what is there are orphans now
		pass(time.Minute)
		if s := g.loop.Status(); len(s.Nodes) != 0 || len(s.Orphans) != 3 || s.Offers[0].Uncertain != 3 {
			t.Errorf("without a journal: %+v", s)
		}
		g.stop()
	})
}

// TestLoopFrozen: without signals nothing is made and nothing given back, for however
// long, and the status says why; with them it goes on.
func TestLoopFrozen(t *testing.T) {
	inTime(t, func(t *testing.T) {
		g := newRig(t, 2)
		g.r.missing = "router one did not answer"
		g.run()
		pass(time.Hour)
		g.expect("blind from the start", 0, StageServing, 0)
		g.r.set(func(r *routers) { r.missing = "" })
		pass(time.Minute)
		g.expect("it sees", 2, StageServing, 2)

		g.r.set(func(r *routers) { r.missing = "router one did not answer" })
		pass(time.Hour)
		g.expect("blind", 2, StageServing, 2)
		s := g.loop.Status()
		if s.Last.Action != ActionFrozen || !strings.Contains(s.Last.Words, "router one did not answer") || s.Last.Reason != "signals" {
			t.Errorf("the status says %+v", s.Last)
		}
		if ago := time.Since(s.Last.At); ago > 10*time.Second || s.Actions[[2]string{"frozen", "signals"}] < 600 {
			t.Errorf("last decided %v ago, %v", ago, s.Actions)
		}
		g.stop()
		if len(g.r.drained) > 0 {
			t.Errorf("%v were drained", g.r.drained)
		}
	})
}

// TestLoopDeaf: while the routers cannot be asked what is on a node, none is ended.
func TestLoopDeaf(t *testing.T) {
	inTime(t, func(t *testing.T) {
		g := newRig(t, 0)
		g.opt.Config.IdleSeconds, g.opt.Config.CoolDownSeconds, g.opt.Config.StabiliseDownSeconds = 120, 0, 0
		g.r.held = 1
		g.run()
		pass(30 * time.Second)
		g.expect("a request waits", 1, StageServing, 1)
		g.r.set(func(r *routers) { r.held, r.deaf = 0, true })
		pass(time.Hour)
		g.expect("nobody knows what is on it", 1, StageLeaving, 1)
		g.r.set(func(r *routers) {
			r.deaf = false
			for _, w := range r.nodes {
				w.InFlight = 1
			}
		})
		pass(time.Hour)
		if _, deletes, _ := g.p.calls(); g.p.count() != 1 || deletes > 0 {
			t.Error("it was ended with a request on it")
		}
		g.r.set(func(r *routers) {
			for _, w := range r.nodes {
				w.InFlight = 0
			}
		})
		pass(5 * time.Minute)
		g.expect("it is empty", 0, StageLeaving, 0)
		g.stop()
	})
}

// TestLoopHangs: a provider that never answers holds up neither the loop nor its other
// offers nor its own lists, and is asked for no more at once than it may be.
func TestLoopHangs(t *testing.T) {
	inTime(t, func(t *testing.T) {
		g := newRig(t, 20)
		g.p.hang, g.p.lost = true, true
		other := newProvider(t)
		g.opt.Config.Offers = []Offer{{Name: "a", PricePerHour: 1, Quota: 18}, {Name: "b", PricePerHour: 9}}
		g.opt.Book.Offers = g.opt.Config.Offers
		g.opt.Actuators["b"] = other
		g.run()
		pass(50 * time.Second)
		s := g.loop.Status()
		watched, most := 0, 0
		g.r.set(func(r *routers) { watched = r.watched })
		g.p.set(func(p *provider) { most = p.most })
		if s.NowNs < int64(49*time.Second) || watched < 48 {
			t.Errorf("the loop stands: at %d s, the routers were asked %d times", s.NowNs/1e9, watched)
		}
		if most != callsAtOnce || other.count() != 2 {
			t.Errorf("%d calls at once, want %d; the other offer has %d nodes", most, callsAtOnce, other.count())
		}
		if _, _, lists := g.p.calls(); lists < 9 {
			t.Errorf("its nodes were listed %d times", lists)
		}
		// Each call ends after a minute, and made its node: a list finds it.
		pass(30 * time.Second)
		if g.p.count() != 8 || g.stages()[StageServing] != 10 {
			t.Errorf("%d were made, owned %v", g.p.count(), g.stages())
		}
		pass(10 * time.Minute)
		if g.p.count() != 18 || g.stages()[StageServing] != 20 {
			t.Errorf("at the end %d were made, owned %v", g.p.count(), g.stages())
		}
		g.stop()
	})
}

// TestLoopSlowList: a list that takes longer than it lasts until the next is due is the
// only one, and one that never ends is given up.
func TestLoopSlowList(t *testing.T) {
	inTime(t, func(t *testing.T) {
		g := newRig(t, 1)
		g.p.listed = 40 * time.Second
		g.run()
		pass(10 * time.Minute)
		g.expect("slow", 1, StageServing, 1)
		g.p.set(func(p *provider) { p.listed = time.Hour })
		pass(10 * time.Minute)
		g.expect("never", 1, StageServing, 1)
		if got := g.loop.Status().Offers[0]; !strings.Contains(got.Unlisted, "context deadline exceeded") {
			t.Errorf("%+v", got)
		}
		g.stop()
	})
}

// TestLoopPartialLists: what a provider cannot list is not taken for gone.
func TestLoopPartialLists(t *testing.T) {
	inTime(t, func(t *testing.T) {
		g := newRig(t, 2)
		g.p.partly = true
		g.run()
		pass(time.Hour)
		g.expect("an hour", 2, StageServing, 2)
		if creates, deletes, _ := g.p.calls(); creates != 2 || deletes != 0 {
			t.Errorf("%d creates, %d deletes", creates, deletes)
		}
		g.stop()
	})
}

// TestLoopHalts: it ends at once with calls under way, changes nothing afterwards, and
// what it had asked for is asked for again by the next one, with the same keys.
func TestLoopHalts(t *testing.T) {
	folder := t.TempDir()
	inTime(t, func(t *testing.T) {
		g := newRig(t, 12)
		g.opt.Journal = openJournal(t, folder)
		g.p.hang, g.p.lost = true, true
		g.run()
		pass(20 * time.Second)
		begun := time.Now()
		g.stop()
		if took := time.Since(begun); took > 0 {
			t.Errorf("it took %v to halt", took)
		}
		creates, deletes, lists := g.p.calls()
		pass(time.Hour)
		if c, d, l := g.p.calls(); c != creates || d != deletes || l != lists || g.p.count() != 8 {
			t.Errorf("halted, it made %d calls; %d nodes", c+d+l-creates-deletes-lists, g.p.count())
		}
		closeJournal(t, g.opt.Journal)

		g.p.set(func(p *provider) { p.hang = false })
		g.r = newRouters()
		g.opt.Routers, g.opt.Journal = g.r, openJournal(t, folder)
		g.run()
		pass(time.Minute)
		g.expect("the next one", 12, StageServing, 12)
		g.stop()
		if len(g.p.keys) != 12 {
			t.Errorf("keys %v", g.p.keys)
		}
		closeJournal(t, g.opt.Journal)
	})
}

// TestLoopTakesOver: of two loops at one journal the second has to wait; then it has what
// the first one had, and makes nothing twice.
func TestLoopTakesOver(t *testing.T) {
	folder := t.TempDir()
	inTime(t, func(t *testing.T) {
		g := newRig(t, 3)
		g.opt.Journal = openJournal(t, folder)
		g.run()
		pass(time.Minute)
		if _, err := OpenJournal(folder); !errors.Is(err, ErrLocked) {
			t.Fatalf("a second one: %v", err)
		}
		first := g.loop.Status().Nodes
		g.stop()
		if _, err := OpenJournal(folder); !errors.Is(err, ErrLocked) {
			t.Fatalf("halted, it keeps what it has until it is closed: %v", err)
		}
		closeJournal(t, g.opt.Journal)
		g.opt.Journal = openJournal(t, folder)
		g.r = newRouters()
		g.opt.Routers = g.r
		g.run()
		pass(time.Hour)
		g.expect("the second", 3, StageServing, 3)
		second := g.loop.Status().Nodes
		if !slices.EqualFunc(first, second, func(a, b Owned) bool { return a.Key == b.Key && a.ID == b.ID && a.URL == b.URL }) {
			t.Errorf("%+v, were %+v", second, first)
		}
		if creates, deletes, _ := g.p.calls(); creates != 3 || deletes != 0 {
			t.Errorf("%d creates, %d deletes", creates, deletes)
		}
		g.stop()
		closeJournal(t, g.opt.Journal)
	})
}

// TestLoopErrors: a provider that fails for ever is asked ever more seldom, and what
// might be there does not grow without end.
func TestLoopErrors(t *testing.T) {
	for _, c := range []struct {
		name                    string
		err                     error
		creates, deletes, lists int // in three hours, at most
	}{
		{"refuses", actuate.Refused(actuate.Capacity, errors.New("none left")), 2 * 10, 0, 3*60*12 + 12},
		{"does not answer", errors.New("time-out"), 2 * 10 * giveUpAfter, 2 * 10 * 3 * 60, 3*60*12 + 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				g := newRig(t, 2)
				g.run()
				pass(5 * time.Second)
				g.p.set(func(p *provider) { p.err = c.err })
				pass(3 * time.Hour)
				creates, deletes, lists := g.p.calls()
				if creates > c.creates || deletes > c.deletes || lists > c.lists || creates < 5 {
					t.Errorf("%d creates, %d deletes, %d lists in three hours", creates, deletes, lists)
				}
				if s := g.loop.Status(); len(s.Nodes) > c.creates/giveUpAfter || len(s.Decided) > mostDecided || len(s.Offers[0].Unlisted) == 0 {
					t.Errorf("%d nodes, %d decisions, %+v", len(s.Nodes), len(s.Decided), s.Offers)
				}
				g.stop()
			})
		})
	}
}

// TestLoopCallbacks: however often a provider calls, its nodes are listed once a second.
func TestLoopCallbacks(t *testing.T) {
	inTime(t, func(t *testing.T) {
		g := newRig(t, 1)
		g.run()
		pass(time.Minute)
		_, _, before := g.p.calls()
		for range 1000 {
			for range 100 { // more at once than are kept
				g.loop.Relist("a")
				g.loop.Relist("nobody")
			}
			pass(10 * time.Millisecond)
		}
		if _, _, lists := g.p.calls(); lists-before < 9 || lists-before > 11 {
			t.Errorf("%d lists in 10 s", lists-before)
		}
		g.stop()
	})
}

// TestLoopJournalFails: what cannot be written down is not asked for, and said; once it
// can be, it is.
func TestLoopJournalFails(t *testing.T) {
	folder := t.TempDir()
	inTime(t, func(t *testing.T) {
		g := newRig(t, 4)
		j := openJournal(t, folder)
		g.opt.Journal = j
		good := j.file
		full, err := os.Open(filepath.Join(folder, journalName))
		if err != nil {
			t.Fatal(err)
		}
		j.file = full                                              // whose writing fails
		g.tune = func(l *Loop) { l.events = make(chan BookEvent) } // nothing may depend on its room
		g.run()
		pass(5 * time.Minute)
		if creates, _, _ := g.p.calls(); creates != 0 {
			t.Errorf("%d nodes were asked for", creates)
		}
		s := g.loop.Status()
		if len(s.Nodes) != 0 || s.NowNs < int64(298*time.Second) {
			t.Errorf("after 5 minutes: at %d s, %+v", s.NowNs/1e9, s.Nodes)
		}
		if why := s.Offers[0].Withheld; !strings.Contains(why, "write scaler's journal") || !strings.Contains(why, folder) {
			t.Errorf("withheld for %q", why)
		}
		g.stop()
		j.file = good
		g.run()
		pass(20 * time.Minute)
		g.expect("the disk is well", 4, StageServing, 4)
		g.stop()
		closeJournal(t, j)
		again := openJournal(t, folder)
		if got := NewBook(g.opt.Book, again.Records).Nodes(); len(got) != 4 {
			t.Errorf("written: %+v", got)
		}
		closeJournal(t, again)
		_ = full.Close()
	})
}

// TestLoopGrowth: what is kept for people has a bound.
func TestLoopGrowth(t *testing.T) {
	inTime(t, func(t *testing.T) {
		g := newRig(t, 0)
		g.opt.Config.IdleSeconds, g.opt.Config.CoolDownSeconds, g.opt.Config.StabiliseDownSeconds = 10, 0, 0
		g.opt.Config.IntervalSeconds = 1
		g.run()
		for range 110 { // each time it comes and goes
			g.r.set(func(r *routers) { r.held = 1 })
			pass(10 * time.Second)
			g.r.set(func(r *routers) { r.held = 0 })
			pass(40 * time.Second)
		}
		s := g.loop.Status()
		if len(s.Decided) != mostDecided || len(s.Actions) > len(Reasons)*5 || len(s.Nodes) != 0 {
			t.Errorf("%d decisions are kept, %d counted apart, %d nodes", len(s.Decided), len(s.Actions), len(s.Nodes))
		}
		last := s.Decided[mostDecided-1].At
		for i, d := range s.Decided {
			if d.At.After(last) || i > 0 && d.At.Before(s.Decided[i-1].At) {
				t.Fatalf("decision %d is out of order", i)
			}
		}
		g.stop()
		if tombs := len(g.loop.book.tombs); tombs < 100 || tombs > mostTombs {
			t.Errorf("%d keys are remembered", tombs)
		}
	})
}

// TestLoopLost: a node that serves and that no router takes costs and does nothing: it
// is replaced after the time that others have.
func TestLoopLost(t *testing.T) {
	inTime(t, func(t *testing.T) {
		g := newRig(t, 1)
		g.run()
		pass(time.Minute)
		g.expect("well", 1, StageServing, 1)
		first := g.loop.Status().Nodes[0].Key
		g.r.set(func(r *routers) { clear(r.nodes) })
		pass(time.Duration(g.opt.Config.ReplaceDownSeconds)*time.Second + 2*time.Minute)
		g.expect("replaced", 1, StageServing, 1)
		if key := g.loop.Status().Nodes[0].Key; key == first {
			t.Errorf("%s was not replaced", key)
		}
		g.stop()
	})
}

// TestMerge: what Plan is told of the nodes that the Book knows.
func TestMerge(t *testing.T) {
	b := NewBook(BookSettings{Offers: []Offer{{Name: "a"}}}, nil)
	for _, o := range []Owned{
		{Key: "asked", Stage: StageAsked, AskedNs: 5},
		{Key: "coming", Stage: StageComing, AskedNs: 6},
		{Key: "coming-seen", Stage: StageComing, AskedNs: 7},
		{Key: "serving", Stage: StageServing},
		{Key: "by-hand", Stage: StageServing},
		{Key: "lost", Stage: StageServing, lostNs: 8},
		{Key: "drains", Stage: StageLeaving, StageNs: 9},
		{Key: "drains-down", Stage: StageLeaving},
		{Key: "given-up", Stage: StageLeaving, final: true},
		{Key: "taken-out", Stage: StageLeaving},
		{Key: "ends", Stage: StageEnding},
		{Key: "ends-unseen", Stage: StageEnding},
	} {
		o.Offer = "a"
		b.nodes[o.Key] = &o
	}
	seen := []Node{
		{Name: "by-hand", Phase: Draining},
		{Name: "coming-seen", Phase: Starting, SinceNs: 1},
		{Name: "drains", Phase: Ready, SinceNs: 2},
		{Name: "drains-down", Phase: Down, SinceNs: 3},
		{Name: "ends", Phase: Draining},
		{Name: "given-up", Phase: Ready},
		{Name: "serving", Phase: Ready, SinceNs: 4},
		{Name: "somebody's", Phase: Down, SinceNs: 4},
	}
	const now = 100
	want := []Node{
		{Name: "asked", Offer: "a", Phase: Starting, SinceNs: 5},
		{Name: "by-hand", Offer: "a", Phase: Draining, ByHand: true},
		{Name: "coming", Offer: "a", Phase: Starting, SinceNs: 6},
		{Name: "coming-seen", Offer: "a", Phase: Starting, SinceNs: 7},
		{Name: "drains", Offer: "a", Phase: Draining, SinceNs: 2},
		{Name: "drains-down", Offer: "a", Phase: Down, SinceNs: now}, // it cannot be asked back, nor given back again
		{Name: "given-up", Offer: "a", Phase: Down, SinceNs: now},
		{Name: "lost", Offer: "a", Phase: Down, SinceNs: 8},
		{Name: "serving", Offer: "a", Phase: Ready, SinceNs: 4},
		{Name: "somebody's", Phase: Down, SinceNs: 4},
		{Name: "taken-out", Offer: "a", Phase: Down, SinceNs: now},
	}
	got := b.merge(seen, now)
	if !slices.EqualFunc(got, want, func(a, b Node) bool {
		return a.Name == b.Name && a.Offer == b.Offer && a.Phase == b.Phase && a.SinceNs == b.SinceNs && a.ByHand == b.ByHand
	}) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
