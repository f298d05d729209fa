package dataplane

import (
	"bytes"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/prefix"
	"warmpath/dataplane/scan"
	"warmpath/dataplane/stream"
	"warmpath/dataplane/wire"
)

// phase says what a busy exchange waits for.
type phase uint8

const (
	phRequest     phase = iota // its request is not whole yet
	phIdentifying              // a worker has its prompt
	phParked                   // a node that takes it, see hold.go
	phConnecting               // a connection to the node
	phWaiting                  // the head of the node's answer
	phHolding                  // the first event of a stream whose head is held
	phRelaying                 // the rest of the answer
	phOver
)

const maxTries = 8 // how many tries a record and an exchange can name

// exchange is one request and its answer. Loop-owned; reused through the
// loop's free list, so that a warm loop allocates none. What is kept for its
// memory stands in front; all else is in flow and forgotten at once.
type exchange struct {
	head     []byte // the request's head; spans of req point into it
	req      wire.Request
	scanner  scan.Scanner
	chain    prefix.TextChain
	decision policy.Decision // with the best of its candidates
	respHead []byte          // the answer's head; spans of resp point into it
	resp     wire.Response
	held     []byte // body bytes, in wire form, behind a held head
	watch    stream.Watcher
	passage
}

// passage is what an exchange knows of one request alone.
type passage struct {
	client   *client
	set      *Settings
	data     []byte // its body, de-chunked: one of the loop's buffers
	come     int64  // bytes of the body, de-chunked
	budgeted int    // bytes of its memory that count against the budget
	upload
	requestNs int64 // longest the request may take; 0 = no limit
	class     class
	body      wire.Body
	scanning  bool
	id        [maxRequestID]byte
	idLen     int

	// What was decided on it.
	snap   *fleet.Snapshot
	found  *scan.Result
	model  int // in snap.Models; -1 = any node
	units  []prefix.Hash
	polReq policy.Request
	exact  Exactness

	considered int // candidates there were

	inexact    string    // why its tokens are not known; "" if they are
	unitTokens int       // of a unit of units
	ident      *identity // nil: not exact
	late       bool      // … because no worker came to an end with it in time
	lent       bool      // a worker still reads the body and what was found in it
	spentNs    int       // on it, in this turn

	wait wait // for a node

	// Once its answer has begun, see settle.
	tokens   int   // of the prompt, 0 = not known
	prefixed bool  // its prefix was known
	evidence int   // bytes of the body that count as evidence
	claim    claim // about its tokens

	// Its tries at nodes.
	try
	rival      *exchange // holds another try at the same time, see hedge.go; nil = none
	hedged     bool      // it had a rival
	tries      int
	tried      [maxTries]triedNode
	lostNodes  int
	bodyGone   bool  // too long to be held: no other try
	pausedNs   int64 // when its node was paused last
	waiting    int   // bytes that waited for the client when it was last looked at …
	lookedNs   int64 // … which was then
	dechunk    bool  // the client speaks HTTP/1.0
	clientKeep bool  // the client's connection may go on after the answer
	began      bool  // a byte of an answer went to the client

	// Times, in loop.now's terms. Zero = did not happen.
	startNs, readNs, routedNs, firstEventNs, lastTokenNs int64
	firstBack                                            int // bytes between the first event and the end of the read that brought it, -1 before
	eventsSeen                                           int
	prefillNs                                            int64 // that the node spent on its prompt …
	prefilled                                            int64 // … on so many tokens, as far as is known; 0 = that is not to be counted

	outcome backend.Class
	record  recordRef
}

// try is the try under way.
type try struct {
	at          int // in exchange.tried
	phase       phase
	node        *fleet.Node
	conn        *backend.Conn // nil while none is there
	stake       *stake        // in which it has raised something; nil = settled
	partedNs    int64         // when its node had ended the connection, before the client took the rest; 0 = it has not
	prefill     int64         // … of that, tokens whose prefill is not known to be done
	total       int64         // … of that, tokens of prompt and expected answer
	rank        int           // of the node; -1 = the engine's choice
	known       int           // leading units that the rank holds already
	noted       int           // units that the indexer was told of
	heard       bool          // an interim answer has come: the node has the request
	paidTry     bool          // it is one that the retry budget pays for
	sentNs      int64         // when it was handed to the node, or its dialling began
	hedgeNs     int64         // silence after which another node is asked too; 0 = none is
	lastEventNs int64         // when the node was last heard
	status      int           // of its answer, or of the one that is not the node's
	respBody    wire.Body
}

type triedNode struct {
	name  string
	slot  int
	class backend.Class
}

func (l *loop) newExchange(c *client) *exchange {
	var x *exchange
	if n := len(l.idle); n > 0 {
		x = l.idle[n-1]
		l.idle = l.idle[:n-1]
	} else {
		x = &exchange{}
	}
	x.client, c.x = c, x
	x.set = l.d.settings.Load()
	x.phase = phRequest
	x.startNs = l.now
	l.d.active.Add(1)
	return x
}

// maxIdleExchanges bounds a loop's free list; an exchange holds a few KiB.
const maxIdleExchanges = 1024

// freeExchange gives x back. Nothing may hold it any more.
func (l *loop) freeExchange(x *exchange) {
	l.d.active.Add(-1)
	l.dropIdentity(x)
	l.evidenceBytes -= x.evidence
	if x.budgeted != 0 {
		l.d.memory.Add(-int64(x.budgeted))
	}
	if x.lent {
		x.data, x.scanner = nil, scan.Scanner{}
	}
	l.buffers.give(x.data)
	if len(l.idle) >= maxIdleExchanges {
		return
	}
	x.req.Reset()
	x.resp.Reset()
	x.scanner.Reset()
	x.head, x.respHead = x.head[:0], x.respHead[:0]
	if x.held = x.held[:0]; cap(x.held) > joinBytes {
		x.held = nil
	}
	x.passage = passage{}
	l.idle = append(l.idle, x)
}

// keepBody appends body bytes to the request's own buffer.
func (l *loop) keepBody(x *exchange, b []byte) {
	if need := len(x.data) + len(b); need > cap(x.data) {
		l.growBody(x, need)
	}
	x.data = append(x.data, b...)
	x.come += int64(len(b))
}

// growBody gives x's body room for at least so many bytes: as many as it will have,
// where that is known and believed, else more by a share of what it has, so that
// growing takes time in proportion to its length.
func (l *loop) growBody(x *exchange, need int) {
	old := x.data
	bytes, least := int64(max(need, 2*cap(old))), int64(max(need, cap(old)+cap(old)/4))
	if x.req.Body == wire.BodyLength {
		bytes, least = x.wanted(need), x.believed(need)
	}
	x.data = append(l.buffers.take(bytes, least), old...)
	if x.conn == nil || x.conn.Lent() == 0 {
		l.buffers.give(old)
	}
}

// believed is how much room a body gets of which so many bytes have come. What
// its head announces is believed in steps, each by what was really sent.
func (x *exchange) believed(come int) int64 {
	return min(x.wanted(come), max(bodyRoomPerByte*int64(come), bodyRoomLeast))
}

// wanted is how much of a body of known length is going to be held at once, where
// so many bytes have come.
func (x *exchange) wanted(come int) int64 {
	if x.req.ContentLength > int64(x.set.RetryBodyBytes) { // it is not held when it is passed on
		return min(x.req.ContentLength, max(x.set.RoutingWindowBytes+bodyReadBytes, 2*int64(come)))
	}
	return x.req.ContentLength
}

// scan goes on with the pass over the body.
func (x *exchange) scan(final bool) *scan.Error {
	_, err := x.scanner.Scan(x.data, final)
	return err
}

// requestID returns the id of the request: the client's, or ours.
func (x *exchange) requestID() []byte { return x.id[:x.idLen] }

// headRead takes what the head says. It returns an answer if the request is
// refused for it.
func (l *loop) headRead(x *exchange) *answer {
	l.setID(x)
	x.class = classOf(&x.req, x.head)
	x.scanning = x.class.scans && (x.req.Body != wire.BodyNone || x.class.prompt) && isJSON(x)
	x.clientKeep = x.req.KeepAlive
	x.requestNs = x.set.RequestNs
	if ns, ok := x.set.RequestNsByPath[string(x.req.Path.Of(x.head))]; ok {
		x.requestNs = ns
	}
	x.dechunk = x.req.Minor == 0
	if x.req.Body == wire.BodyLength && x.req.ContentLength > x.set.BodyBytes {
		return errBodyTooLarge(x.set.BodyBytes)
	}
	if x.class.refuse != nil || x.req.Body == wire.BodyNone {
		return x.class.refuse
	}
	return l.shedNew(x)
}

func (l *loop) setID(x *exchange) {
	if f, ok := x.req.Find(wire.FieldXRequestID); ok {
		if v := f.Value.Of(x.head); wire.ValidRequestID(v) && len(v) <= maxRequestID {
			x.idLen = copy(x.id[:], v)
			return
		}
	}
	x.idLen = l.ids.next(x.id[:])
}

// isJSON reports whether the body can be read as JSON: its type does not say
// otherwise and it is not compressed.
func isJSON(x *exchange) bool {
	if f, ok := x.req.Find(wire.FieldContentEncoding); ok && !bytes.EqualFold(f.Value.Of(x.head), []byte("identity")) {
		return false
	}
	f, ok := x.req.Find(wire.FieldContentType)
	if !ok || x.class.prompt {
		return true // engines take the body of a prompt route as JSON whatever its type says
	}
	return bytes.Contains(f.Value.Of(x.head), []byte("json"))
}
