package dataplane

import (
	"bytes"
	"cmp"
	"strconv"
	"time"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/scan"
	"warmpath/dataplane/wire"
)

// defaultPrefillRate is what a node is taken to prefill, in tokens a second,
// until its rate is learned. It only bounds time-outs here.
const defaultPrefillRate = 8000

// dispatch sends the request to the node of the slot: counters up, note to the
// indexer, connection, forward. All of it at once, so that the next decision
// sees it.
func (l *loop) dispatch(x *exchange, slot int, reason policy.Reason) {
	n := x.snap.Nodes[slot]
	x.node = n
	x.at = x.tries
	x.tried[x.at] = triedNode{n.Name, slot, backend.OK}
	x.tries++
	l.sentTo(x, reason)
	l.chooseRank(x)
	x.raise()
	if x.set.HedgeNs > 0 {
		x.hedgeNs = x.hedgeAfter()
	}
	l.note(x)
	x.phase = phConnecting
	var c *backend.Conn
	if !x.tooLong() {
		c = l.takeConn(slot, n.Generation)
	}
	x.sentNs = l.d.nowNs()
	if x.tries == 1 { // what comes after a failure, or waits for a node or a connection, is not routing
		x.routedNs = x.sentNs - x.readNs - x.wait.spentNs
		l.tally.routing.Observe(seconds(x.routedNs))
	}
	if c == nil {
		l.connect(x)
		return
	}
	l.send(x, c)
}

// freshNs is how long after its last use an idle connection is taken without
// looking whether the node has closed it or said something unasked.
const freshNs = int64(50e6)

// tooLong reports whether x's body is not held once it is sent. It goes on a
// connection of its own: a node may have closed an idle one, and then the body
// would be needed again.
func (x *exchange) tooLong() bool {
	return max(x.come, x.req.ContentLength) > int64(x.set.RetryBodyBytes)
}

// takeConn returns an idle connection to the node on which nothing waits, nil
// if there is none.
func (l *loop) takeConn(slot int, generation uint32) *backend.Conn {
	for {
		c := l.pool.Take(slot, generation)
		if c != nil && c.Line.Left() {
			l.closeNode(c)
			continue
		}
		if c == nil || l.now-c.IdleSinceNs() < freshNs || c.Quiet() {
			return c
		}
		l.closeNode(c)
	}
}

// connect begins to connect to the exchange's node; nodeOpen or dialFailed goes
// on.
func (l *loop) connect(x *exchange) {
	x.phase = phConnecting
	c := &backend.Conn{Slot: x.node.Slot, Generation: x.node.Generation, Owner: x}
	x.conn = c
	x.sentNs = l.now
	if x.uploading() {
		l.holdUpload(x)
	}
	l.armExchange(x)
	l.dialer.Dial(c, x.node.Address, time.Duration(x.set.ConnectNs), &nodeSide{l: l, c: c, load: x.node.Load})
}

// uncached is how much of the prompt the node of the slot would have to prefill.
func (x *exchange) uncached(slot int) int64 {
	return max(int64(x.polReq.PromptTokens)-x.matched(slot), 0)
}

// maxExpectedOutput bounds what a client's max_tokens adds to a node's count:
// clients ask for more than any model writes.
const maxExpectedOutput = 1 << 16

// expectedOutput is the model's running mean, capped by what was asked for.
func (x *exchange) expectedOutput() int64 {
	mean := int64(0)
	if x.model >= 0 && x.model < len(x.snap.Models) {
		mean = int64(x.snap.Models[x.model].MeanOutput)
	}
	if asked := int64(x.polReq.OutputTokens); asked >= 0 && (mean == 0 || asked < mean) {
		return min(asked, maxExpectedOutput)
	}
	return mean
}

// nodeOpen runs when a connection to a node is there.
func (l *loop) nodeOpen(c *backend.Conn) {
	x, _ := c.Owner.(*exchange)
	if x == nil {
		l.closeNode(c)
		return
	}
	x.node.Load.Connected(l.now - x.sentNs)
	x.sentNs = l.now
	l.send(x, c)
}

// dialsHealed is how long no connection to a node has failed for want of something
// of this host's own when that counts as over.
const dialsHealed = 10 * time.Second

// dialFailed runs on the loop when a connection could not be made.
func (l *loop) dialFailed(c *backend.Conn, err error) {
	l.now = l.d.nowNs()
	l.lineEnded(c)
	x, _ := c.Owner.(*exchange)
	if x == nil {
		return
	}
	c.Owner, x.conn = nil, nil
	class := backend.DialClass(err)
	if class == backend.Local {
		l.d.dials.seen(err)
	}
	l.failed(x, class)
}

// send writes the request to its node in one write if it can be one.
func (l *loop) send(x *exchange, c *backend.Conn) {
	c.Owner, x.conn = x, c
	x.phase, x.heard = phWaiting, false
	x.resp.Reset()
	o := wire.RequestOptions{
		PathPrefix:    x.node.PathPrefix,
		Host:          x.node.Host,
		ContentLength: -1,
		RequestID:     x.requestID(),
		Rank:          x.rank,
	}
	body := x.data
	l.rankField = l.rankField[:0]
	if x.rank >= 0 && x.node.Engine == "sglang" {
		body = l.putRank(x)
	}
	rest := x.uploading()
	switch {
	case x.req.Body == wire.BodyNone:
	case !rest:
		o.ContentLength = int64(len(l.rankField) + len(body))
	case x.req.Body == wire.BodyChunked:
		o.Chunked = true
	default:
		o.ContentLength = int64(len(l.rankField)+len(body)-len(x.data)) + x.req.ContentLength
	}
	x.taken = len(x.data)
	l.forwarded(x, &o)
	l.out = wire.AppendRequestHead(l.out[:0], x.head, &x.req, &o)
	if o.Chunked {
		l.out = appendChunkLine(l.out, len(l.rankField)+len(body))
	}
	l.out = append(l.out, l.rankField...)
	if c.Line.Known() {
		c.Line.Send(l.d.kernelNs())
	}
	if len(body) <= joinBytes { // a copy of so little costs less than a second piece in the kernel
		l.out = append(l.out, body...)
		c.Write(l.out, nil)
	} else {
		c.WriteLent(l.out, body)
	}
	if c.Mute() && c.Reused() { // nothing of it was taken: what can be read there is no answer to it
		c.Fail(c.Failure())
		return
	}
	if c.Pending() == 0 {
		l.armExchange(x)
		l.requestSent(x)
		return
	}
	if l.stick(x); x.uploading() {
		l.holdUpload(x)
	}
	l.armExchange(x)
}

// requestSent runs when the node has taken the whole request. A long body is not
// held for another try.
func (l *loop) requestSent(x *exchange) {
	if x.unheard() {
		return
	}
	if x.passing {
		l.pieceSent(x)
		return
	}
	if x.stuck {
		x.stuck, x.sentNs = false, l.now // from here on the node may be late
		x.conn.Line.Sent(l.d.kernelNs())
		l.armExchange(x)
	}
	if x.tooLong() {
		l.dropBody(x)
	} else {
		l.shedHeld(x)
	}
	if x.began {
		l.settleBegun(x) // the answer came before
	}
}

// unheard reports whether the node does not take the request: what it answers to
// that is read next, and until then nothing is let go that another try needs.
func (x *exchange) unheard() bool { return x.conn.Mute() && !x.began }

// putRank makes l.rankField the start of x's body with the rank in it, and
// returns the rest: SGLang is told by a field (srt/entrypoints/openai/protocol.py,
// routed_dp_rank), where vLLM takes a header. A field of the client's own comes
// later in the body and wins, as in Python's json.
func (l *loop) putRank(x *exchange) (rest []byte) {
	open := bytes.IndexByte(x.data, '{')
	if open < 0 || x.found == nil || !x.found.HasModel && len(x.found.Messages) == 0 && x.found.PromptKind == scan.PromptNone {
		return x.data // nothing stands behind the field, so a comma would be wrong
	}
	l.rankField = append(append(l.rankField, x.data[:open+1]...), `"routed_dp_rank":`...)
	l.rankField = append(strconv.AppendInt(l.rankField, int64(x.rank), 10), ',')
	return x.data[open+1:]
}

// forwarded says who the client is. What an untrusted peer claims of that is
// replaced by its own address; a trusted proxy's word is kept and extended.
func (l *loop) forwarded(x *exchange, o *wire.RequestOptions) {
	c := x.client
	f, claimed := x.req.Find(wire.FieldXForwardedFor)
	trusted := len(x.set.TrustedSource) > 0 && x.set.trusts(c.source)
	l.source = l.source[:0]
	if claimed && trusted {
		l.source = append(append(l.source, f.Value.Of(x.head)...), ", "...)
	}
	own := len(l.source)
	l.source = c.source.AppendTo(l.source)
	o.ForwardedFor = l.source
	if _, ok := x.req.Find(wire.FieldXRealIP); ok && !trusted {
		o.RealIP = l.source[own:]
	}
}

// armExchange sets the client's timer to the exchange's next deadline.
func (l *loop) armExchange(x *exchange) {
	at := x.deadline()
	if x.rival != nil {
		at = earliest(at, x.rival.deadline())
	}
	if at > 0 {
		l.wheel.arm(&x.client.timer, at)
	} else {
		x.client.timer.disarm()
	}
}

// deadline returns when the exchange must have moved on; 0 = never.
func (x *exchange) deadline() int64 {
	at := int64(0)
	earlier := func(fromNs, afterNs int64) {
		if afterNs > 0 {
			at = earliest(at, fromNs+afterNs)
		}
	}
	earlier(x.startNs, x.requestNs)
	switch x.phase {
	case phIdentifying:
		earlier(max(x.readNs, x.wait.lookedNs), cmp.Or(x.set.IdentifyNs, identifyNs))
	case phParked:
		earlier(x.wait.sinceNs, max(cmp.Or(x.set.HoldNs, holdNs)-x.wait.spentNs, 1))
	case phConnecting:
		earlier(x.sentNs, x.set.ConnectNs)
	case phWaiting, phHolding:
		if x.uploading() || x.stuck {
			at = earliest(at, x.uploadDeadline())
		} else if x.found != nil && x.found.Stream == scan.True || x.phase == phHolding {
			earlier(x.sentNs, x.firstEventLimit())
			earlier(x.sentNs, x.hedgeNs)
		}
	case phRelaying:
		if x.paused() {
			earlier(x.lookedNs, x.set.IdleStreamNs/clientLooks)
		} else {
			earlier(x.lastEventNs, x.set.IdleStreamNs)
		}
	}
	return at
}

// earliest returns the earlier of two deadlines, of which 0 is never.
func earliest(a, b int64) int64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// firstEventLimit is the silence that a stream's node is allowed. With `auto`
// it is max(configured floor, 3 × predicted), where the prediction is the
// prefill queued there at this node's rate.
func (x *exchange) firstEventLimit() int64 {
	if !x.set.FirstAuto || x.stake == nil {
		return x.set.FirstEventNs
	}
	return max(x.set.FirstEventNs, int64(3e9*predictedSeconds(x.node)))
}

func predictedSeconds(n *fleet.Node) float64 { return firstEventSeconds(n, 0) }

// firstEventSeconds predicts when the first event of a request would come that
// adds so many tokens to the prefill queued at a node.
func firstEventSeconds(n *fleet.Node, tokens int64) float64 {
	rate := n.OwnPrefillTokensPerSecond.Or(n.PrefillTokensPerSecond.Or(defaultPrefillRate))
	if rate <= 0 {
		rate = defaultPrefillRate
	}
	return float64(n.Load.PrefillTokens.Load()+tokens) / rate
}

// exchangeExpired runs when the deadline of a busy exchange came.
func (l *loop) exchangeExpired(x *exchange) {
	if x.rival != nil && l.rivalExpired(x) {
		return
	}
	if at := x.deadline(); at == 0 || at > l.now {
		l.armExchange(x)
		return
	}
	over := x.requestNs > 0 && l.now >= x.startNs+x.requestNs
	switch {
	case over && x.began:
		l.cut(x, backend.Deadline)
	case over:
		l.leave(x, backend.Deadline)
		l.fail(x, &errRequestTimeout)
	case x.phase == phIdentifying:
		l.identifyLate(x)
	case x.phase == phParked:
		l.heldTooLong(x)
	case x.stuck && x.phase >= phWaiting && l.nodeTakes(x):
		l.armExchange(x)
	case x.phase == phRelaying && x.paused(): // also while the body still comes, which may be before the client reads
		l.lookAtClient(x)
	case x.uploading() && !x.stuck:
		l.refuseLate(x, &errSlowRequest)
	case x.phase == phRelaying:
		l.cut(x, backend.MidStream)
	case x.hedgeDue(l.now):
		l.hedge(x)
	default:
		l.failed(x, x.lateClass())
	}
}

// lateClass is how a try failed whose deadline came.
func (x *exchange) lateClass() backend.Class {
	if x.phase == phConnecting {
		return backend.Refused
	}
	return backend.Silent
}

// closeNode closes a connection to a node at once.
func (l *loop) closeNode(c *backend.Conn) {
	c.Owner = nil
	l.measureLast(c)
	c.Close()
}
