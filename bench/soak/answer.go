package soak

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"
)

// answering is one try under way at a node.
type answering struct {
	conn    *nodeConn
	req     *request
	try     *try
	fault   fault
	number  int    // of the try
	named   string // the X-Request-Id that came
	unheard bool   // part of the request was not read yet
}

// run reads what is left of the request and answers it. It reports whether the
// connection may be used again.
func (a *answering) run(h *head) bool {
	c, r := a.conn, a.req
	if a.fault.kind == resetOnHead {
		a.spoil("reset before the request was read")
		c.reset()
		return false
	}
	most := math.MaxInt
	if a.unheard = r.answer.early && a.fault.kind == noFault; a.unheard {
		most = 16 << 10
	}
	if a.fault.kind == resetInBody {
		most = int(a.fault.at * float64(r.textLen))
	}
	if err := c.readBody(h, r, most); err != nil {
		return a.ended(err)
	}
	if a.fault.kind == resetInBody {
		a.spoil("reset within the request's body")
		c.reset()
		return false
	}
	r.change(a.try, func(t *try) { t.heard = time.Now() })
	switch a.fault.kind {
	case resetUnheard:
		a.spoil("reset before an answer")
		c.reset()
		return false
	case closeUnheard:
		a.spoil("closed before an answer")
		return false
	case hangHead:
		a.spoil("silent")
		return a.ended(a.wait(hangFor))
	case delayHead:
		if err := a.wait(a.fault.wait); err != nil {
			return a.ended(err)
		}
	case garbageHead, twoLengths:
		a.spoil("answered with something that is not HTTP")
		if _, err := c.c.Write(a.garbage()); err != nil {
			return a.ended(errEnded)
		}
		return a.ended(a.wait(hangFor))
	}
	if err := a.wait(r.answer.wait); err != nil {
		return a.ended(err)
	}
	return a.answer()
}

func (a *answering) spoil(why string) { a.req.spoil(a.try, why) }

// ended is why the node's answer goes no further. It reports that the connection
// may not be used again.
func (a *answering) ended(err error) bool {
	switch {
	case errors.Is(err, errFraming):
		a.conn.node.run.violate(a.req, "node %d: %v", a.conn.node.number, err)
	case err != nil:
		a.req.change(a.try, func(t *try) { t.dropped = true })
	}
	return false
}

// noticeWithin is how soon the router has to end a node's connection after its
// client left: in no time, if the machine lets it run.
const noticeWithin = 3 * time.Second

// wait pauses. What the router has no client for must not be generated on.
func (a *answering) wait(d time.Duration) error {
	var err error
	if a.unheard {
		time.Sleep(d)
	} else {
		err = a.conn.pause(d)
	}
	if left := a.req.leftAt(); d > 0 && !a.unheard && err == nil && !left.IsZero() && time.Since(left) > noticeWithin {
		a.conn.node.run.violate(a.req, "node %d still answers %v after the client left", a.conn.node.number, time.Since(left).Round(time.Millisecond))
	}
	return err
}

// garbage is what comes instead of a head.
func (a *answering) garbage() []byte {
	if a.fault.kind == twoLengths {
		return []byte("HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 8\r\n\r\nFOREIGN!")
	}
	return []byte("\x15\x03\x03\x00\x02\x02\x46FOREIGN")
}

// head is the start of the answer.
func (a *answering) head(status int, length int) []byte {
	p, c := &a.req.plan, a.conn
	b := []byte(nil)
	if p.answer.interim {
		b = fmt.Appendf(b, "HTTP/1.1 103 Early Hints\r\n%s: %s\r\n\r\n", fieldKept, p.label)
	}
	kind := "application/json"
	if p.stream && status == http.StatusOK {
		kind = "text/event-stream; charset=utf-8"
	}
	b = fmt.Appendf(b, "HTTP/1.1 %d %s\r\nserver: soak\r\n%s: %s %d %d\r\n%s: %s\r\n%s: %s\r\ncontent-type: %s\r\n",
		status, http.StatusText(status), fieldAnswer, p.id, c.node.number, a.number, fieldNamed, a.named, fieldKept, p.label, kind)
	b = fmt.Appendf(b, "Keep-Alive: timeout=5\r\n%s: 1\r\n", fieldDropped)
	options := fieldDropped
	if a.closes(status) {
		options += ", close"
	}
	b = fmt.Appendf(b, "Connection: %s\r\n", options)
	switch {
	case status == 204, p.noContent(status) && p.answer.form == formClose:
	case p.answer.form == formLength:
		b = fmt.Appendf(b, "Content-Length: %d\r\n", length)
	case p.answer.form == formChunked && status != 304:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	return append(b, "\r\n"...)
}

// closes reports whether the connection ends with the answer.
func (a *answering) closes(status int) bool {
	p := &a.req.plan
	return p.answer.closes || a.unheard || p.answer.form == formClose && !p.noContent(status)
}

// answer writes the answer, with its fault. It reports whether the connection may
// be used again.
func (a *answering) answer() bool {
	p, c := &a.req.plan, a.conn
	status := a.fault.kind.status(p.answer.status)
	content, ends := p.content(c.node.number, a.number, a.fault.kind)
	wire := a.head(status, len(content))
	headLen := len(wire)
	d := roll(p.seed, uint64(p.worker), uint64(p.seq), uint64(a.number), 3)
	places := []int(nil) // where a write ends
	none := p.noContent(status)
	switch {
	case none:
	case p.answer.form == formChunked:
		wire, places = a.appendChunks(wire, content, ends, d)
	default:
		wire = append(wire, content...)
		for _, end := range ends {
			places = append(places, headLen+end)
		}
	}
	if !p.stream {
		places = d.cuts(len(wire), p.answer.pieces)
	}
	if a.fault.kind == surplus && (none || p.answer.form != formClose) {
		wire = append(wire, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nFOREIGN"...)
	}
	stop, most := a.stopsAt(headLen, len(wire)), len(wire)
	if stop >= 0 {
		a.spoil(a.fault.kind.String())
		most = stop
	}
	if err := a.write(wire[:most], places, stop < 0); err != nil {
		return a.ended(err)
	}
	if stop >= 0 {
		return a.stop()
	}
	if a.unheard {
		return a.hearOut()
	}
	return !a.closes(status)
}

// appendChunks appends the content in chunks: of a stream mostly an event each,
// as engines do it.
func (a *answering) appendChunks(wire, content []byte, ends []int, d dice) (all []byte, places []int) {
	p := &a.req.plan
	extension, trailers := "", ""
	if p.answer.odd {
		extension, trailers = ";soak", "x-soak-trailer: 1\r\n"
	}
	cuts := ends
	if len(ends) == 0 || d.chance(0.2) {
		cuts = d.cuts(len(content), p.answer.chunks)
	}
	if a.fault.kind == garbageChunk {
		content = content[:int(a.fault.at*float64(len(content)))]
		cuts = nil
		extension, trailers = "", ""
	}
	last := 0
	for _, cut := range cuts { // one at a time, to know where each ends
		wire = appendChunked(wire, content[last:cut], nil, extension, "")
		wire = wire[:len(wire)-len("0\r\n\r\n")]
		places = append(places, len(wire))
		last = cut
	}
	wire = appendChunked(wire, content[last:], nil, extension, trailers)
	if a.fault.kind == garbageChunk {
		wire = append(wire[:len(wire)-len("0\r\n\r\n")], "XYZ\r\nFOREIGN"...)
	}
	return wire, places
}

// stopsAt is where in the answer its fault stops it, -1 if it does not.
func (a *answering) stopsAt(headLen, length int) int {
	switch a.fault.kind {
	case hangEvent:
		return headLen
	case garbageChunk:
		return length
	case hangWithin:
		return headLen + int(a.fault.at*float64(length-headLen-1))
	case resetWithin, closeWithin:
		return int(a.fault.at * float64(length-1))
	}
	return -1
}

// stop is what happens where an answer stops.
func (a *answering) stop() bool {
	switch a.fault.kind {
	case resetWithin:
		a.conn.reset()
	case hangEvent, hangWithin, garbageChunk:
		return a.ended(a.wait(hangFor))
	}
	return false
}

// writeLimit bounds one write: a client that reads slowly takes seconds for a
// large answer.
const writeLimit = 60 * time.Second

// write writes up to each place, with the pauses of the plan between.
func (a *answering) write(b []byte, places []int, whole bool) error {
	c, pace := a.conn, a.req.answer.pause
	_ = c.c.SetWriteDeadline(time.Now().Add(writeLimit))
	a.req.change(a.try, func(t *try) { t.begun = true })
	at := 0
	for _, place := range places {
		if place <= at || place >= len(b) || pace == 0 && a.req.stream {
			continue // without a pause all goes out at once
		}
		if _, err := c.c.Write(b[at:place]); err != nil {
			return errEnded
		}
		at = place
		if err := a.wait(pace); err != nil {
			return err
		}
	}
	if whole {
		a.req.change(a.try, func(t *try) { t.whole = true })
	}
	if _, err := c.c.Write(b[at:]); err != nil {
		return errEnded
	}
	return nil
}

// hearOut reads on for a while after an answer that came before its request was
// read: closing with bytes unread would reset the connection, and could destroy
// the answer on its way (RFC 9112, section 9.6).
func (a *answering) hearOut() bool {
	c := a.conn.c
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.Copy(io.Discard, a.conn.r)
	return false
}
