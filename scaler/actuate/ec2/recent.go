package ec2

import (
	"time"

	"warmpath/scaler/actuate"
)

const (
	// listsLag is how long EC2 may not list what it has made. Its developer guide
	// ("Eventual consistency") says seconds as a rule, and has one look for a few minutes.
	listsLag   = 5 * time.Minute
	mostRecent = 4096
)

// recent is what this process made a short while ago, and what it told to end of that.
// It only makes up for lists that lag: without it, as after a restart, the token keeps a
// key from being made twice, and a later list shows all. It is held by Actuator.mu.
type recent map[string]*made // by id

type made struct {
	actuate.Instance
	at   time.Time
	told bool // to end
}

// add takes note of a node that EC2 has just answered with.
func (r recent) add(i actuate.Instance, now time.Time) {
	r.forget(now)
	if len(r) >= mostRecent {
		oldest := ""
		for id, m := range r {
			if oldest == "" || m.at.Before(r[oldest].at) {
				oldest = id
			}
		}
		delete(r, oldest)
	}
	if m := r[i.ID]; m != nil { // it was asked for again
		m.Instance = i
		return
	}
	r[i.ID] = &made{Instance: i, at: now}
}

func (r recent) forget(now time.Time) {
	for id, m := range r {
		if now.Sub(m.at) >= listsLag {
			delete(r, id)
		}
	}
}

// end takes note that a node was told to end.
func (r recent) end(id string) {
	if m := r[id]; m != nil {
		m.told = true
	}
}

// merge returns a list with what it lacks. A node that was told to end does not run,
// although the list may not know that yet.
func (r recent) merge(listed []actuate.Instance, now time.Time) []actuate.Instance {
	r.forget(now)
	there := map[string]bool{}
	all := make([]actuate.Instance, 0, len(listed)+len(r))
	for _, i := range listed {
		there[i.ID] = true
		if m := r[i.ID]; m != nil {
			m.Instance = i
			i = m.now()
		}
		all = append(all, i)
	}
	for id, m := range r {
		if !there[id] {
			all = append(all, m.now())
		}
	}
	return all
}

func (m *made) now() actuate.Instance {
	i := m.Instance
	if m.told {
		i.Phase = max(i.Phase, actuate.Ending)
	}
	return i
}
