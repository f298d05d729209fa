package engine

import (
	"slices"
	"time"
)

// Sequence is one request as the scheduler sees it. The caller fills in the
// exported fields before Add and leaves them alone afterwards.
type Sequence struct {
	Prompt  []uint32 // token ids, at least one
	Answer  int      // tokens to generate, at least one; prompt and answer fit the longest sequence
	Salt    string   // cache_salt: same prompts with other salts share nothing
	Adapter string   // LoRA adapter, "" for the base model

	tokens   []uint32 // prompt, then what was generated; append only
	hashes   []uint64 // chain hashes of the full blocks of tokens
	blocks   []int32  // held blocks, in order
	root     uint64
	start    uint64 // decides the words of the answer
	computed int    // tokens whose KV exists or is being made in this step
	stored   int    // blocks registered in the cache
	cached   int    // prompt tokens found in the cache at first scheduling
	planned  int    // tokens of the current step, 0 = not in it
	started  bool   // was scheduled once
	state    seqState

	live *answer // where the step loop reports progress; nil in pure use
}

// seqState says which list of the scheduler a sequence is in.
type seqState uint8

const (
	seqNew seqState = iota
	seqWaiting
	seqRunning
	seqOver
)

// Cached returns how many prompt tokens came from the cache.
func (q *Sequence) Cached() int { return q.cached }

// Generated returns how many tokens of the answer exist.
func (q *Sequence) Generated() int { return len(q.tokens) - len(q.Prompt) }

// Step says what the engine does in one step and how long it takes.
type Step struct {
	Duration      time.Duration // simulated time
	PrefillTokens int
	DecodeTokens  int
	Requests      int
}

// Output is one token that a step produced.
type Output struct {
	Seq  *Sequence
	Last bool // the answer is complete and its blocks are released
}

// Counters are totals since the scheduler was made.
type Counters struct {
	QueriedTokens   int64 // prompt tokens looked up in the prefix cache
	HitTokens       int64 // of them found
	PromptTokens    int64 // prompt tokens of requests whose prefill is complete
	GeneratedTokens int64
	Preemptions     int64
	Steps           int64
}

// Scheduler is continuous batching with chunked prefill, as vLLM's: every
// running request gets its next token first, waiting ones join in the order
// of arrival while tokens, places and blocks last, and when blocks run out
// the youngest running request is put back and computed again later. It is
// pure: no clock, no sleeping. Not safe for concurrent use.
type Scheduler struct {
	Cache    *Cache
	Counters Counters
	physics  Physics
	seed     uint64
	waiting  []*Sequence
	running  []*Sequence
	outputs  []Output
	answers  *answerTable // what answers consist of
	inStep   bool
}

// NewScheduler makes a scheduler over a cache. The physics must be complete
// (see Config); seed starts the chain hashes.
func NewScheduler(cache *Cache, physics Physics, seed uint64) *Scheduler {
	return &Scheduler{Cache: cache, physics: physics, seed: seed, answers: &fourByteAnswers}
}

// Running returns how many requests have blocks and take part in steps.
func (s *Scheduler) Running() int { return len(s.running) }

// Waiting returns how many requests wait for a place.
func (s *Scheduler) Waiting() int { return len(s.waiting) }

// Add puts a request at the end of the queue.
func (s *Scheduler) Add(q *Sequence) {
	if len(q.Prompt) == 0 || q.Answer < 1 || q.state != seqNew {
		panic("BUG: an added sequence has no prompt, no answer length, or was added before")
	}
	q.tokens = slices.Grow(slices.Clone(q.Prompt), min(q.Answer, 4096))
	q.root = rootHash(s.seed, q.Salt, q.Adapter)
	q.start = answerStart(q.Prompt)
	q.state = seqWaiting
	s.waiting = append(s.waiting, q)
}

// Abort ends a request at once and releases its blocks, also between Begin
// and End. It reports false if the request was over already.
func (s *Scheduler) Abort(q *Sequence) bool {
	switch q.state {
	case seqWaiting:
		s.waiting = remove(s.waiting, q)
	case seqRunning:
		s.running = remove(s.running, q)
		s.Cache.Release(q.blocks)
		q.blocks = nil
	default:
		return false
	}
	q.state, q.planned = seqOver, 0
	return true
}

// Step runs one whole step: Begin, then End.
func (s *Scheduler) Step() (Step, []Output, bool) {
	st, ok := s.Begin()
	if !ok {
		return st, nil, false
	}
	return st, s.End(), true
}

// Begin plans the next step, takes the blocks for it and says how long it
// lasts. ok is false when there is nothing to do. End must follow.
func (s *Scheduler) Begin() (step Step, ok bool) {
	if s.inStep {
		panic("BUG: Begin without End of the step before")
	}
	budget := s.physics.ChunkTokens
	preempted := false
	for i := 0; i < len(s.running) && budget > 0; i++ {
		q := s.running[i]
		n := min(len(q.tokens)-q.computed, budget)
		for q.state == seqRunning && !s.grow(q, n) {
			s.preempt(s.running[len(s.running)-1])
			preempted = true
		}
		if q.state == seqRunning {
			budget -= s.plan(q, n, &step)
		}
	}
	for !preempted && budget > 0 && len(s.waiting) > 0 && len(s.running) < s.physics.MaxRunning {
		q := s.waiting[0]
		n, admitted := s.admit(q, budget)
		if !admitted {
			break
		}
		budget -= s.plan(q, n, &step)
	}
	if step.Requests == 0 {
		return Step{}, false
	}
	ms := s.physics.DecodeBaseMs + s.physics.DecodePerRequestMs*float64(step.Requests)
	step.Duration += time.Duration(ms * float64(time.Millisecond))
	s.inStep = true
	return step, true
}

// End finishes the step: it appends the sampled tokens and releases finished
// requests. The outputs are valid until the next End.
func (s *Scheduler) End() []Output {
	if !s.inStep {
		panic("BUG: End without Begin")
	}
	s.inStep = false
	s.Counters.Steps++
	s.outputs = s.outputs[:0]
	keep := s.running[:0]
	for _, q := range s.running {
		q.computed += q.planned
		samples := q.planned > 0 && q.computed == len(q.tokens)
		q.planned = 0
		last := false
		if samples {
			last = s.sample(q)
			s.outputs = append(s.outputs, Output{Seq: q, Last: last})
		}
		if !last {
			keep = append(keep, q)
		}
	}
	clear(s.running[len(keep):])
	s.running = keep
	return s.outputs
}

// sample appends the next token and reports whether it was the last.
func (s *Scheduler) sample(q *Sequence) bool {
	position := q.Generated()
	if position == 0 {
		s.Counters.PromptTokens += int64(len(q.Prompt))
	}
	q.tokens = append(q.tokens, s.answers.ids[answerWord(q.start, position)])
	s.Counters.GeneratedTokens++
	if position+1 < q.Answer {
		return false
	}
	s.Cache.Release(q.blocks)
	q.blocks, q.state = nil, seqOver
	return true
}

// plan notes that q computes n tokens in this step, and adds their cost.
// Every prompt token costs its share of the prefill rate, more so the more
// context it looks back on; a decoded token costs only its place in the step.
func (s *Scheduler) plan(q *Sequence, n int, step *Step) int {
	q.planned = n
	step.Requests++
	if n == 1 && q.Generated() > 0 && q.computed == len(q.tokens)-1 {
		step.DecodeTokens++
		return n
	}
	step.PrefillTokens += n
	seconds := float64(n) / s.physics.PrefillTokensPerSecond
	if s.physics.ContextTokens > 0 {
		seconds *= 1 + (float64(q.computed)+float64(n)/2)/s.physics.ContextTokens
	}
	step.Duration += time.Duration(seconds * float64(time.Second))
	return n
}

// admit moves the head of the queue into the batch, with what the cache holds
// of it and blocks for its first chunk. The last token is always computed,
// because the engine needs its output.
func (s *Scheduler) admit(q *Sequence, budget int) (tokens int, ok bool) {
	size := s.Cache.blockTokens
	q.hashes = extendChain(q.hashes, q.root, q.tokens, size)
	hits := s.Cache.Match(q.hashes[:min(len(q.hashes), (len(q.tokens)-1)/size)])
	cached := len(hits) * size
	n := min(len(q.tokens)-cached, budget)
	fresh := (cached+n+size-1)/size - len(hits)
	if s.Cache.heldNeeded(hits)+fresh > s.Cache.Free() {
		return 0, false
	}
	s.waiting = remove(s.waiting, q)
	s.running = append(s.running, q)
	s.Cache.Hold(hits)
	q.state, q.blocks, q.computed, q.stored = seqRunning, hits, cached, len(hits)
	if !s.grow(q, n) {
		panic("BUG: blocks that were counted free are not")
	}
	if !q.started {
		q.started, q.cached = true, cached
		s.Counters.QueriedTokens += int64(len(q.Prompt))
		s.Counters.HitTokens += int64(cached)
	}
	return n, true
}

// grow takes the blocks that n more tokens need and registers the blocks that
// they fill. As in vLLM, blocks are registered when the step is planned, so a
// later request of the same step can already share them.
func (s *Scheduler) grow(q *Sequence, n int) bool {
	size := s.Cache.blockTokens
	end := q.computed + n
	var ok bool
	q.blocks, ok = s.Cache.Take(q.blocks, max(0, (end+size-1)/size-len(q.blocks)))
	if !ok {
		return false
	}
	full := end / size
	if full == q.stored {
		return true
	}
	q.hashes = extendChain(q.hashes, q.root, q.tokens, size)
	run := Event{
		Hashes:  slices.Clone(q.hashes[q.stored:full]),
		Tokens:  q.tokens[q.stored*size : full*size : full*size],
		Adapter: q.Adapter,
	}
	if q.stored > 0 {
		run.Parent, run.HasParent = q.hashes[q.stored-1], true
	} else {
		run.Salt = q.Salt
	}
	s.Cache.Store(q.blocks[q.stored:full], run)
	q.stored = full
	return true
}

// preempt puts a running request back to the front of the queue; what it
// computed is lost but for what stays in the cache.
func (s *Scheduler) preempt(q *Sequence) {
	s.running = remove(s.running, q)
	s.Cache.Release(q.blocks)
	q.state, q.blocks, q.computed, q.stored = seqWaiting, nil, 0, 0
	s.waiting = slices.Insert(s.waiting, 0, q)
	s.Counters.Preemptions++
}

// remove takes one sequence out of a list, in order.
func remove(list []*Sequence, q *Sequence) []*Sequence {
	i := slices.Index(list, q)
	if i < 0 {
		panic("BUG: a sequence is not in the list that its state names")
	}
	return slices.Delete(list, i, i+1)
}
