package dataplane_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"warmpath/dataplane"
	"warmpath/dataplane/wire"
)

// pipelines are requests that the mutations start from. Their bodies are no
// JSON, so that only their framing can be wrong.
var pipelines = []string{
	"POST /v1/a HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nhello world" +
		"GET /v1/b HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /v1/a HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n" +
		"GET /v1/b HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST /v1/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Type: text/plain\r\nHost: a\r\n\r\n" +
		"2;a=\"b;c\";d\r\n0\r\r\n1a\r\nGET /v1/x HTTP/1.1\r\nHost: \r\n00;e\r\nContent-Length: 5\r\nX: y\r\n\r\n" +
		"POST /v1/b HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc",
	"GET /v1/a HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 30\r\n\r\nGET /v1/x HTTP/1.1\r\nHost: a\r\n\r\n" +
		"GET /v1/b HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\n\r\n" +
		"GET /v1/c HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	"POST /v1/a HTTP/1.1\r\nHost: a\r\nConnection: x, Content-Length\r\nX: y\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" +
		"POST /v1/b HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n0\r\n0\r\n\r\n",
	"POST http://a/v1/a HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n" +
		"\r\nPOST /v1/b HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n0123456789",
}

// marks are what framing hangs on.
var marks = []string{
	"\r", "\n", "\r\n", "\r\n\r\n", " ", "\t", "\x00", ":", ",", ";", "=", "\"", "\\", "0", "1", "5", "a", "f", "x", "+", "-", "_", "\v", "\xff", "#", "\x7f",
	"Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length", "chunked", "0\r\n\r\n", ", chunked", "Connection: close\r\n", "Host: b\r\n",
	"\r\n ", "HTTP/1.0", "GET /v1/m HTTP/1.1\r\nHost: a\r\n\r\n",
}

// mutate makes one to three small changes.
func mutate(rng *rand.Rand, s string) string {
	for range 1 + rng.IntN(3) {
		at := rng.IntN(len(s))
		if rng.IntN(2) == 0 { // more often where framing is written
			if i := strings.IndexAny(s[at:], "\r\n:;,0123456789"); i >= 0 {
				at += i
			}
		}
		mark := marks[rng.IntN(len(marks))]
		if strings.HasSuffix(mark, "\r\n") && rng.IntN(4) > 0 { // a line among lines
			at = strings.LastIndexByte(s[:at], '\n') + 1
		}
		lineAt := strings.LastIndexByte(s[:at], '\n') + 1
		lineEnd := lineAt + strings.IndexByte(s[lineAt:]+"\n", '\n') + 1
		lineEnd = min(lineEnd, len(s))
		switch rng.IntN(8) {
		case 0, 1, 2:
			s = s[:at] + mark + s[at:]
		case 3:
			s = s[:at] + mark + s[at+1:]
		case 4:
			s = s[:at] + s[at+1:]
		case 5:
			s = s[:at] + s[at:at+1] + s[at:]
		case 6:
			s = s[:lineEnd] + s[lineAt:]
		case 7:
			s = s[:lineAt] + s[lineEnd:]
		}
		if s == "" {
			return mark
		}
	}
	return s
}

// pipeline is what bytes of a client hold, read strictly.
type pipeline struct {
	requests []*strictMessage
	err      error // behind them: nil if nothing is, errMore, or a fault
	closes   bool  // the last of them ends the connection
}

func readPipeline(b string) (p pipeline) {
	for {
		for range 4 { // RFC 9112, section 2.2, asks for one
			b = strings.TrimPrefix(b, "\r\n")
		}
		if b == "" || p.closes {
			return p
		}
		m, err := readRequest(b)
		if err != nil {
			p.err = err
			return p
		}
		p.requests = append(p.requests, m)
		p.closes = !m.persists
		b = b[m.bytes:]
	}
}

// agrees compares with what net/http reads from the same bytes.
func (p *pipeline) agrees(b string) error {
	r := bufio.NewReader(strings.NewReader(b))
	for i, m := range p.requests {
		for {
			if next, _ := r.Peek(2); string(next) != "\r\n" {
				break
			}
			_, _ = r.Discard(2)
		}
		req, err := http.ReadRequest(r)
		if err != nil {
			return fmt.Errorf("request %d: net/http: %w", i, err)
		}
		body, err := io.ReadAll(req.Body)
		if err != nil || req.Method != m.method || req.RequestURI != m.target || string(body) != m.body {
			return fmt.Errorf("request %d: net/http has %s %s %q, %w", i, req.Method, req.RequestURI, body, err)
		}
	}
	return nil
}

// stricter are the codes of what the router refuses though its framing is good.
var stricter = []string{
	"not_found", "bad_path", "bad_target", "bad_host", "method_not_allowed", "connect_refused", "too_many_empty_lines", "invalid_json", "bad_connection",
	"unknown_method",
}

// TestConformanceMutated sends mutated requests through the router. The node
// must get exactly the requests that a strict reading of the client's bytes
// gives, and that net/http reads too; where the router gets no further, its
// client must have an error and an ended connection.
func TestConformanceMutated(t *testing.T) {
	for name, window := range map[string]int64{"held": 0, "passed on": 4} {
		t.Run(name, func(t *testing.T) { runMutations(t, window) })
	}
}

// runMutations does so with bodies that are held until they are in, or passed on
// as they come when they are longer than the window.
func runMutations(t *testing.T, window int64) {
	count := 4000
	if raceEnabled {
		count = 1500
	}
	node := startStrictNode(t)
	node.chunks = window > 0
	r := start(t, setup{set: func(s *dataplane.Settings) { s.Head, s.RoutingWindowBytes = wire.Limits{}, window }}, node.node)
	rng := rand.New(rand.NewPCG(9112, 9110))
	served, parts, refused := 0, 0, map[string]int{}
	for i := range count {
		b := mutate(rng, pipelines[i%len(pipelines)])
		p := readPipeline(b)
		if err := p.agrees(b); err != nil {
			t.Errorf("%q: %v", b, err)
			continue
		}
		m := &mutation{r: r, node: node, plan: &nodePlan{}, refused: refused}
		if err := m.run(b, p, rng); err != nil {
			t.Errorf("%q (%d requests, then %v): %v", b, len(p.requests), p.err, err)
		}
		served += len(m.plan.saw)
		parts += len(m.plan.begun)
	}
	r.settled()
	t.Logf("%d pipelines: %d requests served, %d begun before they were in, refused: %v", count, served, parts, refused)
	if served < count/2 || len(refused) < 20 || window > 0 && parts < count/20 {
		t.Errorf("%d requests served, %d begun, %d kinds of errors: the mutations are too mild or too harsh", served, parts, len(refused))
	}
}

// mutation is one mutated pipeline on its way.
type mutation struct {
	r       *router
	node    *strictNode
	plan    *nodePlan
	c       *rawClient
	echoes  []string
	refused map[string]int // by code
}

func (m *mutation) run(b string, p pipeline, rng *rand.Rand) error {
	m.node.begin(m.plan)
	m.c = dialRaw(m.r.t, m.r)
	defer m.c.conn.Close()
	cut := rng.IntN(len(b) + 1)
	if at := strings.Index(b, "\r\n\r\n"); m.node.chunks && at >= 0 { // in or near the first body
		cut = min(at+4+rng.IntN(30), len(b))
	}
	_, _ = io.WriteString(m.c.conn, b[:cut])
	if m.node.chunks { // until the router has dealt with that part
		x := &conformRun{r: m.r, node: m.node, c: m.c}
		x.goodClient(dialRaw(m.r.t, m.r))
		if err := x.complaint(); err != nil {
			return err
		}
	}
	_, _ = io.WriteString(m.c.conn, b[cut:])
	ended, err := m.answers(p)
	if err == nil && !ended {
		err = m.behind(b, p)
	}
	if err != nil {
		return err
	}
	_ = m.c.conn.Close()
	m.r.settled()
	return m.compare(p)
}

// answers reads an answer to each request; ended says that the connection is.
func (m *mutation) answers(p pipeline) (ended bool, err error) {
	for range p.requests {
		a, err := m.final()
		if err != nil {
			return false, err
		}
		if len(a.values("X-Echo")) > 0 {
			m.echoes = append(m.echoes, a.body)
			continue
		}
		code := ownError(a)
		m.refused[code]++
		if !slices.Contains(stricter, code) {
			return false, fmt.Errorf("refused with %s what is good", code)
		}
		m.echoes = append(m.echoes, "")
		if !a.persists {
			return true, m.end()
		}
	}
	if p.closes {
		return true, m.end()
	}
	return false, nil
}

// final reads the next answer that is not interim.
func (m *mutation) final() (*strictMessage, error) {
	for {
		a, err := m.c.answer("GET")
		if err != nil {
			return nil, fmt.Errorf("no answer: %w", err)
		}
		if a.status >= 200 {
			return a, nil
		}
	}
}

func (m *mutation) end() error {
	if rest, err := m.c.rest(); rest != "" || err != nil {
		return fmt.Errorf("got %q, %w, want the end of the connection", rest, err)
	}
	return nil
}

// behind looks at what the router makes of the bytes behind the last request.
func (m *mutation) behind(b string, p pipeline) error {
	x := &conformRun{r: m.r, node: m.node, plan: m.plan, c: m.c}
	switch {
	case p.err == nil:
		if !strings.HasSuffix(b, "\r\n\r\n\r\n\r\n\r\n") { // no further empty lines are skipped
			x.goodClient(m.c)
		}
		return x.complaint()
	case errors.Is(p.err, errMore):
		x.goodClient(dialRaw(m.r.t, m.r))
		x.goodClient(dialRaw(m.r.t, m.r))
		m.c.lookAgain()
		if m.c.in == "" && m.c.ended == nil || strings.HasPrefix(m.c.in, "HTTP/1.1 100 ") && strings.Count(m.c.in, "HTTP/1.1") == 1 {
			return x.complaint()
		}
		if err := x.complaint(); err != nil {
			return err
		}
	}
	a, err := m.final()
	if err != nil {
		return err
	}
	if a.status < 400 || len(a.values("X-Echo")) > 0 {
		return fmt.Errorf("got %d %q for what is no request", a.status, a.body)
	}
	m.refused[ownError(a)]++
	return m.end()
}

// complaint is what a run has noted.
func (x *conformRun) complaint() error {
	if s := x.trace.String(); s != "" {
		return errors.New(s)
	}
	return nil
}

// compare looks whether the node saw what was echoed, and that it is what the
// client sent.
func (m *mutation) compare(p pipeline) error {
	m.node.mu.Lock()
	saw := m.plan.saw
	m.node.mu.Unlock()
	at := 0
	for i, echo := range m.echoes {
		if echo == "" {
			continue
		}
		if at == len(saw) {
			return fmt.Errorf("an echo of nothing: %q", echo)
		}
		got, want := saw[at], p.requests[i]
		at++
		target := want.target
		if !strings.HasPrefix(target, "/") && target != "*" {
			_, rest, _ := strings.Cut(target, "://")
			target = rest[strings.IndexByte(rest, '/'):]
		}
		if got.method != want.method || got.target != target || got.body != want.body || echo != echoBody(got) {
			return fmt.Errorf("request %d is %s %s %q at the node, %q for its client", i, got.method, got.target, got.body, echo)
		}
	}
	if at != len(saw) {
		return fmt.Errorf("the node saw %d requests, of which %d were answered", len(saw), at)
	}
	if faults := m.node.complaints(); len(faults) > 0 {
		return errors.New(strings.Join(faults, "; "))
	}
	return nil
}
