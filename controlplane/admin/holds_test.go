package admin_test

import (
	"fmt"
	"strings"
	"testing"

	"warmpath/controlplane/admin"
	ct "warmpath/controlplane/controltest"
	"warmpath/controlplane/state"
)

// From no node at all to the first: what waits is shown while it does, and after.
func TestHolds(t *testing.T) {
	s := serve(t, "", "node_urls_allowed: [127.0.0.1]\nnodes: []\n")
	s.Control.Send(state.ExpectSeen{NowNs: s.Control.NowNs(), Models: []string{"m"}})
	ct.Eventually(t, "nodes of m are expected", func() bool { return s.Fleet.Load().Expects(-1) })
	type result struct {
		status int
		node   string
	}
	answered := make(chan result, 1)
	go func() {
		var r result
		defer func() { answered <- r }()
		r.status, r.node = s.Ask(t, ct.Chat("m", 1000), "held")
	}()
	ct.Eventually(t, "the request to wait", func() bool { return s.Data.Holds()["m"].Now == 1 })
	var d admin.DecisionView
	s.get("/api/decisions/held", &d)
	if d.Hold != "waiting" || d.HeldSeconds == nil || *d.HeldSeconds < 0 || d.Outcome != nil || d.Reason != "none" || !strings.Contains(d.Why, "it waits for one that is on its way") {
		t.Errorf("while it waits: %+v", d)
	}
	value := func(name string, labels ...string) float64 {
		for _, m := range s.metrics()["warmpath_"+name].Metric {
			have := []string{}
			for _, l := range m.Label {
				have = append(have, l.GetValue())
			}
			if strings.Join(have, " ") == strings.Join(labels, " ") {
				return m.Gauge.GetValue() + m.Counter.GetValue() + float64(m.Histogram.GetSampleCount())
			}
		}
		return -1
	}
	if now, bytes := value("held_requests", "m"), value("held_bytes"); now != 1 || bytes < 1000 {
		t.Errorf("%v requests with %v bytes are held", now, bytes)
	}
	e := ct.StartEngine(t, "m")
	if status, body := s.call("POST", "/api/nodes", fmt.Sprintf(`{"name":"first","url":%q}`, e.URL())); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	if r := <-answered; r.status != 200 || r.node != "first" {
		t.Fatalf("%d from %q", r.status, r.node)
	}
	ct.Eventually(t, "its record to be complete", func() bool {
		d = admin.DecisionView{}
		s.get("/api/decisions/held", &d)
		return d.Outcome != nil
	})
	if d.Hold != "sent" || d.Reason != "only" || !strings.Contains(d.Why, "s for a node") || *d.HeldSeconds+d.Outcome.RoutingSeconds > d.Outcome.DurationSeconds {
		t.Errorf("after it waited: %+v, outcome %+v", d, d.Outcome)
	}
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{{0, "held_requests", []string{"m"}}, {0, "held_bytes", nil}, {1, "holds_total", []string{"m", "sent"}}, {0, "holds_total", []string{"m", "full"}}, {1, "queue_seconds", []string{"default"}}} {
		if got := value(c.name, c.labels...); got != c.want {
			t.Errorf("%s%q is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}
