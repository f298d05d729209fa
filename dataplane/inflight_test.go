package dataplane

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"warmpath/dataplane/fleet"
)

// stockRoom is a data plane whose loops do not run: a test makes their clients
// and exchanges, and lets their time pass.
type stockRoom struct {
	t     testing.TB
	d     *Dataplane
	log   bytes.Buffer
	nodes []*fleet.Node // of every incarnation there was
}

func newStockRoom(t testing.TB, loops, nodes int, log io.Writer) *stockRoom {
	s := &stockRoom{t: t}
	if log == nil {
		log = &s.log
	}
	s.d = &Dataplane{opt: Options{Fleet: fleet.NewHolder(), Log: slog.New(slog.NewTextHandler(log, nil))}}
	for range loops {
		s.d.loops = append(s.d.loops, &loop{d: s.d})
	}
	snap := &fleet.Snapshot{Default: -1}
	for slot := range nodes {
		snap.Nodes = append(snap.Nodes, &fleet.Node{Slot: slot, Generation: 1, Name: fmt.Sprint("n", slot), Load: &fleet.Load{}})
	}
	s.nodes = slices.Clone(snap.Nodes)
	s.d.opt.Fleet.Store(snap.Seal())
	return s
}

// replace gives a slot to another incarnation.
func (s *stockRoom) replace(slot int) {
	snap := &fleet.Snapshot{Default: -1}
	for _, n := range s.d.opt.Fleet.Load().Nodes {
		next := *n
		snap.Nodes = append(snap.Nodes, &next)
	}
	n := snap.Nodes[slot]
	n.Generation++
	n.Load = &fleet.Load{}
	s.nodes = append(s.nodes, n)
	s.d.opt.Fleet.Store(snap.Seal())
}

func (l *loop) openFake() *client {
	c := &client{loop: l}
	l.clients.Add(1)
	l.open.add(c)
	l.census.opened(c)
	return c
}

func (l *loop) closeFake(c *client) {
	l.census.leaves(c)
	l.open.remove(c)
	l.clients.Add(-1)
	if x := c.x; x != nil {
		c.x = nil
		x.settle()
		if x.rival != nil {
			x.rival.settle()
		}
	}
}

// ask sends a request of the client's to a node of the snapshot in force.
func (c *client) ask(rnd *rand.Rand) *exchange {
	x := &exchange{passage: passage{client: c, snap: c.loop.d.opt.Fleet.Load(), model: -1}}
	x.polReq.PromptTokens, x.polReq.OutputTokens = 1+rnd.IntN(1000), rnd.IntN(100)
	c.x = x
	x.send(rnd)
	return x
}

// send is a try at a node of the exchange's snapshot, which need not be in force.
func (x *exchange) send(rnd *rand.Rand) {
	x.node = x.snap.Nodes[rnd.IntN(len(x.snap.Nodes))]
	x.raise()
}

// tick lets a tick pass.
func (l *loop) tick() {
	l.now += tickNs
	l.takeStock()
}

// randomStep does one thing that happens to clients and their requests.
func (l *loop) randomStep(rnd *rand.Rand, clients []*client) []*client {
	if len(clients) == 0 || rnd.IntN(30) == 0 {
		return append(clients, l.openFake())
	}
	i := rnd.IntN(len(clients))
	c := clients[i]
	x := c.x
	switch what := rnd.IntN(20); {
	case what == 0 && len(clients) > 20:
		l.closeFake(c)
		return slices.Delete(clients, i, i+1)
	case x == nil:
		c.ask(rnd)
	case what < 5: // its answer begins
		x.prefillDone()
	case what < 9: // … or its node fails, and another one is asked
		x.settle()
		x.send(rnd)
	case what < 12 && x.rival == nil:
		y := x.double()
		x.rival, y.rival = y, x
		y.send(rnd)
	case what < 15 && x.rival != nil: // one of the two goes on
		y := x.rival
		if rnd.IntN(2) == 0 {
			x.try, y.try = y.try, x.try
		}
		x.rival, y.rival = nil, nil
		y.settle()
	default:
		c.x = nil
		x.settle()
		if x.rival != nil {
			x.rival.settle()
		}
	}
	return clients
}

// held is what the exchanges of all clients hold of the node.
func (s *stockRoom) held(n *fleet.Node) (sum amounts) {
	for _, l := range s.d.loops {
		for c := l.open.first; c != nil; c = c.next {
			for x := c.x; x != nil; x = x.rival {
				if x.stake != nil && x.stake.load == n.Load {
					sum.add(x.holds())
				}
				if x != c.x {
					break
				}
			}
		}
	}
	return sum
}

// wrong says what of the counters is not held by any client.
func (s *stockRoom) wrong() amounts {
	wrong := s.counted()
	for _, n := range s.nodes {
		wrong.add(s.held(n).negative())
	}
	return wrong
}

// counted is what the counters of all incarnations say together.
func (s *stockRoom) counted() (sum amounts) {
	for _, n := range s.nodes {
		sum.add(amounts{n.Load.Requests.Load(), n.Load.PrefillTokens.Load(), n.Load.TotalTokens.Load()})
	}
	return sum
}

func (s *stockRoom) healed() (times int64) {
	for _, n := range s.nodes {
		times += n.Load.Healed.Load()
	}
	return times
}

// TestRightCountersStay: loops that share nodes do whatever happens to requests,
// in any order, in one another's way, with walks of any length between; nodes are
// replaced meanwhile. No counter is ever corrected.
func TestRightCountersStay(t *testing.T) {
	t.Parallel()
	const loops, steps = 4, 30_000
	s := newStockRoom(t, loops, 5, t.Output())
	var wait sync.WaitGroup
	for i, l := range s.d.loops {
		wait.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 7))
			var clients []*client
			inWalk := 0
			for range steps {
				clients = l.randomStep(rnd, clients)
				if rnd.IntN(2) == 0 {
					continue
				}
				if !l.census.walking && l.now+tickNs >= l.census.dueNs {
					l.beginCensus(1 + rnd.IntN(8)) // it takes several ticks
				}
				l.tick()
				if l.census.walking {
					inWalk++
				}
			}
			if l.census.pass < 100 || inWalk < steps/10 {
				t.Errorf("loop %d has taken stock %d times, %d ticks in a walk", i, l.census.pass, inWalk)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(1, 9))
	wait.Go(func() {
		for range 300 {
			s.replace(rnd.IntN(5))
		}
	})
	wait.Wait()
	if wrong := s.wrong(); wrong != (amounts{}) || s.healed() != 0 {
		t.Errorf("%+v is wrong, %d corrections", wrong, s.healed())
	}
	for i, l := range s.d.loops {
		for c := l.open.first; c != nil; c = l.open.first {
			l.closeFake(c)
		}
		for range 2 * int(censusEveryNs/tickNs) {
			l.tick()
		}
		if n := len(l.census.stakes); n > 5 {
			t.Errorf("loop %d has stakes in %d incarnations, of 5", i, n)
		}
	}
	if wrong := s.wrong(); wrong != (amounts{}) || s.healed() != 0 {
		t.Errorf("%+v is left, %d corrections", wrong, s.healed())
	}
}

// mistakes are what a mistake in the router could do to the counters.
var mistakes = map[string]func(*exchange){
	"raised and forgotten":    func(x *exchange) { x.client.x = nil },
	"raised twice":            func(x *exchange) { x.raise() },
	"settled twice":           func(x *exchange) { twin := *x; twin.settle() },
	"prefill lowered twice":   func(x *exchange) { p := x.prefill; x.prefillDone(); x.prefill = p; x.prefillDone() },
	"its length changed":      func(x *exchange) { x.total += 77 },
	"a rival forgotten":       func(x *exchange) { y := x.double(); y.node = x.node; y.raise() },
	"forgotten by its client": func(x *exchange) { l := x.client.loop; l.census.leaves(x.client); l.open.remove(x.client) },
}

// TestMistakesHeal: whenever a mistake is made, before or behind the walk under
// way, it is gone a second later, by the loop's ticks. What the other loop has at
// the same node stays, and nothing is corrected that was right.
func TestMistakesHeal(t *testing.T) {
	t.Parallel()
	for name, mistake := range mistakes {
		t.Run(name, func(t *testing.T) {
			for from := int64(0); from < censusEveryNs; from += 3 * tickNs {
				healsInTime(t, mistake, 1, from)
				healsInTime(t, mistake, 100, from)
			}
		})
	}
	const many = censusTicks*censusLeast + 1 // a walk takes all the ticks it may
	for from := int64(0); from < censusEveryNs; from += 5 * tickNs {
		healsInTime(t, mistakes["raised and forgotten"], many, from)
		healsInTime(t, mistakes["settled twice"], many, from)
	}
}

func healsInTime(t *testing.T, mistake func(*exchange), clients int, fromNs int64) {
	t.Helper()
	s := newStockRoom(t, 2, 2, nil)
	rnd := rand.New(rand.NewPCG(uint64(fromNs), uint64(clients)))
	l, other := s.d.loops[0], s.d.loops[1]
	all := []*client{}
	for range clients {
		c := l.openFake()
		c.ask(rnd)
		all = append(all, c)
	}
	for range 10 {
		other.openFake().ask(rnd)
	}
	for l.now = 0; l.now < fromNs; {
		l.tick()
		other.tick()
	}
	x := all[rnd.IntN(clients)].x
	mistake(x)
	right := s.counted()
	right.add(s.wrong().negative())
	if right == s.counted() {
		t.Fatal("that is no mistake")
	}
	madeNs := l.now
	for s.counted() != right {
		if l.now-madeNs >= 1e9-tickNs { // the last tick may be about to come when it is made
			t.Fatalf("%d clients, %d ns into a walk: %+v is wrong after a second", clients, fromNs, s.wrong())
		}
		l.tick()
		other.tick()
	}
	for range 3 * censusTicks {
		l.tick()
		other.tick()
	}
	node := x.node
	if wrong := s.wrong(); wrong != (amounts{}) || s.healed() != 1 || node.Load.Healed.Load() != 1 {
		t.Errorf("%d clients: in the end %+v is wrong, %d corrections, %d of them at its node", clients, wrong, s.healed(), node.Load.Healed.Load())
	}
	if lines := strings.Count(s.log.String(), "\n"); lines != 1 || !strings.Contains(s.log.String(), " node="+node.Name+" requests=") {
		t.Errorf("%d lines in the log: %s", lines, s.log.String())
	}
}

// TestHealedIsSaidSeldom: a mistake that is made again and again is corrected and
// counted each time, and said once a minute, with all that was wrong since.
func TestHealedIsSaidSeldom(t *testing.T) {
	t.Parallel()
	s := newStockRoom(t, 1, 1, nil)
	l := s.d.loops[0]
	c := l.openFake()
	ticks := 0
	for l.now = 0; l.now < 2*healedEveryNs+4*censusEveryNs; l.tick() {
		if ticks++; ticks%16 == 1 { // once a walk
			x := &exchange{passage: passage{client: c, snap: s.d.opt.Fleet.Load(), model: -1, try: try{node: s.nodes[0]}}}
			x.polReq.PromptTokens, x.polReq.OutputTokens = 10, 2
			x.raise()
		}
	}
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	times := s.healed()
	if len(lines) != 3 || !strings.HasSuffix(lines[0], "node=n0 requests=1 prefill_tokens=10 total_tokens=12 times=1") || times < 290 {
		t.Fatalf("%d corrections, said as\n%s", times, s.log.String())
	}
	if !strings.HasSuffix(lines[1], "node=n0 requests=150 prefill_tokens=1500 total_tokens=1800 times=150") {
		t.Errorf("later it says %s", lines[1])
	}
}

// TestGoneIncarnationIsForgotten: a stake lives as long as its node, or its
// requests. What was corrected at the last moment is still said.
func TestGoneIncarnationIsForgotten(t *testing.T) {
	t.Parallel()
	s := newStockRoom(t, 1, 1, nil)
	l, rnd := s.d.loops[0], rand.New(rand.NewPCG(1, 1))
	walk := func() {
		for range censusEveryNs / tickNs {
			l.tick()
		}
	}
	c := l.openFake()
	x := c.ask(rnd)
	s.replace(0)
	walk()
	if len(l.census.stakes) != 1 {
		t.Fatalf("%d stakes while a request is under way", len(l.census.stakes))
	}
	for range 2 {
		x.raise()
		walk()
	}
	x.settle()
	walk()
	if len(l.census.stakes) != 0 || s.wrong() != (amounts{}) {
		t.Errorf("%d stakes are left, %+v is wrong", len(l.census.stakes), s.wrong())
	}
	if got := strings.Count(s.log.String(), "node=n0 requests=1 "); got != 2 || s.healed() != 2 {
		t.Errorf("%d corrections, said as\n%s", s.healed(), s.log.String())
	}
}

// TestCensusAllocs: to raise, to settle and to take stock allocates nothing.
func TestCensusAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := newStockRoom(t, 1, 8, nil)
	l, rnd := s.d.loops[0], rand.New(rand.NewPCG(1, 1))
	for range 100 {
		l.openFake().ask(rnd)
	}
	x := l.open.first.x
	if n := testing.AllocsPerRun(1000, func() {
		x.prefillDone()
		x.settle()
		x.send(rnd)
		l.tick()
	}); n != 0 || l.census.pass == 0 {
		t.Errorf("%v allocations, %d walks", n, l.census.pass)
	}
}

// BenchmarkCensus is what a walk costs a loop, by client with a request.
func BenchmarkCensus(b *testing.B) {
	s := newStockRoom(b, 1, 16, nil)
	l, rnd := s.d.loops[0], rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		l.openFake().ask(rnd)
	}
	walks := 0
	for b.Loop() {
		l.now += censusEveryNs
		l.beginCensus(10_000)
		l.takeStock()
		walks++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(walks)/10_000, "ns/client")
}

// BenchmarkRaiseSettle is what a request pays for being counted.
func BenchmarkRaiseSettle(b *testing.B) {
	s := newStockRoom(b, 1, 16, nil)
	l, rnd := s.d.loops[0], rand.New(rand.NewPCG(1, 1))
	x := l.openFake().ask(rnd)
	x.settle()
	for b.Loop() {
		x.raise()
		x.prefillDone()
		x.settle()
	}
}
