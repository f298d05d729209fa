package controlplane

import (
	"warmpath/controlplane/indexer"
	"warmpath/dataplane"
)

// Attach takes up a data plane that has just been started. It is called once.
// What is proved of prompts counts there at once; notes that it has written
// before wait in its rings.
func (c *ControlPlane) Attach(d *dataplane.Dataplane) {
	c.exactly.Lock()
	c.data.Store(d)
	if c.exact != nil {
		d.ApplyExact(c.exact)
	}
	c.exactly.Unlock()
	c.opt.Kernel.Attach(d)
	notes, bell := d.Notes()
	rings := make([]indexer.Ring, len(notes))
	for i, ring := range notes {
		rings[i] = ring
	}
	_ = c.indexer.Attach(c.ctx, rings, bell, c.sinceStart()-d.NowNs()) // nothing but the end prevents it
	c.wait.Go(func() { c.passDisagreements(d) })
	c.wait.Go(func() { c.sentinels.Run(c.ctx) })
}

// applyExact gives the data plane its models, now or when there is one.
func (c *ControlPlane) applyExact(m *dataplane.ExactModels) {
	c.exactly.Lock()
	defer c.exactly.Unlock()
	c.exact = m
	if d := c.data.Load(); d != nil {
		d.ApplyExact(m)
	}
}

// passDisagreements passes on what the data plane has found.
func (c *ControlPlane) passDisagreements(d *dataplane.Dataplane) {
	for {
		select {
		case <-c.done:
			return
		case found := <-d.Disagreements():
			select {
			case <-c.done:
				return
			case c.disagreements <- found:
			}
		}
	}
}
