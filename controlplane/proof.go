package controlplane

import (
	"fmt"
	"log/slog"
	"net"
	"slices"

	"warmpath/controlplane/config"
	"warmpath/controlplane/engine"
	"warmpath/controlplane/exact"
	"warmpath/controlplane/guard"
	"warmpath/controlplane/report"
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prompt"
)

// newProver loads the configured tokenizers. An error means that a file cannot
// be read; one that is not understood costs exactness alone.
func (c *ControlPlane) newProver() (*exact.Prover, error) {
	return exact.New(exact.Options{
		Models: sourcesOf(c.opt.Config), Memo: c.memo, Prober: engine.NewProber(), Log: c.opt.Log,
		Apply: c.applyExact, Disagreements: c.disagreements,
		Seen: func(node string, incarnation uint64, classes uint32, version string) {
			c.Send(state.ExactSeen{NowNs: c.NowNs(), Node: node, Incarnation: incarnation, Classes: classes, Version: version})
		},
	})
}

// CheckFiles reads the files that a configuration names: tokenizers, templates,
// tokens of reporters, lists of the guard. notes say what of them costs exactness
// or the guard; the error, that the router would not start.
func CheckFiles(c *config.Config) (notes []string, err error) {
	for _, source := range sourcesOf(c) {
		l, err := exact.Load(source)
		if err != nil {
			return notes, err
		}
		for _, why := range []string{l.Refused, l.Slow, l.Partly} {
			if why != "" {
				notes = append(notes, fmt.Sprintf("model %q: %s", source.Model, why))
			}
		}
	}
	if c.Reports.Listen != "" {
		tokens, err := report.OpenTokens(c.Reports.TokensFile, slog.New(slog.DiscardHandler))
		if err != nil {
			return notes, err
		}
		notes = append(notes, tokenNotes(c, tokens)...)
	}
	settings := guardSettings(c)
	if _, err := guard.Read(settings); err != nil {
		return notes, err
	}
	if _, err := net.InterfaceByName(settings.Interface); err != nil && settings.Off == "" {
		notes = append(notes, fmt.Sprintf("kernel.xdp.interface %q: this host has none of that name; `ip link` shows those it has", settings.Interface))
	}
	return notes, nil
}

// tokenNotes names the nodes that are meant to report and cannot, and tokens of
// nodes that there are not.
func tokenNotes(c *config.Config, tokens *report.Tokens) (notes []string) {
	workers := tokens.Workers()
	for _, n := range c.Nodes {
		if n.HashScheme != "" && !slices.Contains(workers, n.Name) {
			notes = append(notes, fmt.Sprintf("node %q: hash_scheme is set and reports.tokens_file has no token for it", n.Name))
		}
	}
	for _, w := range workers {
		if !slices.ContainsFunc(c.Nodes, func(n config.Node) bool { return n.Name == w }) {
			notes = append(notes, fmt.Sprintf("reports.tokens_file has a token for %q, which is no node here; it may be added at run time", w))
		}
	}
	if len(workers) == 0 {
		notes = append(notes, "reports.tokens_file has no token: nobody can report")
	}
	return notes
}

func sourcesOf(c *config.Config) (sources []exact.Source) {
	for _, m := range c.Models {
		if m.Tokenizer != "" {
			sources = append(sources, exact.Source{Model: m.Name, Tokenizer: m.Tokenizer, Template: m.ChatTemplate})
		}
	}
	return sources
}

// echoed takes what the indexer says of a prompt's echo.
func (c *ControlPlane) echoed(slot int, generation uint32, class uint8, ok bool) {
	n := c.opt.Fleet.Load().Owner(slot)
	if n != nil && n.Generation == generation && (ok || c.streams.whole(n.Name, slot-n.Slot)) {
		c.prover.Echo(n.Name, prompt.Class(class), ok)
	}
}

// provable is what the prover needs of a State and its snapshot.
func provable(s *state.State, snap *fleet.Snapshot) (nodes []exact.Node, units map[string]int) {
	units = make(map[string]int, len(snap.Models))
	for i := range snap.Models {
		units[snap.Models[i].Name] = snap.Models[i].UnitTokens
	}
	for _, n := range s.Nodes {
		if model := n.BaseModel(s.Settings.Models); model != "" {
			nodes = append(nodes, exact.Node{
				Name: n.Spec.Name, Incarnation: n.Incarnation, URL: n.Endpoint.URL, Engine: n.Engine, Model: model,
				Ready: n.Health == fleet.Ready, Proved: n.Exact,
			})
		}
	}
	return nodes, units
}

// MemoStats are the figures of what is remembered of texts, as prompt.MemoNames
// names them.
func (c *ControlPlane) MemoStats() [len(prompt.MemoNames)]prompt.MemoStats { return c.memo.Stats() }

// Streams returns what is known of all streams of KV-cache events.
func (c *ControlPlane) Streams() []StreamStatus { return c.streams.status() }
