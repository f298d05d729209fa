package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What slow peers may cost the router, in KiB of resident memory.
const (
	slowClientKiB  = 4 << 10  // a client that reads a megabyte a second of a gigabyte
	slowNodeKiB    = 4 << 10  // a node that stops in the middle of a gigabyte's upload
	idleClientsKiB = 57 << 10 // 9,600 idle connections, the whole process: 60 MiB at 10,000
	stuckStreams   = 2000
	stuckKiB       = 64 << 10 // their readers stopped, a megabyte of each is sent
	stuckUnsentKiB = 192      // … and of each lies in the kernel, on average
)

// bulkNode is an engine with a few routes that move bytes as fast as they are
// taken.
type bulkNode struct {
	url      string
	uploaded atomic.Int64
	stop     chan struct{} // reading uploads goes on when it is closed
}

func startBulkNode(t *testing.T) *bulkNode {
	n := &bulkNode{stop: make(chan struct{})}
	piece := []byte("data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 900) + "\"}}]}\n\n")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"sim","object":"model","max_model_len":100000}]}`)
	})
	mux.HandleFunc("GET /v1/files/{bytes}", func(w http.ResponseWriter, r *http.Request) {
		left, _ := strconv.ParseInt(r.PathValue("bytes"), 10, 64)
		w.Header().Set("Content-Length", fmt.Sprint(left))
		block := make([]byte, 256<<10)
		for left > 0 {
			k, err := w.Write(block[:min(left, int64(len(block)))])
			if err != nil {
				return
			}
			left -= int64(k)
		}
	})
	mux.HandleFunc("POST /v1/files", func(w http.ResponseWriter, r *http.Request) {
		block := make([]byte, 64<<10)
		for held := false; ; {
			k, err := r.Body.Read(block)
			if n.uploaded.Add(int64(k)) > 64<<20 && !held {
				<-n.stop
				held = true
			}
			if err != nil {
				break
			}
		}
		_, _ = io.WriteString(w, "{}")
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range (1 << 20) / len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	})
	// Thousands of its answers stand still on the router's own host: its share of the
	// kernel's memory for TCP must not be what other connections are short of.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, 32<<10) }), err)
	}}
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	n.url = "http://" + ln.Addr().String()
	return n
}

// memory reads a line of the router's /proc/PID/status, in KiB.
func (r *serving) memory(t *testing.T, line string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.pid()))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(l, line+":"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatalf("no %s in %s", line, status)
	return 0
}

// kernelBytes returns how many bytes the router's kernel holds, all together: unsent
// ones for its clients, and unread ones of a node (tx_queue and rx_queue of
// /proc/net/tcp, Documentation/networking/proc_net_tcp.rst).
func (r *serving) kernelBytes(t *testing.T, node string) (unsent, unread int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	port := func(url string) string {
		return fmt.Sprintf(":%04X", netip.MustParseAddrPort(strings.TrimPrefix(url, "http://")).Port())
	}
	own, peer := port(r.url), port(node)
	for l := range strings.Lines(string(table)) {
		f := strings.Fields(l)
		var tx, rx int
		_, _ = fmt.Sscanf(f[4], "%X:%X", &tx, &rx)
		switch {
		case strings.HasSuffix(f[1], own):
			unsent += tx
		case strings.HasSuffix(f[2], peer):
			unread += rx
		}
	}
	return unsent, unread
}

// growth returns how much more the router holds at most until ok than it does
// now, in KiB.
func (r *serving) growth(t *testing.T, what string, ok func() bool) int {
	t.Helper()
	before, most := r.memory(t, "VmRSS"), 0
	eventually(t, 2*time.Minute, what, func() bool {
		most = max(most, r.memory(t, "VmRSS"))
		return ok()
	})
	return most - before
}

const bulkSettings = `listen: 127.0.0.1:0
limits: {connections: 9700, body_bytes: 2GiB}
log: {format: json}
`

func TestMemoryOfSlowPeers(t *testing.T) {
	need(t, !*raceBuild, "a build without the race detector, which keeps memory of its own")
	n := startBulkNode(t)
	r := serve(t, bulkSettings, nodeList(n.url))
	r.try(t, chatPath, chatBody("warm?", "")) // what every request needs is there

	t.Run("client", func(t *testing.T) {
		c := r.dial(t)
		defer c.Close()
		fmt.Fprintf(c, "GET /v1/files/%d HTTP/1.1\r\nHost: x\r\n\r\n", 1<<30)
		got, block := 0, make([]byte, 100<<10)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		grown := r.growth(t, "five seconds of a slow reader", func() bool {
			<-tick.C
			k, err := io.ReadFull(c, block)
			if err != nil {
				t.Fatal(err)
			}
			got += k
			return got >= 5_000_000
		})
		unsent, unread := r.kernelBytes(t, n.url)
		t.Logf("a client that took %d bytes of a gigabyte at a megabyte a second: %d KiB more; in the kernel, %d KiB for it and %d of its node", got, grown, unsent>>10, unread>>10)
		if grown > slowClientKiB {
			t.Errorf("%d KiB more, want at most %d", grown, slowClientKiB)
		}
	})
	t.Run("node", func(t *testing.T) {
		c := r.dial(t)
		defer c.Close()
		sent := make(chan error, 1)
		go func() {
			fmt.Fprintf(c, "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", 1<<30)
			block := make([]byte, 256<<10)
			for left := 1 << 30; left > 0; left -= len(block) {
				if _, err := c.Write(block); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		stuck := time.Now()
		last := int64(-1)
		grown := r.growth(t, "the upload to stand still", func() bool {
			if now := n.uploaded.Load(); now != last || now <= 64<<20 {
				last, stuck = now, time.Now()
			}
			return time.Since(stuck) > time.Second
		})
		close(n.stop)
		grown = max(grown, r.growth(t, "the upload's end", func() bool { return n.uploaded.Load() == 1<<30 }))
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("got %v, %v", resp, err)
		}
		t.Logf("an upload of a gigabyte to a node that stops for a while: %d KiB more", grown)
		if grown > slowNodeKiB {
			t.Errorf("%d KiB more, want at most %d", grown, slowNodeKiB)
		}
	})
}

func TestMemoryOfStuckStreams(t *testing.T) {
	need(t, !*raceBuild, "a build without the race detector, which keeps memory of its own")
	n := startBulkNode(t)
	r := serve(t, bulkSettings, nodeList(n.url))
	r.try(t, chatPath, chatBody("warm?", ""))
	body := `{"model":"sim","stream":true,"messages":[{"role":"user","content":"hello"}]}`
	for range stuckStreams {
		c := r.dial(t)
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	paused := func() int { return int(r.metric(t, "backpressure_paused")) }
	last, since := -1, time.Now()
	grown := r.growth(t, "all streams to stand still", func() bool {
		if now := paused(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
	unsent, unread := r.kernelBytes(t, n.url)
	unsent, unread = unsent>>10/stuckStreams, unread>>10/stuckStreams
	t.Logf("%d streams that nobody reads, %d of them paused: %d KiB more, %d in all; in the kernel, of each, %d KiB for its client and %d of its node", stuckStreams, last, grown, r.memory(t, "VmRSS"), unsent, unread)
	if last < stuckStreams {
		t.Errorf("%d were paused, want all %d", last, stuckStreams)
	}
	if grown > stuckKiB {
		t.Errorf("%d KiB more, want at most %d", grown, stuckKiB)
	}
	if unsent > stuckUnsentKiB {
		t.Errorf("%d KiB of each stream lie in the kernel, want at most %d", unsent, stuckUnsentKiB)
	}
}

func TestMemoryOfIdleConnections(t *testing.T) {
	need(t, !*raceBuild, "a build without the race detector, which keeps memory of its own")
	const idle = 9600 // a hard limit of 20,000 descriptors allows no more
	n := startBulkNode(t)
	r := serve(t, bulkSettings, nodeList(n.url))
	buffer := make([]byte, 4096)
	for range idle {
		c := r.dial(t)
		_, _ = io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := c.Read(buffer); err != nil {
			t.Fatal(err)
		}
	}
	if kib := r.memory(t, "VmRSS"); kib > idleClientsKiB {
		t.Errorf("%d KiB with %d idle connections, want at most %d", kib, idle, idleClientsKiB)
	} else {
		t.Logf("%d KiB with %d idle connections", kib, idle)
	}
}
