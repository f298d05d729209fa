package dataplane

import (
	"bytes"

	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/prefix"
	"warmpath/dataplane/scan"
	"warmpath/dataplane/wire"
)

// Exactness says how a prompt was identified.
type Exactness uint8

const (
	ExactNone     Exactness = iota // not at all: routed by load
	ExactAffinity                  // by the affinity key alone
	ExactText                      // by the chain of its raw text
	ExactPrefix                    // by the engine's own token blocks, up to something unknown
	ExactTokens                    // by the engine's own token blocks
	exactnesses
)

var exactnessNames = [exactnesses]string{"none", "affinity", "text", "exact_prefix", "exact"}

// String returns the value of the label `exactness`.
func (e Exactness) String() string { return exactnessNames[e] }

// bytesPerToken is what a token is estimated to hold where tokens are not
// known (llm-d's figure too).
const bytesPerToken = prefix.TextUnitBytes / prefix.TextUnitTokens

// requestRead runs when a request is whole: decide and send it.
func (l *loop) requestRead(x *exchange) {
	c := x.client
	c.state = stBusy
	c.timer.disarm()
	x.readNs = l.now
	switch x.class.local {
	case localModels:
		l.answerModels(x)
		return
	case localHealth:
		l.answerHealth(x)
		return
	}
	l.route(x)
}

// route decides and sends, or leaves it to a worker to bring x back here.
func (l *loop) route(x *exchange) {
	a, later := l.decide(x)
	switch {
	case later:
		x.phase = phIdentifying
		l.asks(x)
		l.armExchange(x)
	case (a != nil || l.parking.count > 0) && l.waits(x, a):
	case a != nil:
		l.fail(x, a)
	default:
		c, id := x.client, x.ident
		slot, reason := x.decision.Slot, x.decision.Reason
		if x.tries > 0 { // it has lost its node, and waited for another
			slot, reason = x.wait.slot, policy.ReasonRetry
			l.tally.retries[x.outcome]++
		}
		l.dispatch(x, slot, reason)
		if c.x == x && x.ident == id && id != nil { // still under way: what is left of its prompt
			l.finishIdentity(x)
		}
	}
}

// decide identifies the prompt, matches it and chooses a node. It returns an
// answer if there is none to send the request to; later means that a worker
// has the prompt and brings x back to route.
func (l *loop) decide(x *exchange) (a *answer, later bool) {
	v := l.refresh()
	if !l.routed.Load() {
		l.routed.Store(true)
	}
	x.follow(v.snap)
	if x.scanning {
		x.found = x.scanner.Result()
	}
	if a := x.chooseModel(); a != nil {
		return a, false
	}
	if l.identify(x) {
		return nil, true
	}
	return l.choose(x), false
}

// choose lets the policy decide.
func (l *loop) choose(x *exchange) *answer {
	v := l.view
	l.readLoads(v)
	l.cursor++
	in := &l.match.inputs
	*in = policy.Inputs{NowNs: l.now, Cursor: l.cursor, Rand: l.nextRandom(), Pressure: l.d.opt.Fleet.Pressure()}
	d := &l.match.decision
	v.prepared.Decide(&x.polReq, &l.match.match, &l.match.loads, in, d)
	x.decided(d)
	l.remember(x, d.Candidates)
	l.countArrival(x)
	switch {
	case x.decision.Slot >= 0:
		return nil
	case x.decision.TooLong:
		return errTooLong(x)
	default:
		return &errNoNode
	}
}

// decided keeps of a decision what retries go by. All candidates of a thousand nodes
// would be 48 KB in each exchange, and out of the cache at each decision.
func (x *exchange) decided(d *policy.Decision) {
	best := append(x.decision.Candidates[:0], d.Candidates[:min(len(d.Candidates), policy.Ordered)]...)
	x.decision, x.considered = *d, len(d.Candidates)
	x.decision.Candidates = best
}

// chooseModel finds which model the request is for.
func (x *exchange) chooseModel() *answer {
	x.model = x.snap.Default
	if x.found == nil || !x.found.HasModel {
		if x.model < 0 && len(x.snap.Models) > 1 && x.class.prompt {
			return &errModelMissing
		}
		return nil
	}
	name := x.found.Model.Of(x.data)
	if bytes.IndexByte(name, '\\') >= 0 {
		name = scan.AppendUnescaped(nil, name) // rare: a model's name written with escapes
	}
	x.model = x.snap.ModelIndex(name)
	switch {
	case x.model >= 0:
		return nil
	case len(x.snap.Nodes) == 0:
		return &errNoNode
	case x.snap.Expected && !(x.snap.Asked && x.snap.Named()): // nodes that come may have it
		return &errNoNode
	case !x.snap.Asked:
		return &errModelsNotAsked
	default:
		return errUnknownModel(name)
	}
}

// identify fills x.polReq and the match of the decision. later means that a
// worker goes on with it.
func (l *loop) identify(x *exchange) (later bool) {
	r := &x.polReq
	*r = policy.Request{Model: x.model, OutputTokens: -1, Island: x.set.Island}
	clear(l.match.match.Tokens)
	clear(l.match.match.PrefixHolder)
	x.exact, x.units = ExactNone, nil
	if x.found == nil || !x.class.prompt {
		return false
	}
	name := x.modelName()
	r.OutputTokens = int(x.found.MaxTokens)
	r.PromptTokens, r.LeastTokens = x.promptTokens()
	r.AffinityKey = prefix.AffinityKey(&l.match.prefix, name, x.data, x.found)
	if l.view.needs.SystemKey {
		r.SystemKey = prefix.SystemKey(&l.match.prefix, name, x.data, x.found)
	}
	r.SessionKey = x.sessionKey()
	if r.AffinityKey != 0 {
		x.exact = ExactAffinity
	}
	switch l.identifyExactly(x) {
	case identified:
		return false
	case withWorker:
		return true
	}
	x.chain.Borrow(&l.match.tail)
	x.chain.Reset(x.snap.Seed, name, x.found.CacheSalt.Of(x.data))
	if x.units = x.chain.Append(x.data, x.found); len(x.units) > 0 {
		x.exact, x.unitTokens = ExactText, prefix.TextUnitTokens
		l.matchUnits(x)
	}
	return false
}

func (x *exchange) modelName() []byte {
	if x.model < 0 {
		return nil
	}
	return x.snap.Models[x.model].NameBytes
}

// partTokens is what a part that is not text (an image, a file) is taken to
// hold: its bytes say nothing about its tokens.
const partTokens = 512

// fewBytesPerToken is what the longest tokens hold on average in the densest
// text: only what is too long even so is refused here, the rest is the engine's
// to judge.
const fewBytesPerToken = 16

// promptTokens estimates the prompt's length, and the least it can be. Where the
// body has come to the middle of a text, or of ids, its rest is taken for more of
// them. Given ids are counted. Of several prompts in one body each has to fit by itself.
func (x *exchange) promptTokens() (tokens, least int) {
	yetToCome := int64(0)
	if x.uploading() {
		yetToCome = max(x.req.ContentLength-x.come, 0)
	}
	if n := len(x.found.Tokens); n > 0 {
		return n + int(int64(n)*yetToCome/max(x.come, 1)), n
	}
	if !x.found.Open {
		yetToCome = 0
	}
	text, others, longest := x.found.Tools.Len(), 0, 0
	for _, p := range x.found.Parts {
		if p.Kind != scan.PartText {
			others++
			continue
		}
		text += p.Span.Len()
		longest = max(longest, p.Span.Len())
	}
	if x.found.PromptKind != scan.PromptTexts {
		longest = text
	}
	text += int(yetToCome) // of no known least
	return (text+bytesPerToken-1)/bytesPerToken + others*partTokens, longest/fewBytesPerToken + 1
}

// sessionKey is of the header X-Session-Id, else of the body's session_id,
// else of its user.
func (x *exchange) sessionKey() uint64 {
	if f, ok := x.req.Find(wire.FieldXSessionID); ok && f.Value.Len() > 0 {
		return prefix.SessionKey(f.Value.Of(x.head))
	}
	if s := x.found.SessionID; s.Len() > 0 {
		return prefix.SessionKey(s.Of(x.data))
	}
	if s := x.found.User; s.Len() > 0 {
		return prefix.SessionKey(s.Of(x.data))
	}
	return 0
}

// matchUnits asks the index, and what is on its way to it, who holds how much
// of a text.
func (l *loop) matchUnits(x *exchange) {
	m := &l.match
	clear(m.units)
	applied := l.notes.applied() // before the index is asked, see extend
	longest := l.d.opt.Index.Match(x.units, &l.view.live, m.units)
	if l.notes.behind(applied) {
		l.overlay.extend(applied, x.units, longest, &l.view.live, m.units)
	}
	// An engine always computes the last token (design, section 5).
	most := uint32(max(x.polReq.PromptTokens-1, 0))
	for slot, n := range m.units {
		m.match.Tokens[slot] = min(uint32(prefix.TextTokens(int(n))), most)
	}
	if l.view.needs.PrefixKey {
		x.matchPrefix(l)
	}
}

// prefixTokensDefault is L of sticky_least_loaded where a request does not say.
const prefixTokensDefault = 64

// matchPrefix finds who holds the first L tokens, for sticky_least_loaded.
func (x *exchange) matchPrefix(l *loop) {
	tokens := int64(prefixTokensDefault)
	if x.found.PrefixLen > 0 {
		tokens = x.found.PrefixLen
	}
	if f, ok := x.req.Find(wire.FieldXPrefixTokens); ok {
		if n, ok := parseCount(f.Value.Of(x.head)); ok && n > 0 {
			tokens = n
		}
	}
	units := int64(prefix.TextUnits(int(min(tokens, 1<<30))))
	if x.exact >= ExactPrefix {
		unit := int64(x.unitTokens)
		units = (tokens + unit - 1) / unit
	}
	if units = min(units, int64(len(x.units))); units <= 0 {
		return
	}
	x.polReq.PrefixKey = uint64(x.units[units-1])
	for slot, n := range x.snap.Nodes {
		l.match.match.PrefixHolder[slot] = n != nil && int64(l.heldUnits(x, n)) >= units
	}
}

// heldUnits is how many leading units the node holds: of tokens its best rank,
// where they count there.
func (l *loop) heldUnits(x *exchange, n *fleet.Node) uint32 {
	switch {
	case x.exact < ExactPrefix:
		return l.match.units[n.Slot]
	case n.Exact&x.provedBit() == 0:
		return 0
	}
	return l.match.units[n.Slot+int(l.match.rank[n.Slot])]
}

func parseCount(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' || n > 1<<40 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(b) > 0
}

// readLoads copies the counters once, so that one decision sees one picture.
func (l *loop) readLoads(v *view) {
	n := len(v.loads)
	loads := &l.match.loads
	requests, prefill, total := loads.Requests[:n], loads.PrefillTokens[:n], loads.TotalTokens[:n]
	for slot, load := range v.loads {
		if load == nil {
			requests[slot], prefill[slot], total[slot] = 0, 0, 0
			continue
		}
		requests[slot] = load.Requests.Load()
		prefill[slot] = load.PrefillTokens.Load()
		total[slot] = load.TotalTokens.Load()
	}
}

// matched returns how many tokens of the prompt the node of the slot holds.
func (x *exchange) matched(slot int) int64 {
	for i := range x.decision.Candidates {
		if c := &x.decision.Candidates[i]; c.Slot == slot {
			return int64(c.MatchedTokens)
		}
	}
	return 0
}
