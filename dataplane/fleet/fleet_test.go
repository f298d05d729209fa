package fleet

import (
	"sync"
	"testing"
	"unsafe"
)

func TestModelIndex(t *testing.T) {
	s := (&Snapshot{Models: []Model{{Name: "a", Aliases: []string{"b", "x"}}, {Name: "b"}}, Nodes: []*Node{nil, {Name: "n"}}}).Seal()
	for name, want := range map[string]int{"a": 0, "x": 0, "b": 1, "": -1, "A": -1} {
		if got := s.ModelIndex([]byte(name)); got != want {
			t.Errorf("model %q is %d, want %d: a name wins over an alias", name, got, want)
		}
	}
	if string(s.Nodes[1].NameBytes) != "n" || string(s.Models[1].NameBytes) != "b" {
		t.Error("Seal did not make the names' bytes")
	}
}

func TestModelIndexAllocs(t *testing.T) {
	s := (&Snapshot{Models: []Model{{Name: "a"}}}).Seal()
	key := []byte("a")
	if n := testing.AllocsPerRun(100, func() { s.ModelIndex(key) }); n != 0 {
		t.Errorf("%v allocations a look-up, want 0", n)
	}
}

func TestAvailable(t *testing.T) {
	var none *Node
	for _, c := range []struct {
		n    *Node
		want bool
	}{
		{none, false},
		{&Node{State: Ready}, true},
		{&Node{State: Ready, Breaker: Open}, false},
		{&Node{State: Ready, Breaker: HalfOpen}, false},
		{&Node{State: Draining}, false},
		{&Node{State: Warming}, false},
		{&Node{State: Down}, false},
	} {
		if got := c.n.Available(); got != c.want {
			t.Errorf("%+v available: %v, want %v", c.n, got, c.want)
		}
	}
}

func TestUnknownIsNotZero(t *testing.T) {
	if got := (Gauge{}).Or(7); got != 7 {
		t.Errorf("an unknown gauge is %v, want the fallback", got)
	}
	if got := (Gauge{Known: true}).Or(7); got != 0 {
		t.Errorf("a known zero is %v, want 0", got)
	}
}

// TestLoadFillsLines: the counters of the common path share no cache line with
// those of failures, nor with another node's.
func TestLoadFillsLines(t *testing.T) {
	var l Load
	if size := unsafe.Sizeof(l); size != 128 {
		t.Errorf("a Load has %d bytes, want two lines of 64", size)
	}
	if at := unsafe.Offsetof(l.Refused); at != 64 {
		t.Errorf("failures begin at byte %d, want 64", at)
	}
}

func TestHolder(t *testing.T) {
	h := NewHolder()
	if s := h.Load(); s == nil || s.Default != -1 || s.ModelIndex([]byte("a")) != -1 {
		t.Fatalf("a new holder has %+v", s)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for i := range 1000 {
			h.Store((&Snapshot{Version: uint64(i), Nodes: make([]*Node, i%3)}).Seal())
			h.SetPressure(float64(i))
		}
	})
	last := uint64(0)
	for range 1000 {
		s := h.Load()
		if s.Version < last || len(s.Nodes) != int(s.Version%3) {
			t.Fatalf("read version %d with %d nodes after %d", s.Version, len(s.Nodes), last)
		}
		last = s.Version
	}
	wait.Wait()
	if h.Pressure() != 999 {
		t.Errorf("pressure is %v", h.Pressure())
	}
}

// TestSignsOfLife: what is heard is noted to within 10 ms and never set back;
// connects are judged by the fast ones.
func TestSignsOfLife(t *testing.T) {
	var l Load
	for _, c := range []struct{ atMs, want int64 }{{2, 2}, {9, 2}, {20, 20}, {25, 20}, {29, 20}, {30, 30}, {12, 30}, {100, 100}} {
		l.Heard(c.atMs * 1e6)
		if got := l.HeardNs.Load() / 1e6; got != c.want {
			t.Errorf("heard at %d ms, noted %d, want %d", c.atMs, got, c.want)
		}
	}
	for _, c := range []struct{ took, want int64 }{{80, 80}, {1040, 200}, {40, 40}, {40, 40}, {0, 1}} {
		l.Connected(c.took)
		if got := l.ConnectNs.Load(); got != c.want {
			t.Errorf("connecting took %d, noted %d, want %d", c.took, got, c.want)
		}
	}
}

func TestCauseNames(t *testing.T) {
	for c, want := range map[Cause]string{CauseNone: "", CauseDead: "dead", CauseHung: "hung", CauseRefused: "refused", CauseUnhealthy: "unhealthy"} {
		if c.String() != want {
			t.Errorf("cause %d is %q, want %q", c, c, want)
		}
	}
}

func TestExpects(t *testing.T) {
	models := []Model{{Name: "a", Expected: true}, {Name: "b"}}
	for _, c := range []struct {
		s    Snapshot
		want [3]bool // of any, a, b
	}{
		{Snapshot{}, [3]bool{}},
		{Snapshot{Expected: true}, [3]bool{true, true, true}},
		{Snapshot{Models: models}, [3]bool{true, true, false}},
		{Snapshot{Models: models, Expected: true}, [3]bool{true, true, true}},
	} {
		for i, want := range c.want {
			if i <= len(c.s.Models) && c.s.Expects(i-1) != want {
				t.Errorf("%+v expects nodes of model %d: %v", c.s, i-1, !want)
			}
		}
		if c.s.Named() {
			t.Errorf("%+v: no node has named a model", c.s)
		}
	}
	if named := (Snapshot{Models: []Model{{}, {Slots: []int{3}}}}); !named.Named() {
		t.Error("a node has named a model")
	}
}
