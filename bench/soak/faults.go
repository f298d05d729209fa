package soak

import "time"

// faultKind is a way in which a node fails at one try of one request.
type faultKind uint8

const (
	noFault      faultKind = iota
	resetOnHead            // reset once the head came
	resetInBody            // reset within the request's body
	resetUnheard           // reset once the request came, without an answer
	closeUnheard           // the same, closed in good order
	resetWithin            // reset within the answer
	closeWithin            // the answer ends too soon, in good order
	delayHead              // silence before the answer, but not beyond the time-outs
	hangHead               // silence before the answer
	hangEvent              // a stream's head, then silence
	hangWithin             // silence within a stream
	answer500              //
	answer502              //
	answer503              //
	errorFirst             // a stream's first event is an error
	errorWithin            // a stream ends with an error
	garbageHead            // no HTTP
	twoLengths             // a head that two parsers read in two ways
	garbageChunk           // a chunked answer that turns into something else
	surplus                // bytes behind the answer
	faultKinds             // their number
)

var faultNames = [faultKinds]string{
	"none", "reset_on_head", "reset_in_body", "reset_unheard", "close_unheard", "reset_within", "close_within", "delay_head", "hang_head", "hang_event", "hang_within",
	"answer_500", "answer_502", "answer_503", "error_first", "error_within", "garbage_head", "two_lengths", "garbage_chunk", "surplus",
}

func (k faultKind) String() string { return faultNames[k] }

// fault is what happens at one try. at, from 0 to 1, is where within the answer;
// wait is for how long.
type fault struct {
	kind faultKind
	at   float64
	wait time.Duration
}

// Shares of tries that meet a fault: later tries meet fewer, so that most
// requests get their answer.
const (
	faultyFirst = 0.06
	faultyLater = 0.02
)

var faultMix = []weighted[faultKind]{
	{0.06, resetOnHead},
	{0.03, resetInBody},
	{0.05, resetUnheard},
	{0.06, closeUnheard},
	{0.12, resetWithin},
	{0.1, closeWithin},
	{0.04, delayHead},
	{0.02, hangHead},
	{0.02, hangEvent},
	{0.03, hangWithin},
	{0.06, answer500},
	{0.04, answer502},
	{0.06, answer503},
	{0.06, errorFirst},
	{0.05, errorWithin},
	{0.06, garbageHead},
	{0.04, twoLengths},
	{0.05, garbageChunk},
	{0.05, surplus},
}

// faultOf is what the request meets at its try-th try, from 0. Faults of streams
// or of chunks become others where there are none.
func (p *plan) faultOf(try int) fault {
	d := roll(p.seed, uint64(p.worker), uint64(p.seq), uint64(try), 77)
	share := faultyFirst
	if try > 0 {
		share = faultyLater
	}
	if !d.chance(share) {
		return fault{}
	}
	f := fault{kind: one(d, faultMix), at: d.Float64(), wait: d.pause(200*time.Millisecond, 1500*time.Millisecond)}
	switch f.kind {
	case hangHead, hangEvent, hangWithin, errorFirst, errorWithin:
		if !p.stream {
			f.kind = delayHead
		}
	case garbageChunk:
		if p.answer.form != formChunked || p.noContent(p.answer.status) {
			f.kind = resetWithin
		}
	}
	if f.kind == closeWithin && p.answer.form == formClose && !p.noContent(p.answer.status) {
		f.kind = resetWithin // an end in good order would be that of the answer
	}
	return f
}

// Time-outs of the router: hangs are longer.
const (
	firstEventLimit = 3 * time.Second
	idleStreamLimit = 4 * time.Second
	hangFor         = 8 * time.Second
)

// retried reports whether the fault lets the router try the request elsewhere
// before anything came of an answer that it may pass on.
func (k faultKind) retried() bool {
	switch k {
	case resetOnHead, resetInBody, resetUnheard, closeUnheard, resetWithin, closeWithin, hangHead, hangEvent, answer500, answer502, answer503, errorFirst, garbageHead, twoLengths, garbageChunk:
		return true
	}
	return false
}

// moved reports whether the router takes the node for dead and moves the request
// once without asking its budget, provided that nothing of an answer came.
func (k faultKind) moved() bool {
	return k == resetOnHead || k == resetInBody || k == resetUnheard || k == closeUnheard
}

// status is the status of the answer with the fault.
func (k faultKind) status(planned int) int {
	switch k {
	case answer500:
		return 500
	case answer502:
		return 502
	case answer503:
		return 503
	}
	return planned
}
