package controlplane

import (
	"context"
	"fmt"
	"net"
	"slices"

	"warmpath/controlplane/config"
	"warmpath/controlplane/report"
	"warmpath/controlplane/state"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
)

// reports is the listener of node reports and what applies them; without a
// configured listener there is none.
type reports struct {
	server *report.Server
	tokens *report.Tokens
	ln     net.Listener
}

// listenReports opens the listener, so that a wrong address or a bad file of
// tokens is an error at the start.
func listenReports(c *ControlPlane) (*reports, error) {
	r := c.opt.Config.Reports
	if r.Listen == "" {
		return nil, nil
	}
	tokens, err := report.OpenTokens(r.TokensFile, c.opt.Log)
	if err != nil {
		return nil, err
	}
	ln, err := c.opt.Sockets.Listen(c.ctx, "reports.listen", "tcp", r.Listen)
	if err != nil {
		return nil, err
	}
	server := report.New(report.Options{
		Tokens: tokens, Directory: directory{c}, Index: report.On(c.indexer, c.placer), NowNs: c.NowNs, Log: c.opt.Log, Trusted: c.trusted,
	})
	return &reports{server: server, tokens: tokens, ln: ln}, nil
}

// ReportsAddr is where node reports are taken, "" if they are not.
func (c *ControlPlane) ReportsAddr() string {
	if c.reports == nil {
		return ""
	}
	return c.reports.ln.Addr().String()
}

// reload reads the tokens again.
func (r *reports) reload() error {
	if r == nil {
		return nil
	}
	return r.tokens.Reload()
}

// chains says how a model's chains are made. It is called on the indexer's
// goroutine.
func (c *ControlPlane) chains(model string) (seed uint64, unitTokens int) {
	snap := c.opt.Fleet.Load()
	if at := snap.ModelIndex([]byte(model)); at >= 0 {
		unitTokens = snap.Models[at].UnitTokens
	}
	return snap.Seed, unitTokens
}

// promptSent tells the placer of a prompt for a node with a minimal reporter. It runs
// on the indexer's goroutine.
func (c *ControlPlane) promptSent(n dataplane.Note) (units int) {
	node := c.opt.Fleet.Load().Owner(n.Slot)
	if node == nil || node.HashScheme == "" {
		return 0
	}
	return c.placer.Noted(
		report.Scheme{Name: node.HashScheme, PrefixTokens: node.PrefixTokens, BlockTokens: node.BlockTokens},
		report.Sent{Slot: n.Slot, IDs: n.IDs, Chain: n.Chain, UnitTokens: node.UnitTokens},
	)
}

// trusted takes the trust in a node's reports, if it is news. Events that are
// followed are judged by themselves.
func (c *ControlPlane) trusted(worker string, rank int, to report.Target, t fleet.Trust) {
	n := c.State().Find(worker)
	if n == nil || n.Generation != to.Generation || n.Spec.KVEvents.Configured() || rank >= n.Ranks || n.Trust[rank] == t {
		return
	}
	c.Send(state.TrustSeen{NowNs: c.NowNs(), Node: worker, Incarnation: n.Incarnation, Rank: rank, Trust: t, Why: "node reports"})
}

// directory finds the slots of workers.
type directory struct{ c *ControlPlane }

// Find returns where a worker's reports go.
func (d directory) Find(worker, model string) (t report.Target, err error) {
	s, snap := d.c.State(), d.c.opt.Fleet.Load()
	n := s.Find(worker)
	switch {
	case n == nil && d.joins(worker):
		return t, fmt.Errorf("the node is %w", report.ErrNotYet)
	case n == nil:
		return t, report.ErrUnknownWorker
	case n.Spec.KVEvents.Configured():
		return t, fmt.Errorf("%w that reports: this router follows its events by itself (kv_events)", report.ErrUnknownWorker)
	case snap.Owner(n.Slot) == nil || snap.Owner(n.Slot).Generation != n.Generation:
		return t, fmt.Errorf("the node is %w", report.ErrNotYet)
	}
	base := n.BaseModel(s.Settings.Models)
	at := snap.ModelIndex([]byte(base))
	switch {
	case base == "" || at < 0: // its engine has not been asked
		return t, fmt.Errorf("what it serves is %w", report.ErrNotYet)
	case model != "" && !serves(n, model):
		return t, fmt.Errorf("%w: %q", report.ErrUnknownModel, model)
	}
	return report.Target{
		Slot: n.Slot, Generation: n.Generation, Ranks: n.Ranks, Scheme: n.Spec.HashScheme,
		Model: snap.Models[at].Name, UnitTokens: snap.Models[at].UnitTokens,
	}, nil
}

// joins reports whether a node of that name is configured: the State hears of
// nodes only after the start.
func (d directory) joins(worker string) bool {
	return slices.ContainsFunc(d.c.Config().Nodes, func(n config.Node) bool { return n.Name == worker })
}

func serves(n *state.Node, model string) bool {
	for i := range n.Models {
		if n.Models[i].ID == model {
			return true
		}
	}
	return false
}

func (r *reports) stop(ctx context.Context) {
	if r != nil {
		r.server.Stop(ctx)
	}
}
