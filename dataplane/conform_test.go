package dataplane_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/dataplane"
	"warmpath/dataplane/wire"
)

// TestConformance runs testdata/conform/*.txt (see conformCase), one router a
// file, each case with the bytes of both sides sent whole and one by one.
func TestConformance(t *testing.T) {
	for _, f := range readConformFiles(t) {
		t.Run(f.name, func(t *testing.T) { f.run(t) })
	}
}

func (f *conformFile) run(t *testing.T) {
	node := startStrictNode(t)
	r := start(t, setup{set: func(s *dataplane.Settings) {
		s.Head = wire.Limits{}
		for key, n := range f.settings {
			switch key {
			case "body_bytes":
				s.BodyBytes = int64(n)
			case "head_bytes":
				s.Head.HeadBytes = n
			case "head_ms":
				s.HeadNs = int64(n) * 1e6
			case "routing_window":
				s.RoutingWindowBytes = int64(n)
			default:
				t.Fatalf("%s: unknown setting %q", f.name, key)
			}
		}
	}}, node.node)
	node.chunks = f.settings["routing_window"] > 0
	names := map[string]string{}
	for _, c := range f.cases {
		if at, ok := names[c.name]; ok {
			t.Errorf("%s: %q is the name of the case at %s too", c.at, c.name, at)
		}
		names[c.name] = c.at
		for _, slowly := range []bool{false, true} {
			runConformCase(t, r, node, c, slowly)
		}
	}
}

// conformRun is one run of a case.
type conformRun struct {
	r      *router
	node   *strictNode
	plan   *nodePlan
	c      *rawClient
	want   *caseOutcome
	other  *caseOutcome // allowed in its place
	trace  strings.Builder
	echoes []string     // bodies of echoes that the client got
	read   int          // answers
	closes bool         // the last of them said so
	failed bool         // no more can be read
	known  map[bool]int // requests that the client waited for: whole ones, and heads
	ended  bool         // the client sends no more
}

func runConformCase(t *testing.T, r *router, node *strictNode, c *conformCase, slowly bool) {
	p := c.plan
	p.slowly = slowly
	x := &conformRun{r: r, node: node, plan: &p, want: &c.want, known: map[bool]int{}}
	if slowly || !c.slowly {
		x.other = c.other
	}
	if len(p.replies) > 0 || p.hello != "" {
		node.hangUp()
		eventually(t, "the router to drop its idle connections", func() bool { return r.d.Totals().NodeIdle == 0 })
	}
	node.begin(&p)
	x.c = dialRaw(t, r)
	defer x.c.conn.Close()
	x.client(c, slowly)
	last, _ := node.last(&p)
	switch {
	case c.unasked != "":
		x.sendUnasked(last, c.unasked)
	case p.hello != "", slowly && x.want.node == "closed" && last != nil && !p.replies[0].early:
		waitFor(last.gone) // what comes behind an answer, and late, cannot be told from the next one
	}
	x.ending()
	_ = x.c.conn.Close()
	_, before := node.last(&p)
	x.goodClient(dialRaw(t, r))
	r.settled()
	x.lastConnection(before)
	x.requests()
	if got := oneSpaced(x.trace.String()); got != x.want.text {
		t.Errorf("testdata/conform/%s: %s (slowly: %v)\ngot:\n%s\nwant: %s", c.at, c.name, slowly, x.trace.String(), x.want.text)
	}
}

func (x *conformRun) note(format string, args ...any) {
	fmt.Fprintf(&x.trace, format, args...)
}

// client sends what the case says and reads the answers that it expects.
func (x *conformRun) client(c *conformCase, slowly bool) {
	for _, s := range c.steps {
		switch s.after {
		case "answered":
			x.answer()
		case "seen", "begun":
			x.seen(s.after)
		case "end":
			x.ended = true
			_ = x.c.conn.CloseWrite()
		}
		if slowly {
			writeSlowly(x.c.conn, s.send)
		} else if s.send != "" {
			_, _ = io.WriteString(x.c.conn, s.send) // the router may have closed: the answers show it
		}
	}
	for x.read < len(x.want.answers) && !x.failed {
		x.answer()
	}
}

// seen waits until the node has seen one request more, or the head of one.
func (x *conformRun) seen(what string) {
	x.known[what == "begun"]++
	eventually(x.r.t, "the node to see a request", func() bool {
		x.node.mu.Lock()
		defer x.node.mu.Unlock()
		return len(x.plan.saw) >= x.known[false] && len(x.plan.begun) >= x.known[true]
	})
}

// answer reads and notes the next answer.
func (x *conformRun) answer() {
	if x.failed {
		return
	}
	method := "GET"
	if x.read < len(x.want.answers) && x.want.answers[x.read] != "" {
		method = x.want.answers[x.read]
	}
	x.read++
	m, err := x.c.answer(method)
	x.failed = err != nil
	if m == nil {
		x.note("no answer (%v)\n", err)
		return
	}
	x.note("%d", m.status)
	if x.other != nil && x.read == 1 && strings.HasPrefix(x.other.text, fmt.Sprint(m.status)) {
		x.want = x.other
	}
	if method != "GET" {
		x.note(" to %s", method)
	}
	if err != nil && slices.ContainsFunc(x.plan.replies, func(r nodeReply) bool { return r.reset }) {
		m.body = "" // a reset may overtake any part of it
	}
	switch {
	case errors.As(err, new(strictFault)):
		x.note(" malformed, %v: %q\n", err, x.c.in)
		return
	case err != nil && len(m.values("X-Echo")) > 0:
		x.note(" echo, not whole\n")
	case len(m.values("X-Echo")) > 0:
		x.note(" echo\n")
		x.echoes = append(x.echoes, m.body)
		if id := m.values("X-Request-Id"); method != "HEAD" && (len(id) != 1 || !strings.HasPrefix(m.body, id[0]+" ")) {
			x.note("the answer %q has the id %q\n", m.body, id)
		}
	case m.status >= 400 && len(m.values("X-Routed-To")) == 0 && method != "HEAD":
		x.note(" %s\n", ownError(m))
	default:
		x.note(" %s%s\n", escapeText(m.reason), m.show(standingOfAnswers))
	}
	if x.closes && m.status >= 200 {
		x.note("an answer behind one that said close\n")
	}
	if m.status >= 200 {
		options, _ := m.options("Connection")
		x.closes = slices.Contains(options, "close")
	}
}

// ownError is the code of an error of the router's own, which has to have the
// form that clients rely on.
func ownError(m *strictMessage) string {
	var body struct {
		Error struct {
			Message, Type, Code string
			RequestID           string `json:"request_id"`
		}
	}
	id := m.values("X-Request-Id")
	if err := json.Unmarshal([]byte(m.body), &body); err != nil || len(id) != 1 || body.Error.RequestID != id[0] ||
		body.Error.Message == "" || body.Error.Type == "" || !slices.Equal(m.values("Content-Type"), []string{"application/json"}) {
		return fmt.Sprintf("malformed error %q %q", m.fields, m.body)
	}
	if m.status == 405 && len(m.values("Allow")) != 1 { // RFC 9110, section 15.5.6
		return "405 without Allow"
	}
	return body.Error.Code
}

// sendUnasked lets the node say something on the idle connection that the last
// request came on, which the router must close for it.
func (x *conformRun) sendUnasked(last *nodeConn, text string) {
	if last == nil {
		x.note("no request came to the node\n")
		return
	}
	x.node.write(last.conn, text, x.plan.slowly)
	if !waitFor(last.gone) {
		x.note("the node's connection is kept after bytes that nobody asked for\n")
	}
}

// ending notes how the client's connection is left.
func (x *conformRun) ending() {
	if x.want.end == "open" && !x.failed {
		if x.closes {
			x.note("said close\n")
		}
		x.note("open\n")
		x.goodClient(x.c)
		return
	}
	if x.want.end == "waits" && !x.failed {
		// What the router has read from this client it has dealt with when it
		// answers two others that came later.
		for range 2 {
			c := dialRaw(x.r.t, x.r)
			x.goodClient(c)
			_ = c.conn.Close()
		}
		x.c.lookAgain()
		if x.c.in != "" || x.c.ended != nil {
			x.note("%q %v\n", x.c.in, x.c.ended)
		}
		x.note("waits\n")
		return
	}
	rest, err := x.c.rest()
	if rest != "" && !x.failed {
		x.note("%q\n", rest)
	}
	switch {
	case err == nil && !x.failed && !x.closes && !x.ended && x.read > 0:
		x.note("closed, and had not said so\n")
	case err == nil:
		x.note("closed\n")
	case errors.Is(err, syscall.ECONNRESET):
		x.note("cut\n")
	default:
		x.note("%v\n", err)
	}
}

var goodClients atomic.Int64

// goodClient asks for something and wants its own answer.
func (x *conformRun) goodClient(c *rawClient) {
	target := fmt.Sprintf("%s%d", goodPath, goodClients.Add(1))
	if _, err := io.WriteString(c.conn, "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		x.note("a good request: %v\n", err)
		return
	}
	m, err := c.answer("GET")
	if err != nil || m.status != 200 || !strings.Contains(m.body, " GET "+target+" 0 ") ||
		!strings.HasPrefix(m.body, m.values("X-Request-Id")[0]+" ") {
		x.note("a good request for %s got %+v, %v\n", target, m, err)
	}
	if c != x.c {
		_ = c.conn.Close()
	}
}

// lastConnection looks what became of the connection that the last request of
// the case came on: the newest idle one is used first.
func (x *conformRun) lastConnection(before int) {
	last, good := x.node.last(x.plan)
	switch {
	case x.want.node == "":
	case last == nil:
		x.note("no request came to the node\n")
	case x.want.node == "kept" && good == before:
		x.note("node not kept\n")
	case x.want.node == "closed" && !waitFor(last.gone):
		x.note("node not closed\n")
	}
}

// requests notes what the node saw, and that the echoes are of just that.
func (x *conformRun) requests() {
	if parts := strings.Count(x.want.text, "part of "); parts > 0 {
		eventually(x.r.t, "the end of a request's part", func() bool {
			x.node.mu.Lock()
			defer x.node.mu.Unlock()
			return len(x.plan.partial) >= parts
		})
	}
	x.node.mu.Lock()
	saw, partial := x.plan.saw, x.plan.partial
	x.node.mu.Unlock()
	for _, m := range partial {
		x.note("part of %s %s\n", m.method, m.target)
	}
	for i, m := range saw {
		x.note("saw %s %s%s\n", m.method, m.target, m.show(standingOfRequests))
		if host := m.values("Host")[0]; host != x.node.node.address {
			x.note("Host is %q\n", host)
		}
		if source := m.values("X-Forwarded-For")[0]; source != "127.0.0.1" {
			x.note("X-Forwarded-For is %q\n", source)
		}
		if len(saw) == len(x.echoes) && x.echoes[i] != "" && x.echoes[i] != echoBody(m) {
			x.note("its client got %q\n", x.echoes[i])
		}
	}
	for _, s := range x.node.complaints() {
		x.note("%s\n", s)
	}
}

// rawClient reads answers with readAnswer.
type rawClient struct {
	conn  *net.TCPConn
	in    string
	ended error // why nothing more comes; io.EOF for a clean end
}

func dialRaw(t testing.TB, r *router) *rawClient {
	t.Helper()
	nc, err := net.Dial("tcp", r.d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(patience))
	return &rawClient{conn: nc.(*net.TCPConn)}
}

// checkRelayed looks at an answer as the router must send it.
func checkRelayed(m *strictMessage) error {
	for _, name := range []string{"Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade", "Proxy-Authenticate", "Content_Length", "Transfer_Encoding"} {
		if len(m.values(name)) > 0 {
			return strictFault("with " + name)
		}
	}
	framing := len(m.values("Content-Length")) + len(m.values("Transfer-Encoding"))
	connection := strings.Join(m.values("Connection"), ", ")
	switch {
	case framing > 1:
		return strictFault("more than one length")
	case framing > 0 && (m.status < 200 || m.status == 204): // RFC 9110, section 8.6; RFC 9112, section 6.1
		return strictFault("a length where there is none")
	case connection != "" && connection != "close" && connection != "keep-alive":
		return strictFault("with Connection: " + connection)
	case m.minor != 1:
		return strictFault("of another version")
	case m.status >= 200 && len(m.values("X-Request-Id")) != 1:
		return strictFault("not with one X-Request-Id")
	case m.status == 101:
		return strictFault("a switch of protocols")
	}
	return nil
}

func (c *rawClient) more() {
	var piece [16 << 10]byte
	n, err := c.conn.Read(piece[:])
	c.in += string(piece[:n])
	c.ended = err
}

// answer reads the next answer. It returns nil if nothing of one came, and what
// there is of it with an error if it is not whole or not good.
func (c *rawClient) answer(method string) (*strictMessage, error) {
	for {
		m, err := readAnswer(c.in, method, c.ended == io.EOF)
		switch {
		case err == nil:
			c.in = c.in[m.bytes:]
			return m, checkRelayed(m)
		case err != errMore:
			return m, err
		case c.ended != nil && m.headBytes == 0:
			return nil, c.ended
		case c.ended != nil:
			return m, c.ended
		}
		c.more()
	}
}

// rest reads to the end of the connection.
func (c *rawClient) rest() (string, error) {
	for c.ended == nil {
		c.more()
	}
	if c.ended == io.EOF {
		return c.in, nil
	}
	return c.in, c.ended
}

// lookAgain takes what has come, and does not wait for more.
func (c *rawClient) lookAgain() {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		c.ended = err
		return
	}
	var piece [16 << 10]byte
	for c.ended == nil {
		n := 0
		_ = raw.Control(func(fd uintptr) {
			n, _, err = unix.Recvfrom(int(fd), piece[:], unix.MSG_DONTWAIT)
		})
		switch {
		case n > 0:
			c.in += string(piece[:n])
		case errors.Is(err, unix.EAGAIN):
			return
		case err == nil:
			c.ended = io.EOF
		default:
			c.ended = err
		}
	}
}
