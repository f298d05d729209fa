package controlplane

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"warmpath/controlplane/state"
	"warmpath/scaler"
)

// mostClaims bounds the scalers that run alone and scale for this router.
const mostClaims = 64

// ErrClaimed says that another scaler scales the same nodes.
var ErrClaimed = errors.New("another scaler scales these nodes")

// ErrTwin says that another process has the journal of the one that claims, and was there
// less than scaler.TwinSeconds ago.
var ErrTwin = errors.New("another process with this scaler's journal scales these nodes")

// claims are the scalers that scale for this router, in this process or in others,
// and for which models nodes may come.
type claims struct {
	told sync.Mutex // held while the State is told, so that what is newer is told last
	mu   sync.Mutex
	own  bool    // nodes of the scaler in this process may come
	held []claim // guarded by mu, as own
}

type claim struct {
	scaler.Claim
	made time.Time
}

// until is when it ends, if it is not made again.
func (h *claim) until() time.Time { return h.made.Add(scaler.ClaimSeconds * time.Second) }

// against says why another claim cannot be beside it, nil if it can.
func (h *claim) against(made *scaler.Claim, now time.Time) error {
	switch {
	case h.Ends || !made.Conflicts(&h.Claim):
		return nil
	case !made.Twins(&h.Claim):
		if now.Before(h.until()) {
			return fmt.Errorf("%w: %s; end it and wait %d s, or give each a fleet and a model of its own", ErrClaimed, described(&h.Claim), scaler.ClaimSeconds)
		}
	case now.Before(h.made.Add(scaler.TwinSeconds * time.Second)):
		return fmt.Errorf("%w: %s; end it and wait %d s, or, if state_dir was copied, give this one a state_dir, a fleet and a model of its own", ErrTwin, described(&h.Claim), scaler.TwinSeconds)
	}
	return nil
}

// setOwn takes note whether nodes of the scaler in this process may come.
func (c *claims) setOwn(may bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own = may
}

// expire drops claims that were not made again, and reports whether there were any.
func (c *claims) expire(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.held)
	c.held = slices.DeleteFunc(c.held, func(h claim) bool { return !now.Before(h.until()) })
	return len(c.held) < before
}

// take takes a claim, or makes it last longer.
func (c *claims) take(made scaler.Claim, now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.held {
		if err := c.held[i].against(&made, now); err != nil {
			return err
		}
	}
	c.held = slices.DeleteFunc(c.held, func(h claim) bool { return h.ID == made.ID })
	if len(c.held) >= mostClaims {
		return fmt.Errorf("%w: %d of them, as many as there may be", ErrClaimed, mostClaims)
	}
	c.held = append(c.held, claim{made, now})
	return nil
}

func described(c *scaler.Claim) string {
	model := "all models"
	if c.Model != "" {
		model = fmt.Sprintf("model %q", c.Model)
	}
	return fmt.Sprintf("fleet %q, %s", c.Fleet, model)
}

// coming are the models of which nodes may come.
func (c *claims) coming(own string) (models []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own {
		models = append(models, own)
	}
	for i := range c.held {
		if c.held[i].May {
			models = append(models, c.held[i].Model)
		}
	}
	return models
}

// ClaimNodes takes what a scaler that runs alone says to this router. The error is
// ErrClaimed if another one scales the same nodes, ErrTwin if one with its journal does.
func (c *ControlPlane) ClaimNodes(made scaler.Claim) error {
	if made.ID == "" || made.Fleet == "" || len(made.ID)+len(made.Process)+len(made.Fleet)+len(made.Model) > 2*state.MaxModelBytes || strings.ContainsFunc(made.Fleet, func(r rune) bool { return r < ' ' }) {
		return errors.New("a claim needs an id and a fleet, and a model's name at most")
	}
	if s := &c.opt.Config.Scaler; s.Enabled {
		own := scaler.Claim{Fleet: s.Fleet, Model: s.Model}
		if made.Conflicts(&own) {
			return fmt.Errorf("%w: the one inside the router (%s); set scaler.enabled: false in its configuration and start it again", ErrClaimed, described(&own))
		}
	}
	if err := c.claims.take(made, time.Now()); err != nil {
		return err
	}
	c.expect()
	return nil
}

// expect has requests wait for the nodes that may come.
func (c *ControlPlane) expect() {
	c.claims.told.Lock()
	defer c.claims.told.Unlock()
	e := state.ExpectSeen{NowNs: c.NowNs()}
	for _, model := range c.claims.coming(c.opt.Config.Scaler.Model) {
		if model != "" {
			e.Models = append(e.Models, model)
			continue
		}
		e.Any = true
		for i := range c.opt.Config.Models {
			e.Models = append(e.Models, c.opt.Config.Models[i].Name)
		}
	}
	c.Send(e)
}
