package dataplane_test

import (
	"fmt"
	"hash/fnv"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// nodeReply is what a strict node does with one request.
type nodeReply struct {
	text  string
	never bool // and then nothing more
	early bool // before it has read the body, of which it reads no more
	close bool // and then it closes
	reset bool // and then it resets
	times int  // how often it sends the text in all
}

// nodePlan is what a node does with the requests of one case; those beyond its
// replies get an echo.
type nodePlan struct {
	replies []nodeReply
	hello   string // sent on new connections before anything is read
	slowly  bool   // byte by byte

	next    int
	saw     []*strictMessage
	last    *nodeConn        // which the last request of the case came on
	begun   []*strictMessage // whose heads came before their bodies
	partial []*strictMessage // and whose bodies the router did not end
}

// strictNode reads what the router sends with readRequest, notes whatever is
// not as it must be, and follows a plan.
type strictNode struct {
	node   *node
	chunks bool // bodies may come in chunks: the router passes them on as they come

	mu     sync.Mutex
	plan   *nodePlan
	faults []string
	conns  []*nodeConn
	newest *nodeConn
}

type nodeConn struct {
	conn  *conn
	gone  chan struct{} // the router has ended it
	newer chan struct{} // it has made another
	good  int           // requests of good clients

	requests, begun int // of other clients: whole ones, and the last whose head came first
}

// goodPath is what good clients ask for; no case does.
const goodPath = "/v1/good/"

func startStrictNode(t testing.TB) *strictNode {
	n := &strictNode{plan: &nodePlan{}}
	n.node = startNode(t, "a", n.serve)
	return n
}

// begin puts a plan in force.
func (n *strictNode) begin(p *nodePlan) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plan = p
}

// last returns the connection that the plan's last request came on, and how many
// good requests came on it; nil if there is none.
func (n *strictNode) last(p *nodePlan) (c *nodeConn, good int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.last != nil {
		good = p.last.good
	}
	return p.last, good
}

func (n *strictNode) complain(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, fmt.Sprintf(format, args...))
}

// complaints returns what was not as it must be, and forgets it.
func (n *strictNode) complaints() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	faults := n.faults
	n.faults = nil
	return faults
}

// hangUp ends the connections on which nothing is under way, all of them.
func (n *strictNode) hangUp() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		_ = c.conn.Close()
	}
	n.conns = nil
}

func (n *strictNode) serve(c *conn) {
	nc := &nodeConn{conn: c, gone: make(chan struct{}), newer: make(chan struct{})}
	n.mu.Lock()
	if n.newest != nil {
		close(n.newest.newer)
	}
	n.newest = nc
	n.conns = append(n.conns, nc)
	hello, first := n.plan.hello, nodeReply{}
	if len(n.plan.replies) > 0 {
		first = n.plan.replies[0]
	}
	n.mu.Unlock()
	if first.early {
		_ = c.SetReadBuffer(4 << 10) // so that the body stays with the router
	}
	defer close(nc.gone)
	if hello != "" {
		c.send(hello)
	}
	var in string
	piece := make([]byte, 64<<10)
	for {
		read, err := c.Read(piece)
		in += string(piece[:read])
		var more bool
		if in, more = n.take(nc, in); !more {
			return
		}
		if err != nil {
			n.cutOff(in)
			return
		}
	}
}

// cutOff notes a request that ended before its end.
func (n *strictNode) cutOff(in string) {
	if in == "" {
		return
	}
	m, err := readRequest(in)
	if err == errMore && m.headBytes > 0 {
		err = n.checkForwarded(m)
	}
	if err != nil {
		n.complain("the node was left with %.300q: %v", in, err)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.plan.partial = append(n.plan.partial, m)
}

// take serves the requests that in begins with; false when the connection has ended.
func (n *strictNode) take(nc *nodeConn, in string) (rest string, more bool) {
	for in != "" {
		m, err := readRequest(in)
		if err == errMore && m.headBytes > 0 && n.begins(nc, m) {
			return "", false
		}
		if err == errMore {
			return in, true
		}
		if err == nil {
			err = n.checkForwarded(m)
		}
		if err != nil {
			n.complain("the node got %.300q: %v", in, err)
			return "", false
		}
		in = in[m.bytes:]
		if !n.serveOne(nc, m, in) {
			return "", false
		}
	}
	return "", true
}

// begins notes a request of which the head has come, and answers it if the plan
// says so.
func (n *strictNode) begins(nc *nodeConn, m *strictMessage) bool {
	n.mu.Lock()
	p := n.plan
	if nc.begun != nc.requests+1 {
		nc.begun = nc.requests + 1
		p.begun = append(p.begun, m)
	}
	if p.next >= len(p.replies) || !p.replies[p.next].early {
		n.mu.Unlock()
		return false
	}
	r := p.replies[p.next]
	p.next++
	m.body = "(not read)"
	p.saw, p.last = append(p.saw, m), nc
	n.mu.Unlock()
	n.write(nc.conn, r.text, p.slowly)
	// Nothing is read, and the router has to use another connection in place of
	// this one.
	if !waitFor(nc.newer) {
		n.complain("the router keeps a connection whose node has not read the request")
	}
	nc.conn.reset()
	return true
}

// serveOne answers a request; behind holds what came behind it.
func (n *strictNode) serveOne(nc *nodeConn, m *strictMessage, behind string) bool {
	if strings.HasPrefix(m.target, goodPath) {
		n.mu.Lock()
		nc.good++
		n.mu.Unlock()
		nc.conn.send(echoOf(m))
		return true
	}
	n.mu.Lock()
	nc.requests++
	p := n.plan
	r := nodeReply{text: echoOf(m)}
	if p.next < len(p.replies) {
		r = p.replies[p.next]
	}
	p.next++
	p.saw, p.last = append(p.saw, m), nc
	n.mu.Unlock()
	if behind != "" {
		n.complain("the node got %q behind a request that it had not answered", behind)
	}
	n.write(nc.conn, strings.Repeat(r.text, max(r.times, 1)), p.slowly)
	switch {
	case r.never:
		n.expectEnd(nc)
		return false
	case r.reset:
		nc.conn.reset()
		return false
	case r.close:
		_ = nc.conn.CloseWrite()
		if !nc.conn.gone() { // a request may have crossed the close: it is stale, and comes again
			n.complain("the router keeps a connection that its node has closed")
		}
		return false
	}
	return true
}

// expectEnd waits until the router ends a connection, and wants no byte before.
func (n *strictNode) expectEnd(nc *nodeConn) {
	_ = nc.conn.SetReadDeadline(time.Now().Add(patience))
	var b [1]byte
	if read, err := nc.conn.Read(b[:]); read > 0 {
		n.complain("the node got %q behind a request that it has not answered", b)
	} else if isTimeout(err) {
		n.complain("the router keeps a connection on which no answer comes")
	}
}

func (n *strictNode) write(c *conn, text string, slowly bool) {
	if slowly {
		writeSlowly(c.TCPConn, text)
		return
	}
	c.send(text)
}

// writeSlowly writes byte by byte, the middle of what is long in pieces.
func writeSlowly(c *net.TCPConn, text string) {
	const alone = 700 // bytes of either end
	_ = c.SetNoDelay(true)
	for at := 0; at < len(text); {
		size := 1
		if at >= alone && at < len(text)-alone {
			size = min(max(len(text)/64, 1), len(text)-alone-at)
		}
		if _, err := c.Write([]byte(text[at : at+size])); err != nil {
			return
		}
		at += size
		runtime.Gosched()
	}
}

// checkForwarded looks at a request as the router must send it: one hop
// further, with nothing that could be read in two ways.
func (n *strictNode) checkForwarded(m *strictMessage) error {
	if m.chunked && !n.chunks {
		return strictFault("in chunks")
	}
	if len(m.trailers) > 0 {
		return strictFault("with trailers")
	}
	for _, name := range []string{
		"Connection", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade", "HTTP2-Settings",
		"Expect", "Proxy-Authorization", "Content_Length", "Transfer_Encoding",
	} {
		if len(m.values(name)) > 0 {
			return strictFault("with " + name)
		}
	}
	for _, name := range []string{"Host", "X-Request-Id", "X-Forwarded-For"} {
		if len(m.values(name)) != 1 {
			return strictFault("not with one " + name)
		}
	}
	if m.minor != 1 || m.target[0] != '/' && m.target != "*" {
		return strictFault("not in the form of a request to an origin server")
	}
	return nil
}

// standing are the fields that every forwarded request has and checkForwarded
// looks at, and those that every answer may have.
var (
	standingOfRequests = []string{"Host", "X-Request-Id", "X-Forwarded-For"}
	standingOfAnswers  = []string{"X-Request-Id", "X-Routed-To", "X-Request-Duration"}
)

// show is a message's fields and body, as the case files have them.
func (m *strictMessage) show(standing []string) string {
	var out strings.Builder
	for _, f := range m.fields {
		if !slices.Contains(standing, f.name) {
			fmt.Fprintf(&out, "\n  %s: %s", f.name, escapeText(f.value))
		}
	}
	if m.body != "" {
		fmt.Fprintf(&out, "\n  %s", showBody(m.body))
	}
	for _, f := range m.trailers {
		fmt.Fprintf(&out, "\n  trailer %s: %s", f.name, escapeText(f.value))
	}
	return out.String()
}

func showBody(body string) string {
	if len(body) > 100 {
		return fmt.Sprintf("%d bytes", len(body))
	}
	return fmt.Sprintf("%q", body)
}

// escapeText leaves only what is visible.
func escapeText(s string) string {
	q := fmt.Sprintf("%+q", s)
	return strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
}

// echoOf is an answer that says which request it answers.
func echoOf(m *strictMessage) string {
	body := echoBody(m)
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nX-Echo: 1\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n", len(body))
	if m.method == "HEAD" {
		return head
	}
	return head + body
}

func echoBody(m *strictMessage) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(m.body))
	return fmt.Sprintf("%s %s %s %d %x\n", m.values("X-Request-Id")[0], m.method, m.target, len(m.body), h.Sum64())
}

// waitFor reports whether a channel closes in time.
func waitFor(c <-chan struct{}) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
