package admin

import (
	"fmt"
	"maps"

	"warmpath/dataplane"
)

var (
	descQueue        = desc("queue_seconds", "How long requests waited here for a node that was on its way, whatever came of it; those that did not wait are not in it.", "class")
	descHeldRequests = desc("held_requests", "Requests that wait for a node of the model that is on its way.", "model")
	descHeldBytes    = desc("held_bytes", "Bodies of the requests that wait for a node.")
	descHolds        = desc("holds_total", "Waits for a node of the model that have ended, by how; full are those that never began.", "model", "outcome")
)

// holds makes the series of what waits for a node. Of a model that nobody expects,
// and nobody has waited for, there is only that nothing waits.
func (c *collector) holds(m maker, t *dataplane.Totals) {
	m.histogram(descQueue, &t.Queue, "default")
	m.gauge(descHeldBytes, float64(t.HeldBytes))
	shown := maps.Clone(t.Holds)
	snap := c.opt.Fleet.Load()
	for i := range snap.Models {
		name := snap.Models[i].Name
		if _, ok := shown[name]; ok || snap.Models[i].Expected {
			shown[name] = t.Holds[name]
		} else {
			m.gauge(descHeldRequests, 0, name)
		}
	}
	for name, h := range shown {
		m.gauge(descHeldRequests, float64(h.Now), name)
		for _, how := range dataplane.HoldOutcomes {
			m.counter(descHolds, float64(h.Ended[how]), name, how.String())
		}
	}
}

// holdInWords says that a request waited for a node and what came of it; "" if it
// did not.
func holdInWords(v *DecisionView) string {
	what := map[string]string{
		"waiting":  "it waits for one that is on its way, for %.1f s by now",
		"sent":     "it had waited %.1f s for a node",
		"refused":  "it had waited %.1f s for a node, and none that came serves it",
		"late":     "it waited %.1f s for one that was on its way",
		"timeout":  "it waited %.1f s for one that was on its way, which is all the time it had",
		"left":     "its client left after it had waited %.1f s for one that was on its way",
		"stopping": "it had waited %.1f s for one that was on its way when the router ended",
		"full":     "as many others waited for one as may",
	}[v.Hold]
	switch {
	case what == "":
		return ""
	case v.Hold == dataplane.HoldFull.String():
		return "; " + what
	default:
		return "; " + fmt.Sprintf(what, *v.HeldSeconds)
	}
}
