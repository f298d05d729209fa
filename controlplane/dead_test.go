package controlplane_test

import (
	"fmt"
	"strings"
	"testing"

	ct "warmpath/controlplane/controltest"
	"warmpath/dataplane/fleet"
)

// What waits at a node is answered by another one when it is found dead; what is
// said of a time before it was heard is void.
func TestSilent(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	r := ct.Start(t, fmt.Sprintf("nodes: [{name: a, url: %q}, {name: b, url: %q}]\n", a.URL(), b.URL()))
	engines := map[string]*ct.Engine{"a": a, "b": b}
	for name, e := range engines {
		r.WaitServed(t, name, "m")
		e.Hangs.Store(true)
	}
	answered := make(chan string, 1)
	go func() {
		_, node := r.Ask(t, ct.Chat("m", 100), "waits")
		answered <- node
	}()
	var dead *fleet.Node
	ct.Eventually(t, "a request waits at a node", func() bool {
		for name, e := range engines {
			if e.Prompts.Load() > 0 {
				dead = r.Node(name)
			}
		}
		return dead != nil
	})
	other := map[string]string{"a": "b", "b": "a"}[dead.Name]
	engines[other].Hangs.Store(false)

	n := r.Control.State().Find(dead.Name)
	r.Control.Silent(n, 1, "a test of old")
	sinceNs := r.Control.NowNs()
	ct.Eventually(t, "nothing comes from it", func() bool { // its metrics may just have
		r.Control.Silent(n, sinceNs, "a test")
		sinceNs = r.Control.NowNs()
		return strings.Contains(r.Log.String(), "dead: a test")
	})
	if node := <-answered; node != other {
		t.Errorf("the request was answered by %q, want %q", node, other)
	}
	if strings.Contains(r.Log.String(), "a test of old") {
		t.Error("it was found dead for a time before it was heard")
	}
	if got := dead.Load.Dead.Load(); got != 1 {
		t.Errorf("%d requests are counted as lost to it", got)
	}
	r.WaitState(t, dead.Name, "ready")
	if n := r.Node(dead.Name); n.Cause != fleet.CauseNone {
		t.Errorf("it is ready, and %v", n.Cause)
	}
}

// An engine that hangs is asked by sentinels as long as a request waits there,
// and is not dead.
func TestHungAnswersSentinels(t *testing.T) {
	a := ct.StartEngine(t, "m")
	r := ct.Start(t, fmt.Sprintf("nodes: [{name: a, url: %q}]\n", a.URL()))
	r.WaitServed(t, "a", "m")
	a.Hangs.Store(true)
	done := make(chan struct{})
	go func() {
		r.Ask(t, ct.Chat("m", 100), "waits")
		close(done)
	}()
	ct.Eventually(t, "five sentinels are answered", func() bool {
		counts := r.Control.Sentinels("a")
		return counts[0] >= 5
	})
	if n := r.Node("a"); n.State != fleet.Ready {
		t.Errorf("it is %v, %v", n.State, n.Cause)
	}
	a.Kill()
	<-done
	ct.Eventually(t, "it is down for refusals or probes", func() bool {
		n := r.Node("a")
		return n.Cause == fleet.CauseRefused || n.Cause == fleet.CauseUnhealthy
	})
}
