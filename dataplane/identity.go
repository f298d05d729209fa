package dataplane

import (
	"sync/atomic"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
	"warmpath/dataplane/prompt"
	"warmpath/dataplane/scan"
)

const (
	// turnNs is how much work on one prompt a turn of a loop does, by the
	// estimate that prompt.Walk counts in. What is left goes to a worker.
	turnNs = 200_000
	// walkUnits is how many units are made between two looks at the index.
	walkUnits = 64

	// lookUnits is how many units are looked up between two looks at the budget,
	// and costLookUnitNs what one takes at most: they are fetched ahead, so that an
	// index in no cache is not waited for unit by unit.
	lookUnits      = 512
	costLookUnitNs = 40
	// What a loop keeps for the next prompts: so many identities, with so much
	// memory in all.
	maxIdleIdentities    = 64
	maxIdleIdentityBytes = 32 << 20
)

// identity is what is found out exactly of one request's prompt: its units,
// and who holds how many of them. The loop that owns its exchange owns it, and
// a worker while out is set: then the body and the scanner's memory are the
// worker's too, whatever becomes of the exchange.
type identity struct {
	walk    prompt.Walk
	held    index.Walk
	model   *prompt.Model
	root    prefix.Hash // of its chain
	form    prompt.Form
	body    []byte
	found   scan.Result // a copy: its slices stay the scanner's
	verdict prompt.Verdict
	snap    *fleet.Snapshot // whose slots held is about
	applied uint64          // of the loop's notes, when held began
	looked  int             // units that held has seen
	units   []uint32        // held, by slot
	credits []uint32        // what they are worth, by slot, in quarters of a unit

	begun   bool
	matched bool // as far as anybody holds it
	out     bool // with a worker
	job     job
	vain    atomic.Bool // nobody waits for it any more

	keptBytes int // in a loop's free list

	x      *exchange // nil: its request has ended
	usage  int64     // what the engine said of a prompt that was not counted yet; 0 = nothing
	spoken claim     // … of whom and what
}

// job says what a worker does with an identity.
type job uint8

const (
	jobMatch  job = iota // find out who holds it, for the decision
	jobFinish            // the rest, for what is expected to be held
)

// recall takes what is remembered of the very same request. It reports whether
// that is all there is to find out of its tokens, and what it cost.
func (id *identity) recall() (spentNs int, known bool) {
	id.verdict, id.begun = id.walk.Recall(id.form, id.body, &id.found)
	return id.verdict.CostNs, id.begun
}

// advance goes on until it is known who holds how much, or until about
// budgetNs are spent. Who is patient does a step that takes longer than that
// all the same, another leaves it. Any goroutine that owns the identity may
// call it.
func (id *identity) advance(budgetNs int, patient bool) (spentNs int) {
	if !id.begun {
		id.verdict = id.walk.Begin(id.form, id.body, &id.found, room(budgetNs, patient))
		if id.verdict.Unfinished {
			return budgetNs
		}
		id.begun = true
		spentNs = id.verdict.CostNs
	}
	if id.verdict.Level == chat.LevelText {
		id.matched = true
	}
	for !id.matched && spentNs < budgetNs {
		if id.looked == len(id.walk.Units()) {
			spentNs += id.walk.Next(room(budgetNs-spentNs, patient), walkUnits)
		}
		spentNs += id.look()
	}
	return spentNs
}

// room is what a single step may take.
func room(leftNs int, patient bool) int {
	if patient {
		return prompt.WholeBudget
	}
	return leftNs
}

// look asks the index for units that are new.
func (id *identity) look() (spentNs int) {
	units := id.walk.Units()
	next := min(id.looked+lookUnits, len(units))
	alive := id.held.Extend(units[id.looked:next])
	spentNs, id.looked = (next-id.looked)*costLookUnitNs, next
	id.matched = !alive || next == len(units) && id.walk.Complete()
	return spentNs
}

// match begins to ask which slots of l's view hold the prompt.
func (id *identity) match(l *loop) {
	v := l.view
	id.snap, id.looked, id.matched = v.snap, 0, false
	id.applied = l.notes.applied() // before the first look
	id.units, id.credits = resize(id.units, len(v.snap.Nodes)), resize(id.credits, len(v.snap.Nodes))
	clear(id.units)
	id.held.Start(l.d.opt.Index, &v.live, id.units, id.credits)
}

// finish goes on to the prompt's end, or until about budgetNs are spent.
func (id *identity) finish(budgetNs int, patient bool) {
	for spent := 0; spent < budgetNs && !id.walk.Complete(); {
		spent += id.walk.Next(room(budgetNs-spent, patient), walkUnits)
	}
}

// newIdentity begins to identify x's prompt as a prompt of m.
func (l *loop) newIdentity(x *exchange, m *prompt.Model) *identity {
	var id *identity
	if n := len(l.identities); n > 0 {
		id = l.identities[n-1]
		l.identities = l.identities[:n-1]
		l.identityBytes -= id.keptBytes
	} else {
		id = &identity{}
	}
	l.identifying++
	id.model, id.form = m, x.class.form
	id.body, id.found = x.data, *x.found
	id.begun, id.matched, id.usage = false, false, 0
	id.vain.Store(false)
	id.x, x.ident = x, id
	id.root = x.root()
	id.walk.Start(m, id.root)
	return id
}

// dropIdentity parts x from its identity. What a worker has is left to it: the
// body and what was found in it are lent.
func (l *loop) dropIdentity(x *exchange) {
	id := x.ident
	if id == nil {
		return
	}
	x.ident, id.x = nil, nil
	if id.out {
		x.lent = true
		id.vain.Store(id.job == jobMatch)
		return
	}
	l.freeIdentity(id)
}

func (l *loop) freeIdentity(id *identity) {
	l.identifying--
	id.body, id.found, id.snap, id.spoken = nil, scan.Result{}, nil, claim{}
	id.keptBytes = id.walk.End()
	if len(l.identities) < maxIdleIdentities && l.identityBytes+id.keptBytes <= maxIdleIdentityBytes {
		l.identities = append(l.identities, id)
		l.identityBytes += id.keptBytes
	}
}

// heavy reports whether rendering alone takes longer than a turn.
func (x *exchange) heavy() bool { return prompt.LeastCost(x.data, x.found) > turnNs }
