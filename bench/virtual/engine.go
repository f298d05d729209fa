package virtual

import (
	"math"
	"slices"
	"time"
)

// Config are the physics of an engine, as bench/engine has them. The zero value of a
// field means its default.
type Config struct {
	PrefillTokensPerSecond float64 // prompt tokens computed in a second, alone and without context; default 8000
	DecodeBaseMs           float64 // fixed cost of a step; default 6
	DecodePerRequestMs     float64 // cost of each request in a step; default 0.35
	ContextTokens          float64 // context at which attention doubles the cost of a prompt token; 0 = no such cost
	ChunkTokens            int     // tokens of one step, prefill and decode together; default 2048
	MaxRunning             int     // requests in one step; default 64; below ChunkTokens
	BlockTokens            int     // default 512
	CacheTokens            int     // default 600,000
}

// WithDefaults fills what was left zero.
func (c Config) WithDefaults() Config {
	def := Config{PrefillTokensPerSecond: 8000, DecodeBaseMs: 6, DecodePerRequestMs: .35, ChunkTokens: 2048, MaxRunning: 64, BlockTokens: 512, CacheTokens: 600_000}
	for _, f := range []struct {
		to   *float64
		from float64
	}{
		{&c.PrefillTokensPerSecond, def.PrefillTokensPerSecond},
		{&c.DecodeBaseMs, def.DecodeBaseMs},
		{&c.DecodePerRequestMs, def.DecodePerRequestMs},
	} {
		if *f.to == 0 {
			*f.to = f.from
		}
	}
	for _, f := range []struct {
		to   *int
		from int
	}{
		{&c.ChunkTokens, def.ChunkTokens},
		{&c.MaxRunning, def.MaxRunning},
		{&c.BlockTokens, def.BlockTokens},
		{&c.CacheTokens, def.CacheTokens},
	} {
		if *f.to == 0 {
			*f.to = f.from
		}
	}
	return c
}

// Blocks returns how many blocks the cache has.
func (c *Config) Blocks() int { return c.CacheTokens / c.BlockTokens }

// PrefillNs is what computing n prompt tokens behind so many others costs, without
// the step they are computed in.
func (c *Config) PrefillNs(behind, n int) int64 {
	seconds := float64(n) / c.PrefillTokensPerSecond
	if c.ContextTokens > 0 {
		seconds *= 1 + (float64(behind)+float64(n)/2)/c.ContextTokens
	}
	return int64(time.Duration(seconds * float64(time.Second)))
}

// stepNs is the fixed cost of a step of so many requests.
func (c *Config) stepNs(requests int) int64 {
	ms := c.DecodeBaseMs + c.DecodePerRequestMs*float64(requests)
	return int64(time.Duration(ms * float64(time.Millisecond)))
}

// Job is one request at an engine. The caller fills in the exported fields before
// Add and leaves them alone until it is over; a zeroed Job can be used again.
type Job struct {
	ID       int32
	Prompt   int32    // tokens, at least one
	Output   int32    // tokens to generate, at least one
	Contents []uint32 // of the full blocks of prompt and then answer; those beyond are Anonymous

	held      []int32
	computed  int32 // tokens whose KV exists, but for a job that decodes: see length
	planned   int32 // prompt tokens of the current step
	stored    int32 // blocks whose content was said
	generated int32 // tokens of the answer, but for a job that decodes
	base      int64 // a job that decodes has generated base + Engine.steps tokens
	finish    int64 // the step after which it is complete
	cached    int32
	began     bool
	started   bool
}

// Began reports whether the first token has come.
func (q *Job) Began() bool { return q.began }

// Cached returns how many prompt tokens came from the cache when it was begun.
func (q *Job) Cached() int { return int(q.cached) }

// Reset makes a finished job fit for another Add; it keeps the memory.
func (q *Job) Reset() { *q = Job{held: q.held[:0]} }

// length is the tokens of prompt and answer so far; not of a job that decodes.
func (q *Job) length() int { return int(q.Prompt + q.generated) }

// Output says that a job had its first token, its last, or both.
type Output struct {
	Job         *Job
	First, Last bool
}

// Engine is continuous batching with chunked prefill: every running request gets its
// next token first, waiting ones join in the order of arrival while tokens, places
// and blocks last, and when blocks run out the youngest running one is put back and
// computed again later. Not safe for concurrent use.
type Engine struct {
	Cache       *Cache
	Preemptions int64
	cfg         Config

	waiting []*Job
	running []*Job
	next    []int64 // of running[:len(next)], which decode: the step that must be planned for them, or ends them
	soonest int64   // the least of next
	steps   int64   // that were completed

	startNs, eachNs int64 // of the row of steps under way
	row             int64 // its steps; 0 = idle

	busyNs  int64 // before that row
	tokens  int64 // generated before it
	outputs []Output
}

// NewEngine makes an idle engine. The configuration is complete: see WithDefaults.
func NewEngine(cfg Config, cache *Cache) *Engine {
	if cfg.MaxRunning >= cfg.ChunkTokens {
		panic("BUG: an engine's step must hold more tokens than requests")
	}
	return &Engine{cfg: cfg, Cache: cache, soonest: math.MaxInt64}
}

// Running returns how many requests have blocks and take part in steps.
func (e *Engine) Running() int { return len(e.running) }

// Waiting returns how many requests wait for a place.
func (e *Engine) Waiting() int { return len(e.waiting) }

// WakeNs returns when Wake is to be called; the largest time if the engine is idle.
func (e *Engine) WakeNs() int64 {
	if e.row == 0 {
		return math.MaxInt64
	}
	return e.startNs + e.row*e.eachNs
}

// BusyNs returns for how long it has had work, ever.
func (e *Engine) BusyNs(nowNs int64) int64 {
	if e.row == 0 {
		return e.busyNs
	}
	return e.busyNs + nowNs - e.startNs
}

// Tokens returns how many tokens were generated, ever.
func (e *Engine) Tokens(nowNs int64) int64 {
	if e.row == 0 || len(e.next) == 0 {
		return e.tokens
	}
	return e.tokens + (nowNs-e.startNs)/e.eachNs*int64(len(e.next))
}

// KVUse returns the share of the cache that requests hold.
func (e *Engine) KVUse() float64 {
	return 1 - float64(e.Cache.Free())/float64(e.Cache.Total())
}

// Add puts a request at the end of the queue. The time is not after WakeNs.
func (e *Engine) Add(q *Job, nowNs int64) {
	if q.Prompt < 1 || q.Output < 1 || int(q.Prompt+q.Output) > e.Cache.Total()*e.cfg.BlockTokens {
		panic("BUG: a job has no prompt, no answer, or more tokens than the cache")
	}
	e.waiting = append(e.waiting, q)
	if e.row == 0 {
		e.plan(nowNs)
		return
	}
	// The step under way goes on; those behind it of the row are not yet begun. If
	// others wait already, nobody can join before the row ends.
	if len(e.waiting) == 1 && len(e.running) < e.cfg.MaxRunning {
		begun := (nowNs - e.startNs + e.eachNs - 1) / e.eachNs
		e.row = min(e.row, max(1, begun))
	}
}

// Wake ends the row of steps that is complete and begins the next. The outputs are
// valid until the next Wake.
func (e *Engine) Wake(nowNs int64) []Output {
	if nowNs != e.WakeNs() {
		panic("BUG: an engine is woken at another time than it said")
	}
	e.end()
	e.plan(nowNs)
	return e.outputs
}

// Kill returns all jobs; the engine and its cache are not used again.
func (e *Engine) Kill(nowNs int64) []*Job {
	e.busyNs, e.tokens = e.BusyNs(nowNs), e.Tokens(nowNs)
	jobs := slices.Concat(e.running, e.waiting)
	e.running, e.waiting, e.next, e.row = nil, nil, nil, 0
	return jobs
}

// end finishes the row: it counts the sampled tokens and releases finished requests.
func (e *Engine) end() {
	e.outputs = e.outputs[:0]
	e.busyNs += e.row * e.eachNs
	e.tokens += e.row * int64(len(e.next))
	e.steps += e.row
	e.row = 0
	if e.soonest <= e.steps {
		e.finish()
	}
	fresh := e.running[len(e.next):]
	e.running = e.running[:len(e.next)]
	for _, q := range fresh {
		q.computed += q.planned
		q.planned = 0
		if int(q.computed) < q.length() || !e.sample(q) {
			e.running = append(e.running, q)
		}
	}
}

// finish releases the decoding requests that are complete, in their order.
func (e *Engine) finish() {
	kept := 0
	for i, q := range e.running {
		if i < len(e.next) && q.finish == e.steps {
			q.generated = q.Output
			q.computed = q.Prompt + q.Output - 1
			e.over(q)
			e.outputs = append(e.outputs, Output{Job: q, Last: true})
			continue
		}
		e.running[kept] = q
		if i < len(e.next) {
			e.next[kept] = e.next[i]
		}
		kept++
	}
	decoding := len(e.next) - (len(e.running) - kept)
	clear(e.running[kept:])
	e.running, e.next = e.running[:kept], e.next[:decoding]
	e.settle()
}

// sample gives a request whose prompt is computed its next token. It reports
// whether it was the last; else the request decodes from now on.
func (e *Engine) sample(q *Job) (last bool) {
	e.tokens++
	q.generated++
	last = q.generated == q.Output
	if !q.began || last {
		e.outputs = append(e.outputs, Output{Job: q, First: !q.began, Last: last})
		q.began = true
	}
	if last {
		e.over(q)
		return true
	}
	q.base = int64(q.generated) - e.steps
	q.finish = int64(q.Output) - q.base
	e.next = append(e.next, e.due(q))
	e.soonest = min(e.soonest, e.next[len(e.next)-1])
	return false
}

// due is the step that must be planned for a decoding request since it needs a
// block, or the one that ends it.
func (e *Engine) due(q *Job) int64 {
	// In step s it computes token Prompt + base + s, counted from one.
	full := int64(len(q.held)*e.cfg.BlockTokens) + 1 - int64(q.Prompt) - q.base
	return min(q.finish, full)
}

// settle finds the soonest of next.
func (e *Engine) settle() {
	e.soonest = math.MaxInt64
	for _, step := range e.next {
		e.soonest = min(e.soonest, step)
	}
}

// over gives the blocks of a finished request back.
func (e *Engine) over(q *Job) {
	e.store(q, int(q.computed))
	e.Cache.release(q.held)
	q.held = q.held[:0]
}

// store says what the blocks hold that so many tokens fill.
func (e *Engine) store(q *Job, tokens int) {
	for full := int32(tokens / e.cfg.BlockTokens); q.stored < full; q.stored++ {
		content := Anonymous
		if int(q.stored) < len(q.Contents) {
			content = q.Contents[q.stored]
		}
		e.Cache.store(q.held[q.stored], content)
	}
}
