package exact

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/chat"
	"warmpath/dataplane/prompt"
)

const (
	retryAfter   = 5 * time.Second // a node that could not be asked
	againAfter   = 5 * time.Minute // a class that did not agree, doubled each time …
	againAtMost  = 2 * time.Hour   // … up to this
	maxSuspects  = 64 << 10        // longest prompt that is kept for later probes, bytes
	proveAtOnce  = 4               // nodes
	wakeAtLeast  = time.Second
	forgiveEvery = time.Minute     // see forgive
	shownWithin  = 5 * time.Second // the State shows what it was told, unless the engine has restarted since
)

// Node is what the Prover needs to know of a node.
type Node struct {
	Name        string
	Incarnation uint64
	URL         string
	Engine      string // as engine.Prober takes it; "" = not known yet
	Model       string // the configured model it serves, by the name it has there
	Ready       bool
	Proved      uint32 // classes, as the State has them
}

// Asker asks engines: an *engine.Prober.
type Asker interface {
	Tokens(ctx context.Context, engineName, base string, body []byte) ([]uint32, error)
	Version(ctx context.Context, engineName, base string) string
}

// Options are fixed for the life of a Prover.
type Options struct {
	Models []Source
	Memo   *prompt.Memo
	Prober Asker
	Log    *slog.Logger
	// Apply gives the data plane its models.
	Apply func(*dataplane.ExactModels)
	// Seen tells the State which classes are exact at a node.
	Seen func(node string, incarnation uint64, classes uint32, version string)
	// Disagreements are the data plane's.
	Disagreements <-chan dataplane.Disagreement
	// Now is the clock, in the time zone whose date stands in prompts; nil is
	// this host's.
	Now func() time.Time
}

// Prover keeps the proofs. Set and Echo may be called by any goroutine.
type Prover struct {
	opt    Options
	loaded map[string]*Loaded // by model

	wake     chan struct{}
	outcomes chan outcome
	running  sync.WaitGroup // goroutines that ask

	mu     sync.Mutex
	set    []Node         // guarded by mu, like what follows
	unit   map[string]int // tokens, by model
	silent map[echoOf]int // prompts in a row whose units were not reported

	// owned by Run
	models  map[string]*prompt.Model
	engines map[string]chat.Engine // by model: whose prompts its model makes
	nodes   map[string]*proof      // by name
	free    map[string]uint32      // by model: classes to be given back to it
	asking  int                    // nodes
}

// suspect is a prompt that was counted otherwise once.
type suspect struct {
	class prompt.Class
	form  prompt.Form
	body  []byte
}

// proof is what the Prover remembers of one incarnation of a node.
type proof struct {
	Node
	version  string
	attempt  int  // the one whose outcome counts
	asking   bool // an attempt is under way, whether it counts or not
	done     bool // there was an outcome
	calm     bool // … and the last one had nothing against any class
	dueAt    time.Time
	wait     time.Duration // after the latest trouble
	classes  uint32        // that are proved
	toldAt   time.Time     // when the State was told
	suspects map[prompt.Class]suspect
	demoted  uint32 // classes taken from the model because of this node, until the State shows it without
}

// New loads the models. Those whose tokenizers or templates are not understood
// are left out, with a warning: their prompts are routed by text. An error means
// that a file cannot be read.
func New(opt Options) (*Prover, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	p := &Prover{
		opt: opt, loaded: map[string]*Loaded{}, wake: make(chan struct{}, 1), outcomes: make(chan outcome), silent: map[echoOf]int{},
		models: map[string]*prompt.Model{}, engines: map[string]chat.Engine{}, nodes: map[string]*proof{}, free: map[string]uint32{},
	}
	for _, source := range opt.Models {
		l, err := Load(source)
		if err != nil {
			return nil, err
		}
		l.now = opt.Now
		if l.Refused != "" {
			opt.Log.Warn("the model's tokens are not known exactly; its prompts are routed by text", "model", source.Model, "why", l.Refused)
			continue
		}
		if l.Slow != "" {
			opt.Log.Warn("the model's prompts are tokenised by the Hugging Face library, off the event loops", "model", source.Model, "why", l.Slow)
		}
		if l.Partly != "" {
			opt.Log.Warn("the model's chats are not known exactly; they are routed by text", "model", source.Model, "why", l.Partly)
		}
		p.loaded[source.Model] = l
	}
	return p, nil
}

// Set says what the fleet is now and, by model, how many tokens a unit has.
func (p *Prover) Set(nodes []Node, units map[string]int) {
	p.mu.Lock()
	p.set, p.unit = nodes, units
	p.mu.Unlock()
	p.poke()
}

// Wanted reports whether anything can be proved: else nobody needs to call Set.
func (p *Prover) Wanted() bool { return len(p.loaded) > 0 }

func (p *Prover) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. What asks engines has ended when it returns.
func (p *Prover) Run(ctx context.Context) {
	if len(p.loaded) == 0 {
		return
	}
	defer p.running.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case d := <-p.opt.Disagreements:
			p.disagreed(ctx, &d)
		case o := <-p.outcomes:
			p.conclude(&o)
		case <-timer.C:
			p.forgive()
		}
		p.follow()
		p.demoteSilent()
		p.giveBack()
		p.proveDue(ctx)
		timer.Reset(p.nextDue())
	}
}

// follow takes over what Set said.
func (p *Prover) follow() {
	p.mu.Lock()
	set, units := p.set, p.unit
	p.mu.Unlock()
	p.rebuild(set, units)
	here := map[string]bool{}
	for _, n := range set {
		was := p.nodes[n.Name]
		if p.loaded[n.Model] != nil {
			here[n.Name] = true
			if was != nil && !was.replaced(&n) && !p.restarted(was, &n) {
				was.Node = n
				continue
			}
			p.nodes[n.Name] = &proof{Node: n, suspects: map[prompt.Class]suspect{}}
			p.forgetEchoes(n.Name)
		}
		if was != nil {
			p.free[was.Model] |= was.demoted
		}
		if was != nil && n.Proved != 0 { // of another model, or another engine
			p.opt.Seen(n.Name, n.Incarnation, 0, "")
		}
	}
	maps.DeleteFunc(p.nodes, func(name string, gone *proof) bool {
		if !here[name] {
			p.free[gone.Model] |= gone.demoted
		}
		return !here[name]
	})
}

// replaced reports whether n is another node than the one that was proved.
func (was *proof) replaced(n *Node) bool {
	return was.Incarnation != n.Incarnation || was.URL != n.URL || was.Model != n.Model || was.Engine != n.Engine
}

// restarted reports whether the State has taken all proofs from a node, as it
// does when an engine has restarted. A State that was not told yet has not.
func (p *Prover) restarted(was *proof, n *Node) bool {
	return was.classes != 0 && n.Proved == 0 && (was.Proved != 0 || p.opt.Now().Sub(was.toldAt) >= shownWithin)
}

// rebuild makes the data plane's models where the unit is new, or the engine
// that most of a model's nodes run. Nodes with another engine are proved against
// the same prompts: they may well agree.
func (p *Prover) rebuild(set []Node, units map[string]int) {
	changed := false
	for name, l := range p.loaded {
		unit, engine := units[name], engineOf(set, name)
		if unit < prompt.MinUnit || unit > prompt.MaxUnit {
			continue
		}
		was := p.models[name]
		if was != nil && was.UnitTokens == unit && p.engines[name] == engine {
			continue
		}
		others := was != nil && p.engines[name] != engine
		p.models[name], p.engines[name], changed = l.Model(engine, unit, p.opt.Memo), engine, true
		for _, n := range p.nodes {
			if n.Model == name && was != nil {
				p.proveAnew(n, others)
			}
		}
	}
	if changed {
		p.opt.Apply(dataplane.NewExactModels(slices.Collect(maps.Values(p.models))))
	}
}

// proveAnew is called for a node whose model was made anew: other prompts, or
// the same in other units. What was taken from the former model stays taken.
func (p *Prover) proveAnew(n *proof, others bool) {
	for class := range prompt.Classes {
		if n.demoted>>class&1 != 0 {
			p.models[n.Model].Demote(class)
		}
	}
	n.attempt++
	if n.done {
		n.dueAt = time.Time{}
	}
	if others && n.classes != 0 {
		n.classes = 0
		p.tell(n)
	}
}

// engineOf is the engine that most nodes of a model run.
func engineOf(set []Node, model string) chat.Engine {
	sglang, others := 0, 0
	for _, n := range set {
		switch {
		case n.Model != model:
		case n.Engine == "sglang":
			sglang++
		default:
			others++
		}
	}
	if sglang > others {
		return chat.SGLang
	}
	return chat.VLLM
}

// tell tells the State what is proved of a node.
func (p *Prover) tell(n *proof) {
	n.toldAt = p.opt.Now()
	p.opt.Seen(n.Name, n.Incarnation, n.classes, n.version)
}

// nextDue is how long nothing is to be done.
func (p *Prover) nextDue() time.Duration {
	next, now := forgiveEvery, p.opt.Now()
	for _, n := range p.nodes {
		if n.provable() && p.models[n.Model] != nil {
			next = min(next, n.dueAt.Sub(now))
		}
		if n.classes != 0 && n.Proved == 0 {
			next = min(next, n.toldAt.Add(shownWithin).Sub(now))
		}
	}
	return max(next, wakeAtLeast)
}
