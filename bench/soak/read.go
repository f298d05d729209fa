package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ending is how an answer ended for its client.
type ending uint8

const (
	endWhole ending = iota // where its framing says
	endCut                 // by the connection, before that
	endLeft                // the client left
	endNever               // the client waited for too long
	endWrong               // with bytes that belong to no answer to this request
)

var endingNames = [...]string{"whole", "cut", "left", "waited in vain", "wrong"}

// outcome is what a client saw of one request.
type outcome struct {
	end    ending
	got    bool // the head of a final answer
	status int
	ofNode bool // a node's answer, and that of which node and try
	node   int
	try    int
	code   string // of the router's own error
	says   string // its message
	bytes  int    // of the body
	err    error  // why it ended, unless whole
	reused bool   // the connection had served before
	keeps  bool   // the connection can be used again
}

// stale reports whether the request met the end of a connection that it found
// open. One whose client leaves by itself is cut anyway, and may be at a node that
// has not noticed it yet.
func (o *outcome) stale(r *request) bool {
	return o.end == endCut && !o.got && o.reused && r.leave == staying && len(r.copyTries()) == 0
}

func (o *outcome) String() string {
	s := endingNames[o.end]
	switch {
	case o.ofNode:
		s += fmt.Sprintf(": status %d of node %d, try %d, %d bytes of its body", o.status, o.node, o.try, o.bytes)
	case o.got:
		s += fmt.Sprintf(": status %d of the router, %s: %s", o.status, o.code, o.says)
	default:
		s += ": no answer"
	}
	if o.reused {
		s += ", on a connection used before"
	}
	if o.err != nil {
		s += fmt.Sprintf(" (%v)", o.err)
	}
	return s
}

// fail ends the outcome with an error.
func (o *outcome) fail(err error) *outcome {
	o.keeps, o.err = false, err
	switch {
	case errors.Is(err, errFraming):
		o.end = endWrong
	case timedOut(err):
		o.end = endNever
	default:
		o.end = endCut
	}
	return o
}

// readWith reads the answer to a request. proceed, if there is one, is told once
// that the body may be sent.
func (c *clientConn) readWith(r *request, proceed chan<- struct{}) *outcome {
	o := &outcome{}
	_ = c.c.SetReadDeadline(time.Now().Add(requestLimit))
	h, err := c.readFinal(r, proceed)
	if err != nil {
		return o.fail(err)
	}
	o.got = true
	if err := o.readStatus(h, r); err != nil {
		return o.fail(err)
	}
	none := bodyUntilClose
	if r.noContent(o.status) {
		none = bodyNone
	}
	kind, length, err := bodyOf(h, none)
	if err == nil && kind == bodyChunked && r.minor == 0 {
		err = framing("chunks for HTTP/1.0")
	}
	if r.noContent(o.status) {
		kind = bodyNone
	}
	if err != nil {
		return o.fail(err)
	}
	o.keeps = !h.closes() && kind != bodyUntilClose && (r.minor > 0 || h.has("connection"))
	if o.keeps && r.closes {
		return o.fail(framing("the client asked for a close, and the answer says nothing of it"))
	}
	b := &body{r: c.r, kind: kind, left: length}
	if o.ofNode {
		return c.readContent(r, h, b, o)
	}
	return o.readOwn(r, h, b, r.named && r.kind != kindStalled) // … whose head may not be whole
}

// readFinal reads heads up to that of the final answer.
func (c *clientConn) readFinal(r *request, proceed chan<- struct{}) (*head, error) {
	told := proceed == nil
	defer func() {
		if !told { // it will not be asked for; what is sent of it is dropped
			close(proceed)
		}
	}()
	for range 10 {
		h, err := readHead(c.r)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(h.line, "HTTP/1.1 1") {
			return h, nil
		}
		switch {
		case r.minor == 0:
			return nil, framing("%q for HTTP/1.0", h.line)
		case strings.HasPrefix(h.line, "HTTP/1.1 100 ") && !told && len(h.fields) == 0:
			told = true
			proceed <- struct{}{}
		case strings.HasPrefix(h.line, "HTTP/1.1 103 ") && r.answer.interim:
			if kept, err := h.one(fieldKept); err != nil || kept != r.label || len(h.fields) != 1 {
				return nil, framing("an interim answer with %q", h.fields)
			}
		default:
			return nil, framing("%q was not asked for", h.line)
		}
	}
	return nil, framing("more than 10 interim answers")
}

// readStatus reads what the head of an answer says of itself.
func (o *outcome) readStatus(h *head, r *request) error {
	rest, ok := strings.CutPrefix(h.line, "HTTP/1.1 ")
	if !ok || len(rest) < 4 || rest[3] != ' ' {
		return framing("status line %q", h.line)
	}
	status, err := strconv.Atoi(rest[:3])
	if err != nil || status < 200 || status > 599 {
		return framing("status line %q", h.line)
	}
	o.status = status
	values := h.all(fieldAnswer)
	if len(values) == 0 {
		return nil
	}
	var id string
	if n, err := fmt.Sscanf(values[0], "%s %d %d", &id, &o.node, &o.try); n != 3 || err != nil || len(values) > 1 {
		return framing("%s %q", fieldAnswer, values)
	}
	if id != r.id {
		return framing("an answer to request %s", id)
	}
	o.ofNode = true
	return nil
}

// readContent reads the body of a node's answer and compares it with what the
// node has to answer.
func (c *clientConn) readContent(r *request, h *head, b *body, o *outcome) *outcome {
	tries := r.copyTries()
	if o.try < 0 || o.try >= len(tries) || tries[o.try].node != o.node {
		return o.fail(framing("node %d has not answered at try %d", o.node, o.try))
	}
	k := tries[o.try].fault.kind
	want, _ := r.content(o.node, o.try, k)
	if err := c.checkAnswerHead(r, h, o, k); err != nil {
		return o.fail(err)
	}
	if b.kind == bodyLength && b.left != int64(len(want)) {
		return o.fail(framing("Content-Length %d, want %d", b.left, len(want)))
	}
	d := roll(r.seed, uint64(r.worker), uint64(r.seq), 13)
	leaveAt := len(want) + 1
	if r.leave == leaveReading {
		leaveAt = d.IntN(len(want) + 1)
	}
	buf := make([]byte, min(32<<10, len(want)+1))
	pause, slowUntil := time.Duration(0), time.Time{}
	if r.slowRead && len(want) > 64<<10 {
		pause, slowUntil = d.pause(time.Millisecond, 10*time.Millisecond), time.Now().Add(slowFor)
	}
	for {
		if o.bytes >= leaveAt {
			c.leave(r)
			o.end, o.keeps = endLeft, false
			return o
		}
		n, err := b.Read(buf[:min(len(buf), max(1, leaveAt-o.bytes))])
		if d := difference(buf[:n], want[min(o.bytes, len(want)):], o.bytes); d != "" {
			return o.fail(framing("the answer differs: %s", d))
		}
		o.bytes += n
		switch {
		case err == io.EOF && o.bytes < len(want):
			return o.fail(framing("an answer of %d bytes ends after %d as if it were whole", len(want), o.bytes))
		case err == io.EOF:
			o.end = endWhole
			return o
		case err != nil:
			return o.fail(err)
		}
		if pause > 0 && time.Now().Before(slowUntil) {
			time.Sleep(pause)
		}
	}
}

// slowFor bounds how long a client reads slowly.
const slowFor = 3 * time.Second

// checkAnswerHead compares the head of a node's answer with what the router has
// to make of it.
func (c *clientConn) checkAnswerHead(r *request, h *head, o *outcome, k faultKind) error {
	id, err := h.one("x-request-id")
	if err != nil {
		return framing("%v", err)
	}
	named, _ := h.one(fieldNamed)
	kept, _ := h.one(fieldKept)
	to, err := h.one("x-routed-to")
	server, _ := h.one("server")
	_, stated := h.one("x-request-duration")
	streamed := r.stream && o.status == http.StatusOK
	switch {
	case r.named && id != r.id || id != named:
		return framing("X-Request-Id %q, the node was given %q, the client has sent %q", id, named, r.id)
	case err != nil || to != nodeName(o.node):
		return framing("X-Routed-To %q, want %q (%v)", to, nodeName(o.node), err)
	case kept != r.label || server != "soak":
		return framing("fields of the node are missing: %q", h.fields)
	case h.has(fieldDropped) || h.has("keep-alive"):
		return framing("fields that end at the router: %q", h.fields)
	case streamed == (stated == nil):
		return framing("X-Request-Duration %q, streamed %v", h.all("x-request-duration"), streamed)
	case o.status != k.status(r.answer.status):
		return framing("status %d, want %d", o.status, k.status(r.answer.status))
	}
	return nil
}

// readOwn reads an answer of the router itself; named says that it has to have
// the client's id.
func (o *outcome) readOwn(r *request, h *head, b *body, named bool) *outcome {
	const most = 64 << 10
	text, err := io.ReadAll(io.LimitReader(b, most))
	if err != nil {
		return o.fail(err)
	}
	o.bytes = len(text)
	id, err := h.one("x-request-id")
	if err != nil || named && id != r.id {
		return o.fail(framing("X-Request-Id %q, want %q (%v)", id, r.id, err))
	}
	if o.status == http.StatusOK {
		if r.kind != kindLocal || r.path == "/v1/models" && !strings.Contains(string(text), `"`+modelName+`"`) {
			return o.fail(framing("an answer of nobody: %q", text))
		}
		return o
	}
	var said struct {
		Error struct {
			Message, Type, Code string
			RequestID           string `json:"request_id"`
		}
	}
	if err := json.Unmarshal(text, &said); r.method != "HEAD" && (err != nil || said.Error.RequestID != id || said.Error.Message == "" || said.Error.Type == "" || said.Error.Code == "") {
		return o.fail(framing("an error of the router that is %q", text))
	}
	o.code, o.says = said.Error.Code, said.Error.Message
	return o
}
