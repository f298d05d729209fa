package dataplane

import (
	"warmpath/dataplane/chat"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prefix"
	"warmpath/dataplane/prompt"
	"warmpath/dataplane/scan"
)

// identifying says how far identifyExactly came.
type identifying uint8

const (
	notExact   identifying = iota // the prompt is routed by its text
	identified                    // x.exact, x.units and the match are set
	withWorker                    // a worker goes on
)

// identifyExactly finds the prompt's token units and who holds them, if that
// can be known for this model and this class of request.
func (l *loop) identifyExactly(x *exchange) identifying {
	id, spentNs := x.ident, 0
	if id == nil {
		m := l.exactModel(x)
		if m == nil || x.late {
			return notExact
		}
		id = l.newIdentity(x, m)
		id.match(l)
		recalled := false
		if !l.view.named[x.model] { // else its first ids may be asked for
			spentNs, recalled = id.recall()
		}
		if !recalled && (m.Slow || x.heavy()) {
			return l.handOr(x, jobMatch)
		}
	}
	if id.snap != x.snap { // the fleet has changed while a worker had it
		if l.exactModel(x) != id.model || x.root() != id.root {
			l.dropIdentity(x) // and so have its models: what was made is another's
			x.inexact = "the model has changed meanwhile"
			return notExact
		}
		id.match(l)
	}
	x.spentNs = spentNs + id.advance(turnNs-spentNs, false)
	if !id.matched {
		return l.handOr(x, jobMatch)
	}
	if x.inexact = l.doubt(x); x.inexact != "" && id.verdict.Level != chat.LevelPrefix {
		l.dropIdentity(x)
		return notExact
	}
	l.matchExactly(x)
	return identified
}

// doubt says why the prompt's tokens do not count, or not all of them; "" if
// they do.
func (l *loop) doubt(x *exchange) string {
	id := x.ident
	v := &id.verdict
	proved := v.Class &^ chat.FeatureMedia // of a prompt with media only the beginning is claimed
	switch {
	case v.Level == chat.LevelText:
		return v.Reason
	case id.model.Demoted(v.Class):
		v.Level = chat.LevelText
		return "an engine has counted such a prompt otherwise"
	case l.view.proved[x.model]>>proved&1 == 0:
		v.Level = chat.LevelText
		return "no node is proved to make the same tokens of such a prompt"
	}
	return v.Reason
}

// handOr gives x's identity to a worker. Where too many wait already the prompt
// is routed by its text: a decision is never held up for want of a better one.
// What is only explained has no connection to wait with: who asks does the work.
func (l *loop) handOr(x *exchange, what job) identifying {
	if !x.client.conn.Open() {
		x.ident.job = what
		return withWorker
	}
	if l.hand(x.ident, what) {
		return withWorker
	}
	x.inexact = "too many prompts wait to be identified"
	l.dropIdentity(x)
	return notExact
}

// ExactModels are the models whose prompts are known by their tokens.
// Immutable.
type ExactModels struct{ byName map[string]*prompt.Model }

// NewExactModels returns the set of models, each under its own name.
func NewExactModels(models []*prompt.Model) *ExactModels {
	e := &ExactModels{byName: make(map[string]*prompt.Model, len(models))}
	for _, m := range models {
		e.byName[m.Name] = m
	}
	return e
}

func (e *ExactModels) of(name string) *prompt.Model {
	if e == nil {
		return nil
	}
	return e.byName[name]
}

// exactModel returns what the prompts of x's model need, nil if they are not
// known exactly at any node.
func (l *loop) exactModel(x *exchange) *prompt.Model {
	if x.model < 0 || x.class.form == prompt.FormNone || len(x.data) > maxExactBytes || x.passing {
		return nil
	}
	m := l.view.exact[x.model]
	if m != nil && x.class.form.Unprovable() != "" {
		x.inexact = x.class.form.Unprovable()
		return nil
	}
	return m
}

// maxExactBytes bounds the bodies whose tokens are counted: an eighth of it is
// a million tokens.
const maxExactBytes = 32 << 20

// root is the start of the prompt's chain: what engines report of it begins
// with the same.
func (x *exchange) root() prefix.Hash {
	m := &x.snap.Models[x.model]
	name, adapter := m.ChainBytes, []byte(nil)
	if m.Base != "" {
		adapter = m.NameBytes
	}
	salt := x.found.CacheSalt.Of(x.data)
	if len(salt) > 0 {
		salt = scan.AppendUnescaped(nil, salt)
	}
	return prefix.ChainStart(x.snap.Seed, name, adapter, salt)
}

// matchExactly turns what is held into tokens, by slot of the nodes.
func (l *loop) matchExactly(x *exchange) {
	id, m := x.ident, &l.match
	x.units, x.unitTokens = id.walk.Units(), id.model.UnitTokens
	x.exact = ExactTokens
	if id.verdict.Level == chat.LevelPrefix {
		x.exact = ExactPrefix
	}
	if x.polReq.PromptTokens = id.walk.Estimate(); x.exact == ExactPrefix {
		// The rest is there too, whatever its tokens are.
		rough, _ := x.promptTokens()
		x.polReq.PromptTokens = max(x.polReq.PromptTokens, rough)
	}
	if id.walk.Complete() && x.exact == ExactTokens {
		x.polReq.LeastTokens = x.polReq.PromptTokens
	}
	longest := id.held.Finish()
	copy(m.units, id.units)
	copy(m.walked, id.units)
	copy(m.credits, id.credits)
	if l.notes.behind(id.applied) {
		l.overlay.extend(id.applied, x.units, longest, &l.view.live, m.units)
	}
	bit := x.provedBit()
	for slot, n := range x.snap.Nodes {
		m.rank[slot] = 0
		if n == nil || n.Exact&bit == 0 {
			continue
		}
		m.match.Tokens[slot] = l.matchNode(x, n)
	}
	if l.view.needs.PrefixKey {
		x.matchPrefix(l)
	}
}

// provedBit is that of the class in fleet.Node.Exact. Of a prompt with media
// only the beginning is claimed, which is a prompt without.
func (x *exchange) provedBit() uint32 {
	return 1 << (x.ident.verdict.Class &^ chat.FeatureMedia)
}

// quarters are what a unit in the fastest tier is worth.
const quarters = 4

// matchNode returns how many tokens of the prompt the node need not compute:
// those of its best rank, which is chosen with it. Units that are on their way
// to the index count as the fastest tier's.
func (l *loop) matchNode(x *exchange, n *fleet.Node) uint32 {
	m := &l.match
	best, at := uint32(0), -1
	for r := range n.Ranks {
		units, credit := m.units[n.Slot+r], m.credits[n.Slot+r]
		worth := credit + quarters*(units-m.walked[n.Slot+r])
		switch n.Trust[r] {
		case fleet.TrustGapped:
			worth /= 2 // some of it may have gone unheard
		case fleet.TrustStale:
			worth = 0 // nobody knows what it holds by now
		}
		if worth > best {
			best, at = worth, r
		}
	}
	if at < 0 {
		m.rank[n.Slot] = int16(x.polReq.AffinityKey % uint64(n.Ranks))
		return 0
	}
	m.rank[n.Slot] = int16(at)
	return min(best*uint32(x.unitTokens)/quarters, x.servable(n))
}

// servable is the most that an engine takes from its cache: it always computes
// the last token, and takes whole blocks (reference: vLLM's kv_cache_manager).
func (x *exchange) servable(n *fleet.Node) uint32 {
	most := max(x.polReq.PromptTokens-1, 0)
	if n.BlockTokens > 0 {
		most -= most % n.BlockTokens
	}
	return uint32(most)
}

// finishIdentity goes on with what of the prompt nobody held: its units are
// expected at the node from now on, and its length is checked against the
// engine's. The request itself is on its way.
func (l *loop) finishIdentity(x *exchange) {
	id := x.ident
	if id.out || id.walk.Complete() {
		return
	}
	if id.model.Slow {
		l.hand(id, jobFinish)
		return
	}
	if id.finish(turnNs-x.spentNs, false); id.walk.Complete() {
		l.noteRest(x)
		return
	}
	l.hand(id, jobFinish)
}

// counted is how many tokens the whole prompt has, 0 if that is not known.
func (x *exchange) counted() int {
	id := x.ident
	switch {
	case id == nil:
		return x.tokens
	case x.exact != ExactTokens || id.out || !id.walk.Complete():
		return 0
	}
	return id.walk.Count()
}

// settleBegun settles x if its answer has begun: for a stream with its first
// event, which still has something to say of the prompt.
func (l *loop) settleBegun(x *exchange) {
	if x.began && (!x.resp.EventStream || x.firstEventNs != 0) {
		l.settle(x)
	}
}

// settle lets go of what only another try would need, for an answer has begun to
// go to the client: it may go on for minutes, and there are many. Left are the
// prompt's length and, within a bound, the body: evidence, in case that the
// engine has counted otherwise.
func (l *loop) settle(x *exchange) {
	if id := x.ident; id != nil {
		if id.out { // for the rest of the prompt; identified comes back here
			return
		}
		x.tokens, x.claim = x.counted(), id.claim(x.node, nil)
		l.dropIdentity(x)
	}
	x.prefixed, x.units = x.prefixed || len(x.units) > 0, nil
	if x.evidence > 0 || cap(x.data) <= keptEvidenceBytes || x.uploading() || x.conn != nil && x.conn.Pending() > 0 { // requestSent comes back here
		return
	}
	if x.tokens > 0 && l.evidenceBytes+cap(x.data) <= maxEvidenceBytes && l.memory(x.set) < memoryTight {
		x.evidence = cap(x.data)
		l.evidenceBytes += x.evidence
		return
	}
	l.dropBody(x)
}

// Bodies of up to keptEvidenceBytes are kept until their answer's end; larger ones
// only as evidence, within maxEvidenceBytes a loop.
const (
	keptEvidenceBytes = 16 << 10
	maxEvidenceBytes  = 32 << 20
)

// claim is whose count of a prompt's tokens is to be judged.
type claim struct {
	model      *prompt.Model
	class      prompt.Class
	node       string
	generation uint32
	body       []byte // kept for finding the first token that differs
	form       prompt.Form
}

// claim is what the router says of the prompt at a node.
func (id *identity) claim(n *fleet.Node, body []byte) claim {
	return claim{id.model, id.verdict.Class, n.Name, n.Generation, body, id.form}
}

// checkUsage compares the prompt's length with what the engine has counted. A
// node where the class is not exact proves nothing about it.
func (l *loop) checkUsage(x *exchange) {
	if x.ident != nil && !x.ident.out { // the answer was no stream, though it said so
		l.settle(x)
	}
	if id := x.ident; id != nil { // the walk is the worker's
		x.claim = id.claim(x.node, id.body)
	} else {
		x.claim.body = x.data
	}
	if x.claim.model == nil || x.exact != ExactTokens || x.watch.PromptTokens <= 0 || x.node.Exact>>x.claim.class&1 == 0 {
		return
	}
	switch {
	case x.ident != nil:
		x.ident.spoken, x.ident.usage = x.claim, x.watch.PromptTokens
	case x.tokens > 0:
		l.judge(x.claim, int64(x.tokens), x.watch.PromptTokens)
	}
}

// judge takes the word "exact" from a class whose count was wrong, for all
// requests from here on, and tells the control plane, which finds out why.
func (l *loop) judge(c claim, ours, theirs int64) {
	l.tally.checked++
	if ours == theirs {
		return
	}
	l.tally.wrong++
	c.model.Demote(c.class)
	d := Disagreement{
		Model: c.model.Name, Class: c.class, Node: c.node, Generation: c.generation,
		Form: c.form, Body: append([]byte(nil), c.body...), Ours: ours, Engine: theirs,
	}
	select {
	case l.d.disagreements <- d:
	default: // one is enough to find the cause
	}
}

// Disagreement is a prompt that an engine has counted otherwise.
type Disagreement struct {
	Model        string
	Class        prompt.Class
	Node         string
	Generation   uint32
	Form         prompt.Form
	Body         []byte // of the request; empty if it was too long to be kept
	Ours, Engine int64  // tokens
}

// disagreementQueue bounds what waits to be looked into; more of the same says
// nothing new.
const disagreementQueue = 16

// Disagreements is where prompts come that an engine has counted otherwise.
func (d *Dataplane) Disagreements() <-chan Disagreement { return d.disagreements }
