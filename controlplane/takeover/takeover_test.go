package takeover

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/state"
	"warmpath/dataplane"
	"warmpath/dataplane/prefix"
)

// log is what a process says, for tests.
type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// fakeRouter is a Giver, and a server that answers each connection with its name.
type fakeRouter struct {
	name    string
	sockets *Sockets
	server  *Server
	log     *log
	clients net.Listener

	mu    sync.Mutex
	calls []string
	hold  chan struct{} // Export waits for it, if set
	notes chan []byte
}

func (f *fakeRouter) called(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, what)
}

func (f *fakeRouter) said() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

func (f *fakeRouter) Begin() Offer {
	f.called("begin")
	return Offer{Seed: "the seed", Formers: []int{7, 8}, Nodes: []Node{{Spec: state.Spec{Name: "a", URL: "http://10.0.0.1:8000"}, Ready: true, Model: "m", UnitTokens: 16}, {Spec: state.Spec{Name: "b"}}}}
}

func (f *fakeRouter) Export(ctx context.Context, x Fetch, emit func(Kind, []byte) error) (Rank, error) {
	f.called(fmt.Sprintf("export %s/%d from %d", x.Node, x.Rank, x.First))
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
		}
	}
	if x.Node != "a" {
		return Rank{Why: "no such node"}, nil
	}
	for i := range 3 {
		if err := emit(Piece, bytes.Repeat([]byte{byte(i)}, 300_000)); err != nil {
			return Rank{}, err
		}
	}
	return Rank{Stream: &kvevent.Saved{Next: 7, Live: true}}, emit(Tails, []byte("tails"))
}

func (f *fakeRouter) Keep()  { f.called("keep") }
func (f *fakeRouter) Leave() { f.called("leave") }

func (f *fakeRouter) Notes(ctx context.Context, emit func([]byte) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case frames := <-f.notes:
			if err := emit(frames); err != nil {
				return err
			}
		}
	}
}

// start begins to accept and to wait for a successor at path.
func (f *fakeRouter) start(t *testing.T, path string) {
	t.Helper()
	f.log, f.notes = &log{}, make(chan []byte, 10)
	var err error
	if f.clients, err = f.sockets.Listen(t.Context(), "listen", "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	own, err := f.sockets.ListenPath(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := f.clients.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(c, f.name)
			_ = c.Close()
		}
	}()
	f.server = Serve(own, f.sockets, f, "test "+f.name, slog.New(slog.NewTextHandler(f.log, nil)))
	t.Cleanup(func() { f.server.Stop(); _ = f.clients.Close() })
}

func startRouter(t *testing.T, path string) *fakeRouter {
	t.Helper()
	f := &fakeRouter{name: "old", sockets: NewSockets()}
	f.start(t, path)
	return f
}

// ask returns who answers.
func ask(t *testing.T, address net.Addr) string {
	t.Helper()
	c, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Error(err)
		return ""
	}
	defer c.Close()
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(line)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for limit := time.Now().Add(10 * time.Second); !ok(); <-look.C {
		if time.Now().After(limit) {
			t.Fatalf("never: %s", what)
		}
	}
}

func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "s")
}

// clients are reached by this socket in all tests.
var clients = SocketName{"listen", "tcp", "127.0.0.1:0"}

func connectTo(t *testing.T, path string) *Heir {
	t.Helper()
	h, err := Connect(t.Context(), path, "test", clients)
	if err != nil || h == nil {
		t.Fatal(h, err)
	}
	return h
}

// TestTakeover goes through all of it, twice: clients that come all the while
// are answered.
func TestTakeover(t *testing.T) {
	path := socketPath(t)
	old := startRouter(t, path)
	address := old.clients.Addr()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				ask(t, address)
			}
		}
	}()
	for _, name := range []string{"new", "newer"} {
		h := connectTo(t, path)
		if h.PID != os.Getpid() || h.Program != "test "+old.name || h.HandedOver != 2 || h.Offer.Seed != "the seed" || len(h.Offer.Nodes) != 2 || !slices.Equal(h.Offer.Formers, []int{7, 8}) || h.Offer.Nodes[0].Spec.Name != "a" {
			t.Errorf("%+v", h)
		}
		next := &fakeRouter{name: name, sockets: h.Sockets}
		next.start(t, path)
		if got := ask(t, address); got != old.name {
			t.Errorf("before it is ready %q answers", got)
		}
		length := 0
		end, err := h.Fetch(Fetch{Node: "a", Rank: 1, First: 9}, func(_ Kind, body []byte) { length += len(body) })
		if err != nil || length != 900_005 || end.Stream == nil || *end.Stream != (kvevent.Saved{Next: 7, Live: true}) {
			t.Errorf("%d bytes, %+v, %v", length, end, err)
		}
		if end, err := h.Fetch(Fetch{Node: "x"}, nil); err != nil || end.Why != "no such node" {
			t.Errorf("%+v, %v", end, err)
		}
		if left := h.Sockets.CloseUnasked(); len(left) != 0 {
			t.Errorf("nobody has asked for %v", left)
		}
		h.Sockets.Open()
		if err := h.Ready(); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if got := ask(t, address); got != name {
				t.Errorf("after it was ready %q answers", got)
			}
		}
		if s := <-old.server.Done(); s.PID != os.Getpid() {
			t.Errorf("%+v", s)
		}
		if want := []string{"begin", "export a/1 from 9", "export x/0 from 0", "leave"}; !slices.Equal(old.said(), want) {
			t.Errorf("called: %q", old.said())
		}
		followed(t, old, h)
		old = next
	}
	close(stop)
	<-stopped
}

// followed checks that notes come until the old process ends.
func followed(t *testing.T, old *fakeRouter, h *Heir) {
	t.Helper()
	want := Note{Fetch: 1, Kind: dataplane.NoteExpected, AheadNs: -5, Chain: []prefix.Hash{1, 1 << 63}, IDs: []uint32{3}}
	frames, ok := AppendNote(nil, &want)
	if !ok {
		t.Fatal("too long")
	}
	old.notes <- append(frames, frames...)
	got := make(chan Note, 10)
	ended := make(chan error)
	go func() { ended <- h.Follow(func(n Note) error { got <- n; return nil }) }()
	for range 2 {
		if n := <-got; !reflect.DeepEqual(n, want) {
			t.Errorf("%+v", n)
		}
	}
	if !old.server.Stop() {
		t.Error("it does not know that somebody has taken over")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	h.Close()
	_ = old.clients.Close()
}

// TestNobodyThere: no file, a file on which nobody listens, a file that is none.
func TestNobodyThere(t *testing.T) {
	path := socketPath(t)
	for range 2 {
		if h, err := Connect(t.Context(), path, "test", clients); h != nil || err != nil {
			t.Fatal(h, err)
		}
		startRouter(t, path).server.Stop() // it leaves its socket, and takes the place of another
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
	file := socketPath(t)
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if h, err := Connect(t.Context(), file, "test"); h != nil || err != nil {
		t.Error(h, err)
	}
	if _, err := NewSockets().ListenPath(t.Context(), file); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("%v", err)
	}
	if text, _ := os.ReadFile(file); string(text) != "mine" {
		t.Error("somebody's file was replaced")
	}
}

// TestSecond: one at a time, and both are told.
func TestSecond(t *testing.T) {
	path := socketPath(t)
	old := startRouter(t, path)
	first := connectTo(t, path)
	if _, err := Connect(t.Context(), path, "test", clients); err == nil || !strings.Contains(err.Error(), "is taking over already; wait until it has, or end it") {
		t.Errorf("a second one: %v", err)
	}
	first.Close()
	eventually(t, "the first one has given up", func() bool { return slices.Contains(old.said(), "keep") })
	eventually(t, "another may try", func() bool {
		h, err := Connect(t.Context(), path, "test", clients)
		if err == nil {
			h.Close()
		}
		return err == nil
	})
	if got := ask(t, old.clients.Addr()); got != "old" {
		t.Errorf("%q answers", got)
	}
	if !strings.Contains(old.log.String(), "did not take over; this one goes on") || !strings.Contains(old.log.String(), "was refused") {
		t.Errorf("log: %s", old.log)
	}
}

// TestGivesUpAnywhere ends the new one after each frame that it receives: the old
// one goes on, and hands over to the next that comes.
func TestGivesUpAnywhere(t *testing.T) {
	path := socketPath(t)
	old := startRouter(t, path)
	for frames := range 12 {
		h := rawHeir(t, path)
		_ = h.sendValue(Hello, hello{Version, "test", 1, []SocketName{clients}})
		for range min(frames, 5) { // Welcome, two sockets, two nodes
			if _, _, err := h.receive(); err != nil {
				t.Fatal(err)
			}
		}
		if frames > 5 {
			_ = h.sendValue(FetchRank, Fetch{Node: "a"})
			for range frames - 6 { // four of contents, one that ends them
				if _, _, err := h.receive(); err != nil {
					t.Fatal(err)
				}
			}
		}
		kept := count(old.said(), "keep")
		h.close()
		eventually(t, "it goes on", func() bool { return count(old.said(), "keep") == kept+1 })
		eventually(t, "and answers", func() bool { return ask(t, old.clients.Addr()) == "old" })
	}
	if count(old.said(), "leave") > 0 {
		t.Error("it has left")
	}
	connectTo(t, path).Close()
}

// TestReadyAndGone: the new one ends after it has said that it is ready, and before
// the old one, which is slow, has read that. The old one goes on.
func TestReadyAndGone(t *testing.T) {
	old := &fakeRouter{name: "old", sockets: NewSockets(), hold: make(chan struct{})}
	path := socketPath(t)
	old.start(t, path)
	h := rawHeir(t, path)
	_ = h.sendValue(Hello, hello{Version, "test", 1, []SocketName{clients}})
	_ = h.sendValue(FetchRank, Fetch{Node: "x"})
	_ = h.send(Ready, nil)
	_ = h.unix.CloseWrite() // as its end does, but for what is sent to it
	close(old.hold)
	eventually(t, "it goes on", func() bool { return count(old.said(), "keep") == 1 })
	if count(old.said(), "leave") > 0 || ask(t, old.clients.Addr()) != "old" {
		t.Error("it has left")
	}
	h.close()
	connectTo(t, path).Close()
}

func rawHeir(t *testing.T, path string) *conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := newConn(c.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func count(list []string, what string) (n int) {
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

// TestOldRefuses: what comes is not what it should be.
func TestOldRefuses(t *testing.T) {
	path := socketPath(t)
	old := startRouter(t, path)
	for name, c := range map[string]struct {
		send func(*conn)
		want string
	}{
		"another version": {func(c *conn) { _ = c.sendValue(Hello, map[string]any{"version": 99, "more": true}) }, "speaks version 99 of the protocol, the running router version 1"},
		"another place": {func(c *conn) {
			_ = c.sendValue(Hello, hello{Version, "test", 1, []SocketName{{"listen", "tcp", "127.0.0.1:1"}}})
		}, "it will listen elsewhere, so it is another router"},
		"another frame": {func(c *conn) { _ = c.send(Ready, nil) }, "no known kind"},
		"no JSON":       {func(c *conn) { _ = c.send(Hello, []byte("{")) }, "read *takeover.hello"},
		"noise":         {func(c *conn) { _ = c.write(bytes.Repeat([]byte{200}, 100)) }, "no known kind"},
	} {
		h := rawHeir(t, path)
		c.send(h)
		kind, body, err := h.receive()
		if kind != Refusal || !strings.Contains(string(body), c.want) {
			t.Errorf("%s: %d %q %v", name, kind, body, err)
		}
		h.close()
	}
	for _, send := range []func(*conn){
		func(c *conn) { _ = c.send(FetchRank, []byte(`{"node":"a","color":1}`)) },
		func(c *conn) { _ = c.send(FetchRank, []byte(`{"node":"a"}{}`)) },
		func(c *conn) { _ = c.send(Notes, nil) },
	} {
		kept := count(old.said(), "keep")
		h := rawHeir(t, path)
		_ = h.sendValue(Hello, hello{Version, "test", 1, []SocketName{clients}})
		send(h)
		eventually(t, "it goes on", func() bool { return count(old.said(), "keep") > kept })
		h.close()
	}
	if got := ask(t, old.clients.Addr()); got != "old" {
		t.Errorf("%q answers", got)
	}
}

// fakeOld is the other side of an Heir, frame by frame.
func fakeOld(t *testing.T, frames func(c *conn)) (path string) {
	t.Helper()
	path = socketPath(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n, err := newConn(c.(*net.UnixConn))
			if err != nil {
				return
			}
			_, _, _ = n.receive()
			frames(n)
			n.close()
		}
	}()
	return path
}

// TestHeirRefuses: what comes is not what it should be, and the old process
// lives.
func TestHeirRefuses(t *testing.T) {
	welcomed := func(sockets, nodes int) welcome {
		return welcome{Version, "test", os.Getpid(), "", sockets, nodes, nil}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	socket := listener.(*net.TCPListener)
	name := SocketName{"listen", "tcp", "x"}
	for want, frames := range map[string]func(c *conn){
		"it refuses (process 7): why": func(c *conn) { _ = c.sendValue(Refusal, refusal{1, 7, "why"}) },
		"speaks version 2":            func(c *conn) { _ = c.sendValue(Welcome, welcome{Version: 2}) },
		"no known kind":               func(c *conn) { _ = c.send(Yours, nil) },
		"announces -1 sockets":        func(c *conn) { _ = c.sendValue(Welcome, welcomed(-1, 0)) },
		"announces 0 sockets":         func(c *conn) { _ = c.sendValue(Welcome, welcomed(0, 1<<20)) },
		"names 2 processes before it": func(c *conn) {
			_ = c.sendValue(Welcome, welcome{Version, "test", os.Getpid(), "", 0, 0, []int{7, 0}})
		},
		"no descriptor came": func(c *conn) {
			_ = c.sendValue(Welcome, welcomed(1, 0))
			_ = c.sendValue(SocketPassed, name)
		},
		"no listening socket": func(c *conn) {
			_ = c.sendValue(Welcome, welcomed(1, 0))
			_ = c.sendSocket(name, c.unix)
		},
		"came twice": func(c *conn) {
			_ = c.sendValue(Welcome, welcomed(2, 0))
			_ = c.sendSocket(name, socket)
			_ = c.sendSocket(name, socket)
		},
		"it has ended the connection, and goes on": func(c *conn) { _ = c.sendValue(Welcome, welcomed(1, 0)) },
		"checksum": func(c *conn) {
			b := AppendFrame(nil, Welcome, []byte("{}"))
			b[len(b)-1]++
			_ = c.write(b)
		},
	} {
		if _, err := Connect(t.Context(), fakeOld(t, frames), "test"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if err := checkPeer(uint32(os.Geteuid())+1, os.Geteuid()); !errors.Is(err, errStranger) {
		t.Errorf("a stranger: %v", err)
	}
	if err := errors.Join(checkPeer(0, 1000), checkPeer(1000, 1000)); err != nil {
		t.Error(err)
	}
}

// TestWelcomeOfOthers: an earlier program names no processes before it, a later one says
// more than is known here.
func TestWelcomeOfOthers(t *testing.T) {
	for more, want := range map[string][]int{"": nil, `,"formers":[5],"color":"red"`: {5}} {
		h, err := Connect(t.Context(), fakeOld(t, func(c *conn) {
			_ = c.send(Welcome, fmt.Appendf(nil, `{"version":%d,"program":"test","pid":%d,"seed":"s","sockets":0,"nodes":0%s}`, Version, os.Getpid(), more))
			_, _, _ = c.receive()
		}), "test")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(h.Offer.Formers, want) {
			t.Errorf("%q: %v, want %v", more, h.Offer.Formers, want)
		}
		h.Close()
	}
}

// TestSocketsOfTheSame: a process that is not taken over from by name keeps
// nothing open.
func TestSocketsOfTheSame(t *testing.T) {
	path := socketPath(t)
	startRouter(t, path)
	h := connectTo(t, path)
	defer h.Close()
	if _, err := h.Sockets.Listen(t.Context(), "listen", "tcp", "no address"); err == nil || !strings.Contains(err.Error(), `listen on listen "no address"`) || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("%v", err)
	}
	other, err := h.Sockets.Listen(t.Context(), "admin.listen", "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if left := h.Sockets.CloseUnasked(); !slices.Equal(left, []string{"listen", "takeover"}) {
		t.Errorf("%v", left)
	}
	accepted := make(chan error)
	go func() { _, err := other.Accept(); accepted <- err }()
	_ = other.Close()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	if err := other.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed again: %v", err)
	}
}
