package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
)

var testOptions = Options{Type: Sub, MaxMessageBytes: 1 << 20, HandshakeTimeout: 5 * time.Second}

// library makes a socket of another implementation.
func library(t *testing.T, kind func(context.Context, ...zmq4.Option) zmq4.Socket) zmq4.Socket {
	t.Helper()
	s := kind(context.Background(), zmq4.WithLogger(log.New(io.Discard, "", 0)), zmq4.WithDialerRetry(10*time.Millisecond))
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	timeout := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-ticks.C:
		case <-timeout:
			t.Fatalf("waited too long for: %s", what)
		}
	}
}

func recv(t *testing.T, c *Conn) []string {
	t.Helper()
	frames, err := c.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range frames {
		out = append(out, string(f))
	}
	return out
}

func TestSubscribeByDialling(t *testing.T) {
	pub := library(t, zmq4.NewPub)
	if err := pub.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), "tcp://"+pub.Addr().String(), testOptions)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Subscribe("kv@"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "subscription", func() bool { return len(pub.(zmq4.Topics).Topics()) > 0 })
	big := strings.Repeat("x", 300_000)
	for _, m := range [][]string{{"other", "1", "2"}, {"kv@a", "1", ""}, {"kv@b", strings.Repeat("y", 255), strings.Repeat("z", 256)}, {"kv@c", big, big}} {
		if err := pub.SendMulti(zmq4.NewMsgFromString(m)); err != nil {
			t.Fatal(err)
		}
		if m[0] == "other" {
			continue
		}
		if got := recv(t, c); strings.Join(got, "|") != strings.Join(m, "|") {
			t.Errorf("got %.60q, want %.60q", got, m)
		}
	}
	_ = pub.Close()
	if _, err := c.Recv(); err == nil {
		t.Error("the publisher went and nothing was said")
	}
}

func TestSubscribeByListening(t *testing.T) {
	for _, endpoint := range []string{"tcp://127.0.0.1:0", "ipc://" + filepath.Join(t.TempDir(), "s")} {
		l, err := Listen(t.Context(), endpoint, testOptions)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if strings.HasPrefix(endpoint, "tcp") {
			endpoint = "tcp://" + l.Addr().String()
		}
		mute, err := net.Dial(l.Addr().Network(), l.Addr().String()) // holds up nobody
		if err != nil {
			t.Fatal(err)
		}
		defer mute.Close()
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b"} {
			pub := library(t, zmq4.NewPub)
			dialled := make(chan error, 1)
			go func() { dialled <- pub.Dial(endpoint) }()
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := errors.Join(c.Handshake(), <-dialled, c.Subscribe("")); err != nil {
				t.Fatal(err)
			}
			eventually(t, "subscription", func() bool { return len(pub.(zmq4.Topics).Topics()) > 0 })
			if err := pub.SendMulti(zmq4.NewMsgFromString([]string{name, "1", "2"})); err != nil {
				t.Fatal(err)
			}
			if got := recv(t, c); got[0] != name || c.RemoteAddr() == "" {
				t.Errorf("got %q from %q", got, c.RemoteAddr())
			}
		}
	}
}

func TestDealer(t *testing.T) {
	router := library(t, zmq4.NewRouter)
	if err := router.Listen("tcp://127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	o := testOptions
	o.Type = Dealer
	c, err := Dial(t.Context(), "tcp://"+router.Addr().String(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Send(nil, []byte("from 5")); err != nil {
		t.Fatal(err)
	}
	msg, err := router.Recv()
	if err != nil || len(msg.Frames) != 3 || string(msg.Frames[2]) != "from 5" {
		t.Fatalf("%q: %v", msg.Frames, err)
	}
	for _, answer := range []string{"one", "two"} {
		if err := router.SendMulti(zmq4.NewMsgFrom(msg.Frames[0], nil, []byte(answer))); err != nil {
			t.Fatal(err)
		}
		if got := recv(t, c); len(got) != 2 || got[0] != "" || got[1] != answer {
			t.Errorf("got %q", got)
		}
	}
}

// A unix socket that nobody listens on any more is no obstacle; one that
// somebody listens on is.
func TestListenOnAbandonedSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	old, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := Listen(t.Context(), "ipc://"+path, testOptions); err == nil {
		_ = l.Close()
		t.Error("took a socket from somebody")
	}
	old.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = old.Close()
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(t.Context(), "ipc://"+path, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// raw is a peer of which every byte is chosen by the test.
func raw(t *testing.T, o Options) (c *Conn, peer net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return newConn(ours, o), theirs
}

// greet is what a well-behaved peer of some type sends.
func greet(kind string) []byte {
	return appendFrame(greeting(), flagCommand, appendProperty([]byte("\x05READY"), "SOCKET-TYPE", kind))
}

// plays lets a peer send bytes and read whatever comes.
func plays(peer net.Conn, b []byte) {
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	go func() { _, _ = peer.Write(b); _ = peer.(*net.TCPConn).CloseWrite() }()
}

func TestHandshakeRefuses(t *testing.T) {
	with := func(at int, b string) []byte {
		g := greet("PUB")
		copy(g[at:], b)
		return g
	}
	command := func(body string) []byte { return appendFrame(greeting(), flagCommand, []byte(body)) }
	for _, c := range []struct {
		sent []byte
		says string
	}{
		{nil, "no ZMTP greeting"},
		{[]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), "no ZeroMQ socket"},
		{with(10, "\x01"), "ZMTP 1"},
		{with(12, "CURVE"), `"CURVE"`},
		{greeting(), "no READY"},
		{appendFrame(greeting(), 0, []byte("x")), "before READY"},
		{command(""), "without a name"},
		{command("\x09READY"), "without a name"},
		{command("\x05ERROR\x03bad"), `refused the connection: "bad"`},
		{command("\x04PING\x00\x00"), "instead of READY"},
		{command("\x05READY"), "has no socket-type"},
		{command("\x05READY\x0bSocket-Type\x00\x00\x00"), "cut short"},
		{command("\x05READY\x0bSocket-Type\xff\xff\xff\xff"), "cut short"},
		{greet("ROUTER"), "endpoint swapped"},
		{append(greeting(), 0x86, 0), "flags 0x86"},
		{append(greeting(), 6, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF), "a message may have"},
	} {
		conn, peer := raw(t, testOptions)
		plays(peer, c.sent)
		if err := conn.Handshake(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("sent %.70q: %v, want %q", c.sent, err, c.says)
		}
	}
}

// A peer that says nothing is given up after the time-out, and at once when
// the context ends.
func TestMutePeers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := testOptions
	o.HandshakeTimeout = 20 * time.Millisecond
	if _, err := Dial(t.Context(), "tcp://"+l.Addr().String(), o); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("mute: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := Dial(ctx, "tcp://"+l.Addr().String(), testOptions)
		ended <- err
	}()
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a dial that was cancelled succeeded")
	}
}

func TestRecvBounds(t *testing.T) {
	long := func(size uint64) []byte { return binary.BigEndian.AppendUint64([]byte{2}, size) }
	for _, c := range []struct {
		name string
		sent []byte
		says string // "" if it has to be received
	}{
		{"a message of the most bytes", append(long(1<<20), make([]byte, 1<<20)...), ""},
		{"one more", append(long(1<<20+1), make([]byte, 1<<20+1)...), "a message may have"},
		{"in two frames", append(append([]byte{1, 1, 'x'}, long(1<<20)...), make([]byte, 1<<20)...), "a message may have"},
		{"a length without an end", long(1<<63 - 1), "a message may have"},
		{"a negative length", long(1<<64 - 1), "a message may have"},
		{"a length that is not kept", append(long(1<<19), 'x'), "unexpected EOF"},
		{"half a header", []byte{2, 0}, "unexpected EOF"},
		{"the most frames", append(bytes.Repeat([]byte{1, 0}, MaxFrames-1), 0, 0), ""},
		{"one more frame", append(bytes.Repeat([]byte{1, 0}, MaxFrames), 0, 0), "more than 16 frames"},
		{"an unknown flag", []byte{8, 0}, "flags 0x8"},
		{"a command of several frames", []byte{5, 0}, "flags 0x5"},
		{"a command without a name", []byte{4, 0}, "without a name"},
		{"an error", []byte("\x04\x09\x05ERROR\x02no"), `"no"`},
		{"a ping cut short", []byte("\x04\x06\x04PING\x00"), "time to live"},
		{"commands in a message", []byte("\x01\x01a\x04\x05\x04HI!!\x04\x09\x04PING\x00\x0aab\x00\x01b"), ""},
		{"nothing", nil, "EOF"},
	} {
		conn, peer := raw(t, testOptions)
		plays(peer, append(greet("PUB"), c.sent...))
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		frames, err := conn.Recv()
		if c.says == "" && (err != nil || len(frames) == 0) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %d frames, %v, want %q", c.name, len(frames), err, c.says)
		}
	}
}

// A PING gets its context back.
func TestPong(t *testing.T) {
	conn, peer := raw(t, testOptions)
	ours := appendFrame(greeting(), flagCommand, appendProperty([]byte("\x05READY"), "Socket-Type", "SUB"))
	if _, err := peer.Write(greet("XPUB")); err != nil {
		t.Fatal(err)
	}
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(ours))
	if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, ours) {
		t.Fatalf("greeted with %q: %v", got, err)
	}
	if _, err := peer.Write([]byte("\x04\x0b\x04PING\x00\x05abcd\x00\x01x")); err != nil {
		t.Fatal(err)
	}
	if frames := recv(t, conn); len(frames) != 1 || frames[0] != "x" {
		t.Errorf("got %q", frames)
	}
	pong := make([]byte, 11)
	if _, err := io.ReadFull(peer, pong); err != nil || string(pong) != "\x04\x09\x04PONGabcd" {
		t.Errorf("%q: %v", pong, err)
	}
}

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		rank     int
		want     string // "" is an error
	}{
		{"tcp://10.0.0.1:5557", 0, "tcp://10.0.0.1:5557"},
		{"tcp://10.0.0.1:5557", 3, "tcp://10.0.0.1:5560"},
		{"tcp://*:5557", 1, "tcp://*:5558"},
		{"tcp://[::1]:5557", 1, "tcp://[::1]:5558"},
		{"tcp://a:0", 1, "tcp://a:0"},
		{"tcp://a:65534", 1, "tcp://a:65535"},
		{"tcp://a:65535", 1, ""},
		{"tcp://a:5557", -1, ""},
		{"ipc:///run/e", 0, "ipc:///run/e"},
		{"ipc:///run/e", 1, ""},
		{"inproc://x", 1, ""},
		{"a:5557", 1, ""},
		{"tcp://a", 1, ""},
		{"tcp://a:65536", 1, ""},
		{"", 1, ""},
	} {
		got, err := ForRank(c.endpoint, c.rank)
		if got != c.want || (err == nil) != (c.want != "" || c.endpoint == "") {
			t.Errorf("%q rank %d: %q, %v, want %q", c.endpoint, c.rank, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "tcp://", "tcp://a", "tcp://a:x", "tcp://a:70000", "ipc://", "udp://a:1", "inproc://x"} {
		if CheckEndpoint(bad) == nil {
			t.Errorf("%q is no endpoint", bad)
		}
		if _, err := Dial(t.Context(), bad, testOptions); err == nil {
			t.Errorf("%q was dialled", bad)
		}
		if _, err := Listen(t.Context(), bad, testOptions); err == nil {
			t.Errorf("%q was bound", bad)
		}
	}
	for endpoint, want := range map[string]bool{"tcp://*:1": true, "tcp://0.0.0.0:1": true, "tcp://[::]:1": true, "tcp://a:1": false, "ipc://*": false, "x": false} {
		if IsWildcard(endpoint) != want {
			t.Errorf("IsWildcard(%q) is not %v", endpoint, want)
		}
	}
}

// Receiving allocates nothing once warm.
func TestRecvAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	message := append(append([]byte{1, 3, 'k', 'v', '@', 1, 8}, make([]byte, 8)...), appendFrame(nil, 0, make([]byte, 400))...)
	conn := newConn(nil, testOptions)
	conn.reader.Reset(&repeat{message: message})
	if n := testing.AllocsPerRun(1000, func() {
		if frames, err := conn.Recv(); err != nil || len(frames) != 3 {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("receiving allocates %v times", n)
	}
}

// repeat gives the same bytes for ever.
type repeat struct {
	message []byte
	at      int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.message[r.at:])
	r.at = (r.at + n) % len(r.message)
	return n, nil
}

// FuzzRecv feeds a greeted connection with anything.
func FuzzRecv(f *testing.F) {
	f.Add([]byte("\x01\x01a\x04\x09\x04PING\x00\x0aab\x00\x01b"))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x01\x00"))
	f.Add([]byte("\x06\x7f\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte{4, 9, 5, 'E', 'R', 'R', 'O', 'R', 255, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		o := testOptions
		o.MaxMessageBytes = 1000
		ours, theirs := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		defer ours.Close()
		defer theirs.Close()
		conn := newConn(ours, o)
		conn.reader.Reset(bytes.NewReader(b))
		for {
			frames, err := conn.Recv()
			if err != nil {
				break
			}
			size := 0
			for _, frame := range frames {
				size += len(frame)
			}
			if len(frames) > MaxFrames || size > o.MaxMessageBytes {
				t.Fatalf("%d frames of %d bytes", len(frames), size)
			}
		}
		if _, err := property(b, "socket-type"); err == nil && len(b) < 15 {
			t.Fatalf("found a property in %q", b)
		}
	})
}
