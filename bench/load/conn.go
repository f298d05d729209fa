package load

import (
	"fmt"

	"golang.org/x/sys/unix"

	"warmpath/bench/load/stamp"
)

type connState uint8

const (
	connClosed connState = iota
	connConnecting
	connOpen
)

// Bounds of what a connection keeps between reads and between answers.
const (
	tailBytes    = 4 << 10  // of an answer that is no stream: token counts come last
	keptBytes    = 16 << 10 // a larger buffer is given back when its answer has ended
	excerptBytes = 200      // of the first answer that was an error
)

// conn is one connection and the request on it. Loop-owned.
type conn struct {
	l          *loop
	slot       int32
	generation int32 // of the descriptor, so that old events are told apart
	fd         int
	state      connState
	writing    bool // the poller watches for room to write
	busy       bool
	prev, next *conn

	out  []byte // what of the request is not written yet
	due  int64  // ns
	sent int64  // ns, when it was begun, on a connection or for a new one

	answer      reader
	lines       lines
	tail        []byte // the end of an answer that is no stream
	named       kind   // of the event under way, by its name
	whole       bool   // the last event of the stream has come
	failing     bool   // an error event has come
	first, last int64  // ns, of content; 0 = none yet
	contents    int64  // events with content
	usage       usage
}

// begin gives the connection a request; nothing is sent yet.
func (c *conn) begin(request []byte, due, now int64) {
	c.busy, c.out, c.due, c.sent = true, request, due, now
	c.named, c.whole, c.failing, c.first, c.last, c.contents, c.usage = kindUnnamed, false, false, 0, 0, 0, usage{}
	c.answer.reset()
	c.lines.reset()
	c.tail = c.tail[:0]
}

// connect opens the connection; the request goes out when it is there.
func (c *conn) connect() {
	l := c.l
	fd, err := l.target.dial(int(c.slot))
	if err != nil && err != unix.EINPROGRESS {
		c.fail(failConnect, err.Error())
		return
	}
	c.fd, c.state, c.writing = fd, connConnecting, true
	c.generation++
	l.t.connections++
	if err := l.poll.add(fd, watched|unix.EPOLLOUT, c.slot, c.generation); err != nil {
		c.fail(failConnect, err.Error())
	}
}

// write sends what the socket takes.
func (c *conn) write() {
	for len(c.out) > 0 {
		n, errno := sysWrite(c.fd, c.out)
		switch errno {
		case 0:
			c.out = c.out[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			c.watchWrites(true)
			return
		default:
			// The answer may be there all the same, and says more: the next
			// event reads it, or finds the connection's end.
			c.watchWrites(false)
			return
		}
	}
	c.watchWrites(false)
}

func (c *conn) watchWrites(on bool) {
	if c.writing == on {
		return
	}
	c.writing = on
	events := uint32(watched)
	if on {
		events |= unix.EPOLLOUT
	}
	if err := c.l.poll.change(c.fd, events, c.slot, c.generation); err != nil {
		c.fail(failClosed, err.Error())
	}
}

// ready handles what the poller says.
func (c *conn) ready(events uint32) {
	if c.state == connConnecting {
		if errno, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || errno != 0 {
			c.fail(failConnect, fmt.Sprint(unix.Errno(errno)))
			return
		}
		c.state = connOpen
		c.write()
	} else if events&unix.EPOLLOUT != 0 && c.busy {
		c.write()
	}
	if events&^unix.EPOLLOUT != 0 && c.state == connOpen {
		c.read()
	}
}

// read takes in what has come. One read takes nearly always all; where more is
// there the poller says so again, after the other connections had their turn.
func (c *conn) read() {
	l := c.l
	n, errno := sysRead(c.fd, l.buf)
	l.now = stamp.Now()
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
	case errno != 0:
		c.ended(errno.Error())
	case n == 0:
		c.ended("the connection was closed")
	case !c.busy: // nobody asked
		c.drop()
	default:
		c.feed(l.buf[:n])
	}
}

// feed hands bytes to the reader, and bodies on.
func (c *conn) feed(b []byte) {
	l := c.l
	counts := l.counts(c.due)
	if counts {
		l.t.bytes += int64(len(b))
	}
	stamps, streamed := int64(0), false
	for len(b) > 0 || c.answer.pending() {
		n, data, p, err := c.answer.next(b)
		b = b[n:]
		if err != nil {
			c.fail(failMalformed, "the answer is not HTTP/1.1")
			break
		}
		if p == partBody {
			streamed = streamed || c.streams()
			if !c.body(data, &stamps) {
				break
			}
		}
		if p == partEnd {
			c.finish(len(b))
			break
		}
	}
	if streamed && counts {
		l.t.streamReads++
		l.t.chunksMerged += max(stamps-1, 0)
	}
}

// streams reports whether the body is a stream of events to be measured.
func (c *conn) streams() bool {
	return c.answer.sse && c.answer.status == 200
}

// body takes a piece of the body; false: the request has failed.
func (c *conn) body(data []byte, stamps *int64) bool {
	if !c.streams() {
		c.keepTail(data)
		return true
	}
	for len(data) > 0 {
		line, rest, ok, err := c.lines.next(data)
		if err != nil {
			c.fail(failLongLine, err.Error())
			return false
		}
		if !ok {
			return true
		}
		data = rest
		if len(line) == 0 {
			c.named = kindUnnamed
		} else if event, ok := fieldValue(line, "data"); ok {
			c.event(event, stamps)
		} else if name, ok := fieldValue(line, "event"); ok {
			c.named = named(name)
		}
	}
	return true
}

// keepTail keeps the end of a body, where token counts and messages of errors
// are.
func (c *conn) keepTail(data []byte) {
	if len(data) > tailBytes {
		data = data[len(data)-tailBytes:]
	}
	if over := len(c.tail) + len(data) - tailBytes; over > 0 {
		c.tail = c.tail[:copy(c.tail, c.tail[over:])]
	}
	c.tail = append(c.tail, data...)
}

// event measures one event of a stream.
func (c *conn) event(event []byte, stamps *int64) {
	l, t := c.l, c.l.t
	counts := l.counts(c.due)
	if at, ok := stamp.Find(event); ok && counts {
		*stamps++
		if l.now < at {
			t.chunksFromAfter++
		} else {
			t.chunk.add(l.now - at)
		}
	}
	kind := c.named
	if kind == kindUnnamed {
		kind = unnamed(event)
	}
	switch kind {
	case kindContent:
		switch {
		case !counts:
		case c.first == 0:
			t.ttft.add(l.now - c.due)
		default:
			t.itl.add(l.now - c.last)
		}
		if c.first == 0 {
			c.first = l.now
		}
		c.last = l.now
		c.contents++
		if counts {
			l.token()
		}
	case kindDone:
		c.whole = true
	case kindError:
		c.failing = true
		if counts {
			l.note(failEvent, excerpt(event))
		}
	}
	c.usage.read(event)
}

// token counts an event with content into its second.
func (l *loop) token() {
	l.t.contentEvents++
	if second := (l.now - l.open) / 1e9; second != l.t.second {
		l.t.second, l.t.tokens = second, 0
	}
	l.t.tokens++
	l.t.tokensMost = max(l.t.tokensMost, l.t.tokens)
}
