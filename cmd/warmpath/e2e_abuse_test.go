package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// abuse is one way to send what is no request.
type abuse struct {
	name   string
	sends  string
	slowly string // then one byte of it each tick, over and over
	status int    // 0 = closed without an answer
	code   string // error.code in the answer
	within time.Duration
}

const postHead = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

var abuses = []abuse{
	{name: "nothing at all", within: 5 * time.Second},
	{name: "slow head", sends: "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-A: ", slowly: "a", status: 408, code: "request_timeout", within: 5 * time.Second},
	{name: "slow body", sends: postHead + "Content-Length: 1000\r\n\r\n{\"model\":\"", slowly: "a", status: 408, code: "request_timeout", within: 5 * time.Second},
	{name: "body that stops", sends: postHead + "Content-Length: 1000\r\n\r\n{\"model\":\"", status: 408, code: "request_timeout", within: 5 * time.Second},
	{name: "slow chunks", sends: postHead + "Transfer-Encoding: chunked\r\n\r\n", slowly: "1\r\n \r\n", status: 408, code: "request_timeout", within: 5 * time.Second},
	{name: "oversize head", sends: "GET /health HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 20<<10) + "\r\n\r\n", status: 431, within: time.Second},
	{name: "too many fields", sends: "GET /health HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-A: a\r\n", 200) + "\r\n", status: 431, within: time.Second},
	{name: "oversize body, announced", sends: postHead + "Content-Length: 99999999\r\n\r\n", status: 413, code: "body_too_large", within: time.Second},
	{name: "oversize body, chunked", sends: postHead + "Transfer-Encoding: chunked\r\n\r\n20000\r\n" + strings.Repeat(" ", 0x20000) + "\r\n", status: 413, code: "body_too_large", within: time.Second},
	{name: "length and coding", sends: postHead + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: 400, within: time.Second},
	{name: "two lengths", sends: postHead + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", status: 400, within: time.Second},
	{name: "bad chunk", sends: postHead + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", status: 400, within: time.Second},
	{name: "unknown coding", sends: postHead + "Transfer-Encoding: gzip, chunked\r\n\r\n", status: 501, within: time.Second},
	{name: "space before the colon", sends: "GET /health HTTP/1.1\r\nHost : x\r\n\r\n", status: 400, within: time.Second},
	{name: "no host", sends: "GET /health HTTP/1.1\r\n\r\n", status: 400, within: time.Second},
	{name: "two hosts", sends: "GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", status: 400, within: time.Second},
	{name: "TLS", sends: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 60), status: 400, within: time.Second},
	{name: "duplicate model", sends: postHead + "Content-Length: 29\r\nConnection: close\r\n\r\n" + `{"model":"sim","model":"sim"}`, status: 400, within: time.Second},
}

// abuseSettings are limits that tests reach quickly.
const abuseSettings = `listen: 127.0.0.1:0
limits: {connections: 1000, head_bytes: 16KiB, body_bytes: 64KiB}
timeouts: {head: 1s}
log: {format: json}
`

func abused(t *testing.T) *serving {
	sim := startEngines(t, 1, "--time-scale", "0.1")
	return serve(t, abuseSettings, nodeList(sim.urls...))
}

func TestAbuse(t *testing.T) {
	t.Parallel()
	r := abused(t)
	var wait sync.WaitGroup
	for _, a := range abuses {
		c := r.dial(t)
		wait.Go(func() {
			if err := a.run(c); err != nil {
				t.Errorf("%s: %v", a.name, err)
			}
		})
	}
	wait.Wait()
	if a := r.ask(t, chatBody("Well?", "")); a.node() != "sim-0" {
		t.Errorf("went to %s", a.node())
	}
	r.settled(t)
}

// run sends the abuse on c and reads until the router closes it.
func (a *abuse) run(c net.Conn) error {
	defer c.Close()
	over := make(chan struct{})
	defer close(over)
	if _, err := io.WriteString(c, a.sends); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if a.slowly != "" {
		go dribble(c, a.slowly, over)
	}
	// Time-outs of the router are a second; its grace for reading on is two.
	_ = c.SetReadDeadline(time.Now().Add(a.within + 8*time.Second))
	from := time.Now()
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, nil)
	if a.status == 0 {
		if err == nil || isTimeout(err) {
			return fmt.Errorf("want a closed connection, got %v, %w", resp, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("want %d: %w", a.status, err)
	}
	defer resp.Body.Close()
	took := time.Since(from)
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("read answer: %w", err)
	case resp.StatusCode != a.status || !strings.Contains(string(body), a.code) || !strings.Contains(string(body), `"error"`):
		return fmt.Errorf("answered %d %s; want %d %s", resp.StatusCode, body, a.status, a.code)
	case !resp.Close:
		return errors.New("the answer does not say Connection: close")
	case took > a.within+4*time.Second: // the machine may be busy
		return fmt.Errorf("answered after %v, want %v", took, a.within)
	}
	if _, err := in.ReadByte(); err == nil || isTimeout(err) {
		return fmt.Errorf("the connection is open after the answer: %w", err)
	}
	return nil
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// dribble sends one byte a tick until it is over or the peer has enough.
func dribble(c net.Conn, text string, over <-chan struct{}) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-over:
			return
		case <-tick.C:
		}
		if _, err := c.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
	}
}

// TestAbuseLeavesNoMemory holds 500 bad connections at once, again and again:
// once the buffers are there the process grows no more.
func TestAbuseLeavesNoMemory(t *testing.T) {
	t.Parallel()
	r := abused(t)
	wave := func() {
		var wait sync.WaitGroup
		var mu sync.Mutex
		failed := 0
		for i := range 500 {
			a := abuses[i%len(abuses)]
			wait.Go(func() {
				c, err := net.DialTimeout("tcp", strings.TrimPrefix(r.url, "http://"), 10*time.Second)
				if err == nil {
					err = a.run(c)
				}
				if err == nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if failed++; failed < 5 {
					t.Errorf("%s: %v", a.name, err)
				}
			})
		}
		wait.Wait()
		r.settled(t)
	}
	wave()
	wave()
	before := r.measure(t)
	wave()
	after := r.measure(t)
	// gnet's workers, one for each connection that came at the same time, end
	// after ten idle seconds.
	eventually(t, 25*time.Second, "the loops' workers to end", func() bool {
		after = r.measure(t)
		return after.goroutines <= before.goroutines+100
	})
	t.Logf("after 1000 connections %+v, after 1500 %+v", before, after)
	// Idle exchanges keep their body buffers and the loops their workers, up to
	// a bound: some growth is left, but not one of anything for each connection.
	if after.heap > before.heap+4<<20 || after.goroutines > before.goroutines+100 || after.files > before.files+20 ||
		after.residentKiB > before.residentKiB+16<<10 && !*raceBuild { // the detector keeps memory of its own
		t.Errorf("the router grew from %+v to %+v", before, after)
	}
	if err := syscall.Kill(r.pid(), 0); err != nil {
		t.Errorf("the router: %v", err)
	}
}

// footprint is what a process holds.
type footprint struct {
	residentKiB int
	heap        int // bytes alive after a garbage collection
	goroutines  int
	files       int
}

var (
	heapLine      = regexp.MustCompile(`# HeapAlloc = ([0-9]+)`)
	goroutineLine = regexp.MustCompile(`goroutine profile: total ([0-9]+)`)
	residentLine  = regexp.MustCompile(`VmRSS:\s+([0-9]+) kB`)
)

func (r *serving) measure(t *testing.T) footprint {
	t.Helper()
	number := func(line *regexp.Regexp, text string) int {
		t.Helper()
		m := line.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %v in %s", line, tail(text))
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	_, heap := r.adminDo(t, http.MethodGet, "/debug/pprof/heap?gc=1&debug=1", "")
	_, goroutines := r.adminDo(t, http.MethodGet, "/debug/pprof/goroutine?debug=1", "")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.pid()))
	if err != nil {
		t.Fatal(err)
	}
	return footprint{
		number(residentLine, string(status)), number(heapLine, heap), number(goroutineLine, goroutines), int(openFiles(t, r)),
	}
}
