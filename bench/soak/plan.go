package soak

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// dice are random numbers that follow from what they were rolled for.
type dice struct{ *rand.Rand }

func roll(parts ...uint64) dice {
	return dice{rand.New(rand.NewPCG(mix(parts...), mix(append(parts, 1)...)))}
}

func (d dice) chance(p float64) bool { return d.Float64() < p }

// between returns a number from lo to hi, both included.
func (d dice) between(lo, hi int) int { return lo + d.IntN(hi-lo+1) }

// spread is between with all orders of magnitude alike.
func (d dice) spread(lo, hi int) int {
	return int(math.Exp(math.Log(float64(lo)) + d.Float64()*(math.Log(float64(hi))-math.Log(float64(lo)))))
}

func (d dice) pause(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(d.Int64N(int64(hi-lo)+1))
}

// one returns one of several with the given weights, which add up to 1.
func one[T any](d dice, choices []weighted[T]) T {
	at := d.Float64()
	for _, c := range choices {
		if at -= c.weight; at < 0 {
			return c.value
		}
	}
	return choices[0].value
}

type weighted[T any] struct {
	weight float64
	value  T
}

// kind says what is expected of a request in general.
type kind uint8

const (
	kindNormal  kind = iota // a node answers it
	kindLocal               // the router answers it
	kindRefused             // the router refuses it
	kindStalled             // it never ends: the router gives up on it
)

// sending is how a request's bytes go out.
type sending uint8

const (
	sendWhole  sending = iota // in one write
	sendPieces                // in several
	sendSlowly                // in several, with pauses
)

// leaving is when the client goes before it has its answer.
type leaving uint8

const (
	staying       leaving = iota
	leaveSending          // within the body
	leaveWaiting          // before the answer
	leaveReading          // within the answer
	leaveHalfway          // it ends its sending direction, and reads on
	leaveHeadOnly         // within the head
)

var leavingNames = [...]string{"", "within its body", "before the answer", "within the answer", "its sending direction", "within its head"}

// plan is all that is decided about one request beforehand.
type plan struct {
	seed        uint64
	worker, seq int
	id          string
	label       string // owner of its text

	kind     kind
	bad      *badRequest // of kindRefused
	method   string
	path     string
	stream   bool
	json     bool
	named    bool // it brings its X-Request-Id
	textLen  int  // bytes of text in its body; 0 = no body
	chunked  bool
	trailers bool // behind a chunked body
	expect   bool
	absolute bool // its target is absolute-form
	minor    int
	closes   bool // the connection ends with the answer
	fresh    bool // it wants a connection of its own
	batch    int  // so many requests, this one included, go out in one write
	sending  sending
	slowRead bool
	leave    leaving
	abort    bool // it leaves with a reset

	answer answerPlan
}

// form is how an answer is framed.
type form uint8

const (
	formLength form = iota
	formChunked
	formClose
)

var formNames = [...]string{"length", "chunked", "until close"}

// answerPlan is what a node answers if nothing goes wrong.
type answerPlan struct {
	status   int
	form     form
	textLen  int           // bytes of text in it, of a stream in each event
	events   int           // of a stream
	pause    time.Duration // between events, or between pieces
	pieces   int           // writes of an answer that is no stream
	wait     time.Duration // before the head
	interim  bool          // 103 before it
	early    bool          // before the body was read
	slowRead bool          // after the body was read slowly
	closes   bool          // with Connection: close
	chunks   int           // of a chunked one
	odd      bool          // … with extensions and trailers
	comment  bool          // a stream begins with a comment
}

// Paths whose answers come from nodes.
const (
	pathChat       = "/v1/chat/completions"
	pathCompletion = "/v1/completions"
	pathEmbeddings = "/v1/embeddings"
	pathFiles      = "/v1/files"
)

const (
	modelName = "soak"
	// maxModelLen is more tokens than the largest body can have.
	maxModelLen = 8 << 20
	// windowBytes is limits.routing_window, retryBytes limits.retry_body_bytes:
	// both at their default. bodyBytes is limits.body_bytes.
	windowBytes = 1 << 20
	retryBytes  = 4 << 20
	bodyBytes   = 8 << 20
)

// newPlan makes the plan of a client's request. simple ones can stand in a batch:
// they are short, and their client stays.
func newPlan(seed uint64, worker, seq int, simple bool) plan {
	d := roll(seed, uint64(worker), uint64(seq))
	p := plan{
		seed: seed, worker: worker, seq: seq, minor: 1, batch: 1,
		id: fmt.Sprintf("soak-%x-%d-%d", seed, worker, seq), label: fmt.Sprintf("q%d.%d", worker, seq),
	}
	p.named = d.chance(0.92)
	if !simple {
		p.kind = one(d, []weighted[kind]{{0.95, kindNormal}, {0.03, kindLocal}, {0.0195, kindRefused}, {0.0005, kindStalled}})
	}
	switch p.kind {
	case kindRefused:
		p.bad = &badRequests[d.IntN(len(badRequests))]
		p.fresh, p.named = d.chance(0.5), true
		return p
	case kindLocal:
		p.method, p.path = "GET", one(d, []weighted[string]{{0.7, "/v1/models"}, {0.3, "/health"}})
		p.closes = d.chance(0.05)
		return p
	}
	p.request(d, simple)
	if p.kind == kindStalled {
		p.named, p.fresh, p.textLen = true, true, min(p.textLen, 4<<10) // more would buy it more time
	}
	p.planAnswer(d)
	if !simple && p.kind == kindNormal {
		p.client(d)
	}
	return p
}

// request chooses method, path and body.
func (p *plan) request(d dice, simple bool) {
	type route struct{ method, path string }
	r := one(d, []weighted[route]{
		{0.55, route{"POST", pathChat}},
		{0.1, route{"POST", pathCompletion}},
		{0.05, route{"POST", pathEmbeddings}},
		{0.1, route{"POST", pathFiles}},
		{0.16, route{"GET", pathFiles + "/f"}},
		{0.02, route{"HEAD", pathFiles + "/f"}},
		{0.02, route{"DELETE", pathFiles + "/f"}},
	})
	p.method, p.path = r.method, r.path
	if p.method != "POST" {
		return
	}
	p.json = p.path != pathFiles
	p.stream = (p.path == pathChat || p.path == pathCompletion) && d.chance(0.35)
	switch size := d.Float64(); {
	case simple || size < 0.74:
		p.textLen = d.spread(1, 4<<10)
	case size < 0.95:
		p.textLen = d.spread(4<<10, 32<<10)
	case size < 0.985:
		p.textLen = d.spread(32<<10, 256<<10)
	case size < 0.9985:
		p.textLen = d.spread(256<<10, 5<<18)
	default:
		p.textLen = d.between(5<<18, 5<<20)
	}
	p.chunked = d.chance(0.12)
	p.trailers = p.chunked && d.chance(0.2)
}

// client chooses what is special about the client.
func (p *plan) client(d dice) {
	if d.chance(0.03) {
		p.batch = d.between(2, 8)
	}
	p.fresh = d.chance(0.1)
	if d.chance(0.04) {
		p.minor, p.chunked, p.trailers, p.closes = 0, false, false, d.chance(0.5)
	} else {
		p.closes = d.chance(0.04)
		p.absolute = d.chance(0.02)
		p.expect = p.textLen > 0 && d.chance(0.05)
	}
	p.sending = one(d, []weighted[sending]{{0.85, sendWhole}, {0.125, sendPieces}, {0.025, sendSlowly}})
	p.slowRead = d.chance(0.02)
	leaves := 0.04
	if p.large() { // rare, and passed on while it comes
		p.sending = one(d, []weighted[sending]{{0.5, sendWhole}, {0.3, sendPieces}, {0.2, sendSlowly}})
		leaves = 0.15
	}
	if d.chance(leaves) {
		p.leave = leaving(d.between(int(leaveSending), int(leaveHeadOnly)))
		p.abort = d.chance(0.5)
		if p.leave == leaveSending && p.textLen == 0 {
			p.leave = leaveWaiting
		}
	}
	if p.batch > 1 { // the first of a batch is like the others
		first := newPlan(p.seed, p.worker, p.seq, true)
		first.batch = p.batch
		*p = first
	}
}

// planAnswer chooses what a node answers.
func (p *plan) planAnswer(d dice) {
	a := &p.answer
	a.status = 200
	a.closes = d.chance(0.03)
	a.interim = d.chance(0.02)
	if d.chance(0.05) {
		a.wait = d.pause(time.Millisecond, 100*time.Millisecond)
	}
	a.form = one(d, []weighted[form]{{0.55, formLength}, {0.35, formChunked}, {0.1, formClose}})
	a.chunks, a.odd = d.spread(1, 20), d.chance(0.1)
	if p.stream {
		p.planStream(d)
		return
	}
	a.status = one(d, []weighted[int]{{0.9, 200}, {0.02, 201}, {0.02, 400}, {0.02, 404}, {0.02, 429}, {0.01, 204}, {0.01, 304}})
	switch size := d.Float64(); {
	case size < 0.85:
		a.textLen = d.spread(1, 4<<10)
	case size < 0.98:
		a.textLen = d.spread(4<<10, 64<<10)
	case size < 0.9995:
		a.textLen = d.spread(64<<10, 1<<20)
	default:
		a.textLen = 4 << 20
	}
	a.pieces = one(d, []weighted[int]{{0.8, 1}, {0.15, 3}, {0.05, 10}})
	if a.pieces > 1 && d.chance(0.2) {
		a.pause = d.pause(time.Millisecond, 20*time.Millisecond)
	}
	a.early = p.textLen > 64<<10 && d.chance(0.1)
	a.slowRead = p.textLen > 64<<10 && d.chance(0.1)
}

func (p *plan) planStream(d dice) {
	a := &p.answer
	if a.form == formLength {
		a.form = formChunked
	}
	a.comment = d.chance(0.1)
	a.textLen = d.spread(1, 2<<10)
	a.events = d.spread(1, 60)
	switch pace := d.Float64(); {
	case pace < 0.6:
	case pace < 0.9:
		a.pause = d.pause(time.Millisecond, 20*time.Millisecond)
	default:
		a.events = d.between(1, 20)
		a.pause = d.pause(20*time.Millisecond, 100*time.Millisecond)
	}
}

// large reports whether the body may be passed on before it is in.
func (p *plan) large() bool { return p.textLen > windowBytes/2 }

// noContent reports whether the answer has no body whatever its head says.
func (p *plan) noContent(status int) bool {
	return p.method == "HEAD" || status == 204 || status == 304
}

func (p *plan) String() string {
	s := fmt.Sprintf("client %d, request %d: %s %s HTTP/1.%d", p.worker, p.seq, p.method, p.path, p.minor)
	if p.bad != nil {
		return fmt.Sprintf("client %d, request %d: refused: %s", p.worker, p.seq, p.bad.name)
	}
	say := func(on bool, what string) {
		if on {
			s += ", " + what
		}
	}
	say(p.kind == kindLocal, "answered by the router")
	say(p.kind == kindStalled, "never ends")
	say(p.stream, "stream")
	say(p.textLen > 0, fmt.Sprintf("text of %d bytes", p.textLen))
	say(p.chunked, "chunked")
	say(p.expect, "Expect: 100-continue")
	say(p.absolute, "absolute target")
	say(p.batch > 1, fmt.Sprintf("first of %d in one write", p.batch))
	say(p.sending == sendPieces, "sent in pieces")
	say(p.sending == sendSlowly, "sent slowly")
	say(p.slowRead, "read slowly")
	say(p.leave != staying, "leaves "+leavingNames[p.leave])
	say(p.closes, "closes")
	a := &p.answer
	s += fmt.Sprintf("; answer %d, %s, text of %d bytes", a.status, formNames[a.form], a.textLen)
	say(p.stream, fmt.Sprintf("%d events", a.events))
	say(a.pause > 0, fmt.Sprintf("pauses of %v", a.pause))
	say(a.wait > 0, fmt.Sprintf("after %v", a.wait))
	say(a.interim, "103 before")
	say(a.early, "early")
	say(a.slowRead, "to a body that is read slowly")
	say(a.closes, "closes")
	return s
}
