package exact

import (
	"context"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/prompt"
)

// echoOf is whose prompts are echoed, or are not.
type echoOf struct {
	node  string
	class prompt.Class
}

// silentLimit is how many prompts in a row a node may leave without an echo: one
// can be lost on its way.
const silentLimit = 3

// Echo says whether a live node has reported a unit that it had to report. Any
// goroutine may call it; it does not block.
func (p *Prover) Echo(node string, class prompt.Class, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := echoOf{node, class}
	if ok {
		delete(p.silent, key)
		return
	}
	if p.silent[key]++; p.silent[key] == silentLimit {
		p.poke()
	}
}

// forgetEchoes begins anew with a node.
func (p *Prover) forgetEchoes(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for class := range prompt.Classes {
		delete(p.silent, echoOf{node, class})
	}
}

// demoteSilent takes classes from nodes that report other units than ours.
func (p *Prover) demoteSilent() {
	p.mu.Lock()
	var found []echoOf
	for key, count := range p.silent {
		if count >= silentLimit {
			found = append(found, key)
			delete(p.silent, key)
		}
	}
	p.mu.Unlock()
	for _, key := range found {
		n := p.nodes[key.node]
		if n == nil || n.classes>>key.class&1 == 0 {
			continue
		}
		p.opt.Log.Error("an engine reports other blocks than its prompts should make: the class is exact no longer at this node",
			"node", n.Name, "model", n.Model, "class", key.class.String(), "prompts", silentLimit)
		p.models[n.Model].Demote(key.class)
		p.demote(n, key.class)
	}
}

// disagreed takes a class from the node whose engine has counted a prompt
// otherwise. The data plane has taken it from the model already, for all nodes,
// so this must not wait: why it is so is found out meanwhile.
func (p *Prover) disagreed(ctx context.Context, d *dataplane.Disagreement) {
	m, n := p.models[d.Model], p.nodes[d.Node]
	switch {
	case m == nil:
		return
	case n == nil: // gone: its answers judge nobody
		p.free[d.Model] |= 1 << d.Class
		return
	case n.classes>>d.Class&1 == 0: // its request was under way when the class was taken
		n.demoted |= 1 << d.Class
		return
	}
	if len(d.Body) > 0 && len(d.Body) <= maxSuspects && d.Model == n.Model {
		n.suspects[d.Class] = suspect{d.Class, d.Form, d.Body}
	}
	p.demote(n, d.Class)
	node := n.Node
	p.running.Go(func() { p.explain(ctx, &node, m, d) })
}

// explain says what the engine makes of a prompt that it has counted otherwise.
func (p *Prover) explain(ctx context.Context, n *Node, m *prompt.Model, d *dataplane.Disagreement) {
	var reason string
	var err error
	if len(d.Body) > 0 {
		_, reason, err = p.disagrees(ctx, n, m, d.Form, d.Body)
	}
	switch {
	case len(d.Body) == 0:
		reason = "its body was too long to be kept until the engine had counted it"
	case err != nil:
		reason = "the engine could not be asked: " + err.Error()
	case reason == "":
		reason = "the engine names the same tokens when it is asked; it counts others when it answers"
	}
	p.opt.Log.Error("an engine has counted a prompt otherwise: the class is exact no longer at this node",
		"node", d.Node, "model", d.Model, "class", d.Class.String(), "ours", d.Ours, "engine", d.Engine, "why", reason)
}

// demote takes a class from a node until it is proved again. What is being
// asked at the moment was asked too early.
func (p *Prover) demote(n *proof, class prompt.Class) {
	n.classes &^= 1 << class
	n.demoted |= 1 << class
	n.attempt++
	n.trouble()
	n.dueAt = p.due(n, n.wait)
	p.tell(n)
}

// trouble makes the pause before the next proof longer.
func (n *proof) trouble() {
	n.calm = false
	n.wait = min(max(2*n.wait, againAfter), againAtMost)
}

// giveBack gives classes back to the models they were taken from, once no node
// because of which they were taken is counted on.
func (p *Prover) giveBack() {
	held := map[string]uint32{}
	for _, n := range p.nodes {
		p.free[n.Model] |= n.demoted &^ n.Proved
		n.demoted &= n.Proved
		held[n.Model] |= n.demoted
	}
	for model, bits := range p.free {
		if m := p.models[model]; m != nil {
			for class := range prompt.Classes {
				if (bits&^held[model])>>class&1 != 0 {
					m.Promote(class)
				}
			}
		}
	}
	clear(p.free)
}

// forgive gives back what was taken because of an answer that nobody told of:
// the queue of disagreements had no room. If that node goes on so, it is told.
func (p *Prover) forgive() {
	if len(p.opt.Disagreements) > 0 {
		return
	}
	for name, m := range p.models {
		for class := range prompt.Classes {
			if m.Demoted(class) {
				p.free[name] |= 1 << class
			}
		}
	}
}

// due is when a node is proved again after a pause: earlier if the date in its
// prompts changes before.
func (p *Prover) due(n *proof, pause time.Duration) time.Time {
	now := p.opt.Now()
	at := now.Add(pause)
	if m := p.models[n.Model]; m != nil && m.Clock != nil {
		if midnight := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 1, 0, now.Location()); midnight.Before(at) {
			at = midnight
		}
	}
	return at
}
