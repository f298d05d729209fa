package load

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// finish ends a request whose answer is complete in its framing; extra bytes
// after it belong to nobody.
func (c *conn) finish(extra int) {
	c.settle(true)
	c.release(extra == 0 && !c.answer.closes && len(c.out) == 0)
}

// settle counts a request whose answer has ended, whole or not.
func (c *conn) settle(whole bool) {
	l, t := c.l, c.l.t
	if !l.counts(c.due) {
		return
	}
	t.lastEnd = l.now
	switch {
	case c.answer.status != 200:
		t.statuses[c.answer.status]++
		t.failed[failStatus]++
		l.note(failStatus, fmt.Sprintf("%d: %s", c.answer.status, excerpt(c.tail)))
	case l.o.Stream && !c.answer.sse:
		t.failed[failNotStreamed]++
		l.note(failNotStreamed, "the answer is no event stream")
	case c.failing:
		t.failed[failEvent]++
	case !whole || c.streams() && !c.whole:
		t.cut++
	default:
		c.succeed()
	}
}

// excerpt is the beginning of a text for people.
func excerpt(text []byte) string { return string(text[:min(len(text), excerptBytes)]) }

// succeed measures a request that went well.
func (c *conn) succeed() {
	if !c.streams() {
		c.usage.read(c.tail)
	}
	l, t := c.l, c.l.t
	t.ok++
	t.e2el.add(l.now - c.due)
	t.service.add(l.now - c.sent)
	tokens := c.usage.answer
	if tokens == 0 {
		tokens = c.contents
	}
	t.answerTokens += tokens
	t.endedContents += c.contents
	t.promptTokens += c.usage.prompt
	t.cachedTokens += c.usage.cached
	perToken := int64(0)
	if tokens > 1 && c.first > 0 {
		perToken = (c.last - c.first) / (tokens - 1)
		t.tpot.add(perToken)
	}
	if g := l.o.Goodput; g.wanted() &&
		(g.TTFT == 0 || c.first > 0 && c.first-c.due <= int64(g.TTFT)) &&
		(g.TPOT == 0 || perToken <= int64(g.TPOT)) &&
		(g.E2EL == 0 || l.now-c.due <= int64(g.E2EL)) {
		t.good++
	}
}

// ended handles the end of the connection.
func (c *conn) ended(reason string) {
	switch {
	case !c.busy:
		c.drop()
	case c.answer.inBody():
		c.settle(c.answer.eof())
		c.release(false)
	default:
		c.fail(failClosed, reason)
	}
}

// fail ends a request that went wrong, and its connection.
func (c *conn) fail(kind failure, reason string) {
	if c.busy && c.l.counts(c.due) {
		c.l.note(kind, reason)
		c.l.t.failed[kind]++
		c.l.t.lastEnd = c.l.now
	}
	c.release(false)
}

// note keeps the reason of the first error.
func (l *loop) note(kind failure, reason string) {
	if l.t.firstError == "" {
		l.t.firstError = failureNames[kind] + ": " + reason
	}
}

// release ends the request; the connection goes on if it can. A closed loop
// goes on with the next request, after a failure a little later.
func (c *conn) release(reusable bool) {
	l := c.l
	if !c.busy {
		panic("BUG: load: a request ended twice")
	}
	c.busy, c.out = false, nil
	l.busy.remove(c)
	l.nBusy--
	l.blocked = false
	if cap(c.lines.part) > keptBytes {
		c.lines.part = nil
	}
	if cap(c.answer.head) > keptBytes {
		c.answer.head = nil
	}
	if reusable {
		l.idle.push(c)
		l.nIdle++
	} else {
		c.close()
	}
	if l.starts == nil || l.closed {
		return
	}
	if reusable {
		l.send(l.now)
	} else {
		l.starts.push(l.now + pauseNs)
	}
}

// drop closes a connection that is idle.
func (c *conn) drop() {
	c.l.idle.remove(c)
	c.l.nIdle--
	c.close()
}

func (c *conn) close() {
	if c.state != connClosed {
		_ = unix.Close(c.fd)
		c.state = connClosed
	}
	c.l.free = append(c.l.free, c)
}
