package dataplane_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/prefix"
	"warmpath/dataplane/wire"
)

const patience = 8 * time.Second // how long a test waits for what must come

// eventually waits until ok, which is asked again and again.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// node is an engine that follows a script on raw connections.
type node struct {
	t       testing.TB
	name    string
	ln      net.Listener
	address string
	script  func(*conn)

	mu       sync.Mutex
	seen     []*seenRequest
	conns    []*conn
	accepted atomic.Int64
}

// seenRequest is a request as net/http reads it, and its raw head.
type seenRequest struct {
	*http.Request
	body string
}

// conn is one connection at a node.
type conn struct {
	*net.TCPConn
	node *node
	r    *bufio.Reader
	n    int // connections before it
}

// refusing returns an address where nobody listens as long as the test runs: the port is
// taken, so that no other test's node gets it meanwhile.
func refusing(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
}

// startNode runs script on every connection; with none it is never reachable.
func startNode(t testing.TB, name string, script func(*conn)) *node {
	t.Helper()
	if script == nil {
		return &node{t: t, name: name, address: refusing(t)}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, name: name, ln: ln, address: ln.Addr().String(), script: script}
	t.Cleanup(func() {
		_ = ln.Close()
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, c := range n.conns {
			_ = c.Close()
		}
	})
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			c := &conn{TCPConn: nc.(*net.TCPConn), node: n, r: bufio.NewReaderSize(nc, 64<<10), n: int(n.accepted.Add(1)) - 1}
			n.mu.Lock()
			n.conns = append(n.conns, c)
			n.mu.Unlock()
			go func() {
				defer c.Close()
				script(c)
			}()
		}
	}()
	return n
}

// request reads one whole request; false when the router has closed.
func (c *conn) request() (*seenRequest, bool) {
	r, err := http.ReadRequest(c.r)
	if err != nil {
		return nil, false
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, false
	}
	s := &seenRequest{r, string(body)}
	c.node.mu.Lock()
	c.node.seen = append(c.node.seen, s)
	c.node.mu.Unlock()
	return s, true
}

func (c *conn) send(parts ...string) {
	for _, p := range parts {
		if _, err := io.WriteString(c, p); err != nil {
			return
		}
	}
}

// reset ends the connection with RST.
func (c *conn) reset() {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// gone waits until the router has closed the connection.
func (c *conn) gone() bool {
	_ = c.SetReadDeadline(time.Now().Add(patience))
	_, err := io.Copy(io.Discard, c.r)
	return !isTimeout(err)
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func (n *node) requests() []*seenRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*seenRequest(nil), n.seen...)
}

// answers is a script that answers every request with text.
func answers(text string) func(*conn) {
	return func(c *conn) {
		for {
			if _, ok := c.request(); !ok {
				return
			}
			c.send(text)
		}
	}
}

func ok(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

const streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"

func chunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

func event(text string) string { return "data: {\"t\":\"" + text + "\"}\n\n" }

// router is a data plane before some nodes.
type router struct {
	t      testing.TB
	d      *dataplane.Dataplane
	holder *fleet.Holder
	index  *index.Index
	nodes  []*fleet.Node
	set    dataplane.Settings
}

type setup struct {
	set      func(*dataplane.Settings)
	node     func(slot int, n *fleet.Node)
	loops    int
	deaf     bool // no indexer takes the notes
	noModels bool // there is no snapshot yet
	alone    bool // not beside other tests
	narrow   bool // the kernel takes little of an answer that its client does not read
}

// defaults are generous: tests shorten what they test.
func defaults(t testing.TB) dataplane.Settings {
	rule, err := policy.New("cost", nil)
	if err != nil {
		t.Fatal(err)
	}
	return dataplane.Settings{
		Policy: rule, Head: wire.Limits{HeadBytes: 8 << 10, Fields: 50}, BodyBytes: 8 << 20, RetryBodyBytes: 4 << 20,
		Connections: 1000, ConnectNs: int64(2e9), HeadNs: int64(20e9), FirstEventNs: int64(20e9), IdleStreamNs: int64(20e9),
		RequestNs: int64(60e9), IdleClientNs: int64(20e9), IdleNodeNs: int64(20e9), IdentifyNs: int64(20e9), Retries: 2, RetryBudget: 0.2, HoldHead: true,
	}
}

// start runs a router before the nodes. Unless told otherwise policy cost sees
// a longer round trip to each next node, so that they are tried in order.
func start(t testing.TB, s setup, nodes ...*node) *router {
	t.Helper()
	if test, ok := t.(*testing.T); ok && !s.alone {
		test.Parallel()
	}
	r := &router{t: t, holder: fleet.NewHolder(), index: index.New(index.Options{MemoryBytes: index.MinMemoryBytes}), set: defaults(t)}
	if s.set != nil {
		s.set(&r.set)
	}
	for slot, n := range nodes {
		f := &fleet.Node{
			Slot: slot, Generation: 1, Name: n.name, URL: "http://" + n.address, Address: n.address, Host: n.address, State: fleet.Ready,
			CapacityClass: 1, Weight: 1, RoundTripSeconds: fleet.Gauge{Value: float64(slot) * 100, Known: true}, Load: &fleet.Load{},
		}
		if s.node != nil {
			s.node(slot, f)
		}
		r.nodes = append(r.nodes, f)
	}
	if !s.noModels {
		r.publish(r.nodes...)
	}
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false) // as the control plane opens it: what a listener has set MPTCP's connections do not inherit
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if s.narrow { // its connections inherit it
		err := withFD(ln.(*net.TCPListener), func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<10) })
		if err != nil {
			t.Fatal(err)
		}
	}
	r.d, err = dataplane.Start(dataplane.Options{
		Listener: ln.(*net.TCPListener), Loops: max(s.loops, 1), Fleet: r.holder, Index: r.index, Settings: &r.set, Decisions: 1000,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.d.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	if !s.deaf {
		r.listen()
	}
	return r
}

// listen applies the loops' notes to the index until the end of the test.
func (r *router) listen() {
	rings, bell := r.d.Notes()
	writer := r.index.Writer()
	stop, done := make(chan struct{}), make(chan struct{})
	r.t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		var scratch []prefix.Hash
		takeAll := func() (any bool) {
			for _, ring := range rings {
				for took := true; took; any = any || took {
					scratch, took = ring.Take(scratch, func(n dataplane.Note) { apply(writer, n) })
				}
			}
			return any
		}
		for {
			rung := bell.Sleep()
			if !takeAll() {
				select {
				case <-stop:
					return
				case <-rung:
				}
			}
			bell.Wake()
		}
	}()
}

func apply(w *index.Writer, n dataplane.Note) {
	switch n.Kind {
	case dataplane.NoteExpected:
		w.Speculate(n.Slot, n.Chain, n.AtNs)
	case dataplane.NoteBegun:
		w.Settle(n.Slot, n.Chain, n.AtNs)
	case dataplane.NoteLearnedText:
		w.LearnText(n.Slot, n.Chain, n.AtNs)
	default:
		w.Learn(n.Slot, n.Chain, n.AtNs)
	}
}

// publish makes a snapshot of two models, m (which every node serves) and
// other (which the last one serves too).
func (r *router) publish(nodes ...*fleet.Node) {
	s := &fleet.Snapshot{Version: r.holder.Load().Version + 1, Seed: 1, Default: 0, Asked: true, Nodes: nodes}
	m, other := fleet.Model{Name: "m", Aliases: []string{"alias"}, UnitTokens: 16}, fleet.Model{Name: "other", UnitTokens: 16}
	for slot, n := range nodes {
		if n != nil {
			m.Slots, other.Slots = append(m.Slots, slot), []int{slot}
		}
	}
	s.Models = []fleet.Model{m, other}
	r.holder.Store(s.Seal())
}

// settled waits until nothing is under way and every counter is back at zero.
func (r *router) settled() {
	r.t.Helper()
	eventually(r.t, "all counters at zero", func() bool {
		if r.d.Active() != 0 || r.d.Retrying() != 0 {
			return false
		}
		for _, n := range r.nodes {
			if n.Load.Requests.Load() != 0 || n.Load.PrefillTokens.Load() != 0 || n.Load.TotalTokens.Load() != 0 {
				return false
			}
		}
		slow, draining, _ := r.d.Leftovers()
		return slow == 0 && draining == 0
	})
	r.unhealed()
}

// unhealed expects that no counter had to be corrected: none was wrong.
func (r *router) unhealed() {
	r.t.Helper()
	for _, n := range slices.Concat(r.holder.Load().Nodes, r.nodes) {
		if n != nil && n.Load.Healed.Load() != 0 {
			r.t.Errorf("%s: counts of what is in flight were corrected %d times", n.Name, n.Load.Healed.Load())
		}
	}
}

// record waits for the ended record of a request.
func (r *router) record(id string) (rec dataplane.Record) {
	r.t.Helper()
	eventually(r.t, "a record of "+id, func() bool {
		var ok bool
		rec, ok = r.d.RecordOf(id)
		return ok && rec.Ended
	})
	return rec
}

// tries shows a record's tries as "a:reset b:ok".
func tries(rec dataplane.Record) string {
	var s []string
	for _, t := range rec.Tries {
		s = append(s, t.Node+":"+t.Class.String())
	}
	return strings.Join(s, " ")
}

// client is a raw client.
type client struct {
	*net.TCPConn
	t testing.TB
	r *bufio.Reader
}

func (r *router) dial() *client {
	r.t.Helper()
	nc, err := net.Dial("tcp", r.d.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(3 * patience))
	return &client{nc.(*net.TCPConn), r.t, bufio.NewReader(nc)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatalf("client: %v", err)
	}
}

// answer is what a client got; err is why its body is not whole.
type answer struct {
	*http.Response
	body string
	err  error
}

// answer reads one answer to a request of that method.
func (c *client) answer(method string) answer {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("client: no answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	return answer{resp, string(body), err}
}

// stream returns the body of the next answer to be read piece by piece.
func (c *client) stream(t *testing.T) io.Reader {
	t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Body
}

// ended expects a clean end of the connection and nothing before it.
func (c *client) ended() {
	c.t.Helper()
	if b, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
		c.t.Errorf("client: got byte %q, error %v; want the end of the connection", b, err)
	}
}

// alive expects that another request is served.
func (c *client) alive() {
	c.t.Helper()
	c.send("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
	if a := c.answer("GET"); a.StatusCode != 200 || !strings.Contains(a.body, `"m"`) {
		c.t.Errorf("client: the next request got %d %q", a.StatusCode, a.body)
	}
}

// post makes a request with a body for model m, with that id.
func post(id, body string, fields ...string) string {
	return fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		id, strings.Join(fields, ""), len(body), body)
}

const chatBody = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

const streamed = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}`
