package exact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"warmpath/controlplane/engine"
	"warmpath/dataplane/chat"
	"warmpath/dataplane/prompt"
)

// difference says where an engine's ids leave ours.
type difference struct {
	at           int // the first that differs
	ours, theirs []uint32
}

// compare finds the first id that differs; ok means that none does.
func compare(ours, theirs []uint32) (d difference, ok bool) {
	n := min(len(ours), len(theirs))
	at := 0
	for at < n && ours[at] == theirs[at] {
		at++
	}
	return difference{at, ours, theirs}, at == len(ours) && at == len(theirs)
}

// around is what stands at the difference, as text, for people.
func (d *difference) around(m *prompt.Model) (ours, theirs string) {
	const reach = 6
	cut := func(ids []uint32) string {
		return m.Tokenizer.Decode(ids[min(max(d.at-reach, 0), len(ids)):min(d.at+reach, len(ids))])
	}
	return cut(d.ours), cut(d.theirs)
}

// provable reports whether a proof may be begun.
func (n *proof) provable() bool { return n.Ready && n.Engine != "" && !n.asking }

// proveDue begins to prove the nodes whose time has come, a few at once.
func (p *Prover) proveDue(ctx context.Context) {
	now := p.opt.Now()
	byTurn := func(a, b *proof) int { return cmp.Or(a.dueAt.Compare(b.dueAt), strings.Compare(a.Name, b.Name)) }
	for _, n := range slices.SortedFunc(maps.Values(p.nodes), byTurn) {
		m := p.models[n.Model]
		if m == nil || !n.provable() || now.Before(n.dueAt) {
			continue
		}
		if p.asking == proveAtOnce {
			return
		}
		p.asking++
		n.asking = true
		o := outcome{of: n, node: n.Node, attempt: n.attempt, model: m, suspects: slices.Collect(maps.Values(n.suspects))}
		p.running.Go(func() {
			o.version = p.opt.Prober.Version(ctx, o.node.Engine, o.node.URL)
			o.err = p.prove(ctx, &o)
			select {
			case p.outcomes <- o:
			case <-ctx.Done():
			}
		})
	}
}

// outcome is an attempt to prove a node, and what came of it.
type outcome struct {
	of       *proof
	node     Node // as it was when the attempt began
	attempt  int
	model    *prompt.Model
	suspects []suspect

	version string
	err     error                   // the node could not be asked
	classes uint32                  // that it agreed on, in everything
	why     map[prompt.Class]string // the first thing in which it did not agree
	untried map[prompt.Class]string // why it was asked nothing
}

// conclude takes the outcome of an attempt and sets when the node is due again.
func (p *Prover) conclude(o *outcome) {
	n := o.of
	p.asking--
	n.asking = false
	if p.nodes[n.Name] != n || o.attempt != n.attempt {
		return // something has happened since
	}
	if o.err != nil {
		p.opt.Log.Debug("tokens could not be asked", "node", n.Name, "err", o.err)
		n.dueAt = p.opt.Now().Add(retryAfter)
		return
	}
	p.logOutcome(o)
	n.version, n.classes, n.done = o.version, o.classes, true
	pause := againAtMost
	switch {
	case len(o.why) > 0:
		n.trouble()
		pause = n.wait
	case n.calm:
		n.wait = 0 // what was before is forgotten
	default:
		n.calm = true
	}
	n.dueAt = p.due(n, pause)
	p.tell(n)
}

// logOutcome names each reason once, whatever number of classes it is about.
func (p *Prover) logOutcome(o *outcome) {
	about := map[string]uint32{}
	for class, reason := range o.why {
		about[reason] |= 1 << class
	}
	for class, reason := range o.untried {
		about[reason] |= 1 << class
	}
	for _, reason := range slices.Sorted(maps.Keys(about)) {
		p.opt.Log.Warn("prompts of these classes are not exact at the node",
			"node", o.node.Name, "model", o.model.Name, "classes", prompt.ClassNames(about[reason]), "engine_version", o.version, "why", reason)
	}
	if o.classes != 0 {
		p.opt.Log.Info("prompts are exact at the node",
			"node", o.node.Name, "model", o.model.Name, "classes", prompt.ClassNames(o.classes), "engine_version", o.version)
	}
}

// prove asks a node for the tokens of all probes, and of suspects.
func (p *Prover) prove(ctx context.Context, o *outcome) error {
	o.why, o.untried = map[prompt.Class]string{}, map[prompt.Class]string{}
	for i := range probes {
		s := suspect{probes[i].class, probes[i].form, probes[i].bodyFor(o.node.Model)}
		if err := p.try(ctx, o, &s); err != nil {
			return err
		}
	}
	for i := range o.suspects {
		if err := p.try(ctx, o, &o.suspects[i]); err != nil {
			return err
		}
	}
	for class := range prompt.Classes {
		if o.why[class] != "" {
			o.classes &^= 1 << class
		}
		if o.why[class] != "" || o.classes>>class&1 != 0 {
			delete(o.untried, class)
		}
	}
	return nil
}

// try asks for one prompt's tokens. One that is not exact by itself, for
// instance because the template refuses it, says nothing of the engine: such
// requests are routed by their text.
func (p *Prover) try(ctx context.Context, o *outcome, s *suspect) error {
	if o.why[s.class] != "" {
		return nil
	}
	verdict, reason, err := p.disagrees(ctx, &o.node, o.model, s.form, s.body)
	switch {
	case err != nil:
		return err
	case verdict.Level != chat.LevelExact:
		o.untried[s.class] = "no probe is exact by itself: " + verdict.Reason
	case reason != "":
		o.why[verdict.Class] = reason
	default:
		o.classes |= 1 << verdict.Class
	}
	return nil
}

// disagrees compares one prompt's tokens with the engine's, if it is exact by
// itself. reason is "" if they are equal; err means that the node could not be
// asked.
func (p *Prover) disagrees(ctx context.Context, n *Node, m *prompt.Model, form prompt.Form, body []byte) (v prompt.Verdict, reason string, err error) {
	ask, err := question(body) // both sides are asked the same
	if err != nil {
		return v, err.Error(), nil
	}
	ours, v, err := prompt.IDs(m, form, ask)
	if err != nil || v.Level != chat.LevelExact {
		if err != nil {
			v = prompt.Verdict{Reason: err.Error()}
		}
		return v, v.Reason, nil
	}
	theirs, err := p.opt.Prober.Tokens(ctx, n.Engine, n.URL, ask)
	var status *engine.StatusError
	switch {
	case errors.As(err, &status) && refuses(status.Status):
		return v, "the engine does not say: " + err.Error(), nil
	case errors.Is(err, engine.ErrNoTokens):
		return v, err.Error(), nil
	case err != nil:
		return v, "", err
	}
	d, same := compare(ours, theirs)
	if same {
		return v, "", nil
	}
	mine, its := d.around(m)
	return v, fmt.Sprintf("token %d differs (ours %d tokens, the engine's %d): ours %q, the engine's %q", d.at, len(ours), len(theirs), mine, its), nil
}

// refuses reports whether an engine that answers with a status would do so
// again.
func refuses(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}
