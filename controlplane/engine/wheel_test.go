package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// rawEngine answers each request for metrics as a test wants, on the bare connection.
type rawEngine struct {
	url string

	mu    sync.Mutex
	conns int
	paths []string
}

func startRaw(t *testing.T, answer func(conn net.Conn, path string, nth int)) *rawEngine {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	e := &rawEngine{url: "http://" + ln.Addr().String()}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go e.serve(conn, answer)
		}
	}()
	return e
}

func (e *rawEngine) serve(conn net.Conn, answer func(net.Conn, string, int)) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for first := true; ; {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if !strings.HasPrefix(req.URL.Path, "/metrics") {
			_, _ = io.WriteString(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		e.mu.Lock()
		if first {
			e.conns++
		}
		first = false
		e.paths = append(e.paths, req.URL.RequestURI())
		nth := len(e.paths)
		e.mu.Unlock()
		answer(conn, req.URL.RequestURI(), nth)
	}
}

func (e *rawEngine) asked() (paths []string, conns int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.paths...), e.conns
}

// poll has a Poller ask a node every 20 ms until enough events for metrics came.
func poll(t *testing.T, url string, timeout time.Duration, enough int) []Event {
	t.Helper()
	got := make(chan Event, 256)
	prober := NewProber()
	prober.MetricsTimeout = timeout
	p := NewPoller(prober, PollerConfig{MetricsEvery: 20 * time.Millisecond, Deliver: func(e Event) {
		if e.Kind == MetricsEvent {
			select {
			case got <- e:
			default:
			}
		}
	}})
	defer p.Stop()
	if err := p.Set([]Target{{Name: "a", Key: "a/1", URL: url}}); err != nil {
		t.Fatal(err)
	}
	var all []Event
	for deadline := time.After(20 * time.Second); len(all) < enough; {
		select {
		case e := <-got:
			all = append(all, e)
		case <-deadline:
			t.Fatalf("%d events of %d", len(all), enough)
		}
	}
	return all
}

func write(conn net.Conn, pieces ...string) {
	for i, piece := range pieces {
		if i > 0 {
			<-time.After(3 * time.Millisecond) // so that it is read in several turns
		}
		_, _ = io.WriteString(conn, piece)
	}
}

// However an answer is framed and cut, the reading is the same, and connections are
// used again where they may be.
func TestWheelFraming(t *testing.T) {
	ok := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	half := len(vllmText) / 2
	for name, c := range map[string]struct {
		answer func(net.Conn)
		keeps  bool
	}{
		"length": {func(c net.Conn) { write(c, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", ok, len(vllmText), vllmText)) }, true},
		"cut": {func(c net.Conn) {
			write(c, "HTTP/1.1 200 ", fmt.Sprintf("OK\r\nContent-Length: %d\r\n", len(vllmText)), "\r\n"+vllmText[:half], vllmText[half:])
		}, true},
		"chunks": {func(c net.Conn) {
			write(c, ok+"Transfer-Encoding: chunked\r\n\r\n", fmt.Sprintf("%x\r\n%s\r\n%x", half, vllmText[:half], len(vllmText)-half), "\r\n"+vllmText[half:]+"\r\n0\r\n", "\r\n")
		}, true},
		"interim": {func(c net.Conn) {
			write(c, fmt.Sprintf("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n%sContent-Length: %d\r\n\r\n%s", ok, len(vllmText), vllmText))
		}, true},
		"to close": {func(c net.Conn) { write(c, ok+"\r\n"+vllmText[:half], vllmText[half:]); _ = c.Close() }, false},
		"closes": {func(c net.Conn) {
			write(c, fmt.Sprintf("%sConnection: close\r\nContent-Length: %d\r\n\r\n%s", ok, len(vllmText), vllmText))
			_ = c.Close()
		}, false},
		"says too much": {func(c net.Conn) {
			write(c, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK", ok, len(vllmText), vllmText))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := startRaw(t, func(conn net.Conn, _ string, _ int) { c.answer(conn) })
			for _, ev := range poll(t, e.url, 5*time.Second, 5) {
				if ev.Err != nil || ev.Sample.Running.Value != 2 || ev.Sample.Queued.Value != 1 || ev.Key != "a/1" || ev.Sample.AtNs == 0 || ev.TookSeconds <= 0 {
					t.Fatalf("%+v", ev)
				}
			}
			if _, conns := e.asked(); c.keeps != (conns == 1) {
				t.Errorf("%d connections", conns)
			}
		})
	}
}

// A missing answer is an error and never a sample, and says why.
func TestWheelFaults(t *testing.T) {
	ok := "HTTP/1.1 200 OK\r\n"
	for name, c := range map[string]struct {
		answer func(net.Conn)
		want   error
		says   string
	}{
		"silent":     {func(net.Conn) {}, os.ErrDeadlineExceeded, "timeout"},
		"half":       {func(c net.Conn) { write(c, ok+"Content-Length: 1000\r\n\r\nvllm:num") }, os.ErrDeadlineExceeded, "timeout"},
		"cut off":    {func(c net.Conn) { write(c, ok+"Content-Length: 1000\r\n\r\nvllm:num"); _ = c.Close() }, io.EOF, "within the answer"},
		"no answer":  {func(c net.Conn) { _ = c.Close() }, io.EOF, "within the answer"},
		"no HTTP":    {func(c net.Conn) { write(c, "SSH-2.0-x\r\n") }, nil, "wire"},
		"bad chunks": {func(c net.Conn) { write(c, ok+"Transfer-Encoding: chunked\r\n\r\nzz\r\n") }, nil, "wire"},
		"error":      {func(c net.Conn) { write(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy") }, nil, "503"},
		"no text":    {func(c net.Conn) { write(c, ok+"Content-Length: 2\r\n\r\nhi") }, ErrNoMetrics, "no metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			e := startRaw(t, func(conn net.Conn, _ string, _ int) { c.answer(conn) })
			for _, ev := range poll(t, e.url, 60*time.Millisecond, 2) {
				if ev.Err == nil || ev.Sample != (Sample{}) || c.want != nil && !errors.Is(ev.Err, c.want) || !strings.Contains(ev.Err.Error(), c.says) || !strings.Contains(ev.Err.Error(), e.url+"/metrics") {
					t.Fatalf("%+v", ev)
				}
			}
		})
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + ln.Addr().String()
	ln.Close()
	if ev := poll(t, closed, time.Second, 1)[0]; ev.Err == nil || !strings.Contains(ev.Err.Error(), "refused") {
		t.Errorf("%+v", ev)
	}
}

// asked asks until there is an answer: who asks in the moment in which the last one is
// delivered still meets that question.
func asked(t *testing.T, ask func(), got <-chan Event) Event {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for end := time.After(20 * time.Second); ; {
		ask()
		select {
		case e := <-got:
			return e
		case <-again.C:
		case <-end:
			t.Fatal("no answer")
		}
	}
}

// Health is asked on a new connection each time and for as long as it may take, however
// seldom metrics are.
func TestWheelHealth(t *testing.T) {
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	for name, c := range map[string]struct {
		answer func(net.Conn)
		want   error
		says   string
	}{
		"well":    {func(c net.Conn) { write(c, ok) }, nil, ""},
		"slow":    {func(c net.Conn) { write(c, ok[:20], ok[20:]) }, nil, ""},
		"dead":    {func(c net.Conn) { write(c, "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\ndead") }, nil, "503"},
		"unknown": {func(c net.Conn) { write(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") }, nil, "404"},
		"hangs":   {func(net.Conn) {}, os.ErrDeadlineExceeded, "timeout"},
		"ends":    {func(c net.Conn) { _ = c.Close() }, io.EOF, "within the answer"},
	} {
		t.Run(name, func(t *testing.T) {
			e := startRaw(t, func(conn net.Conn, path string, _ int) {
				if path == "/metrics/health" {
					c.answer(conn)
				}
			})
			got := make(chan Event, 16)
			p := NewPoller(NewProber(), PollerConfig{MetricsEvery: time.Hour, Deliver: func(ev Event) {
				if ev.Kind == HealthEvent {
					got <- ev
				}
			}})
			defer p.Stop()
			if err := p.Set([]Target{{Name: "a", Key: "a/1", URL: e.url, HealthPath: "/metrics/health"}}); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				ev := asked(t, func() { p.AskHealth("a", 300*time.Millisecond) }, got)
				if (ev.Err == nil) != (c.says == "") || c.want != nil && !errors.Is(ev.Err, c.want) || errors.Is(ev.Err, ErrNoMetrics) || ev.Key != "a/1" || ev.TookSeconds <= 0 {
					t.Fatalf("%+v", ev)
				}
				if ev.Err != nil && (!strings.Contains(ev.Err.Error(), c.says) || !strings.Contains(ev.Err.Error(), e.url+"/metrics/health")) {
					t.Error(ev.Err)
				}
			}
			if paths, conns := e.asked(); len(paths) < 3 || conns != len(paths) {
				t.Errorf("asked %d times on %d connections", len(paths), conns)
			}
		})
	}
}

// Models are asked for at once, now and then, and when they are wanted, on a new
// connection each time.
func TestWheelModels(t *testing.T) {
	var mu sync.Mutex
	answer := "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
	say := func(with string) {
		mu.Lock()
		defer mu.Unlock()
		answer = with
	}
	e := startRaw(t, func(conn net.Conn, path string, _ int) {
		mu.Lock()
		defer mu.Unlock()
		if path == "/metrics/v1/models" {
			write(conn, answer)
		}
	})
	for _, c := range []struct {
		every time.Duration
		ask   bool
	}{{20 * time.Millisecond, false}, {time.Hour, true}} {
		got := make(chan Event) // each is waited for
		ctx, cancel := context.WithCancel(t.Context())
		p := NewPoller(NewProber(), PollerConfig{MetricsEvery: time.Hour, ModelsEvery: c.every, Deliver: func(ev Event) {
			if ev.Kind == ModelsEvent {
				select {
				case got <- ev:
				case <-ctx.Done():
				}
			}
		}})
		if err := p.Set([]Target{{Name: "a", Key: "a/1", URL: e.url + "/metrics"}}); err != nil {
			t.Fatal(err)
		}
		ask := func() {
			if c.ask {
				p.AskModels("a")
			}
		}
		until := func(what string, ok func(Event) bool) {
			t.Helper()
			for range 10 { // what was asked for before comes first
				if ev := asked(t, ask, got); ok(ev) && ev.Key == "a/1" && ev.TookSeconds > 0 {
					return
				}
			}
			t.Errorf("every %v: never %s", c.every, what)
		}
		until("the error", func(ev Event) bool {
			return ev.Err != nil && strings.Contains(ev.Err.Error(), "ask models") && strings.Contains(ev.Err.Error(), "500")
		})
		list := `{"data":[{"id":"m","owned_by":"me"}]}`
		say(fmt.Sprintf("HTTP/1.1 200 OK\r\nServer: llama.cpp\r\nContent-Length: %d\r\n\r\n%s", len(list), list))
		until("the list", func(ev Event) bool {
			return ev.Err == nil && ev.Models.Engine == LlamaCPP && len(ev.Models.Models) == 1 && ev.Models.Models[0].ID == "m"
		})
		say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
		until("a list that is none", func(ev Event) bool { return ev.Err != nil && strings.Contains(ev.Err.Error(), "no key") })
		say("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
		cancel()
		p.Stop()
	}
	if paths, conns := e.asked(); conns != len(paths) {
		t.Errorf("asked %d times on %d connections", len(paths), conns)
	}
}

// An engine that closes idle connections is no fault: it is asked again on a new one.
func TestWheelStaleConnection(t *testing.T) {
	e := startRaw(t, func(conn net.Conn, _ string, _ int) {
		write(conn, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(vllmText), vllmText))
		_ = conn.Close()
	})
	for _, ev := range poll(t, e.url, 5*time.Second, 5) {
		if ev.Err != nil {
			t.Fatal(ev.Err)
		}
	}
}

// One that hangs delays no other.
func TestWheelHang(t *testing.T) {
	hung := startRaw(t, func(net.Conn, string, int) {})
	well := startRaw(t, func(conn net.Conn, _ string, _ int) {
		write(conn, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(vllmText), vllmText))
	})
	good := make(chan struct{}, 1024)
	p := NewPoller(NewProber(), PollerConfig{MetricsEvery: 10 * time.Millisecond, Deliver: func(e Event) {
		if e.Kind == MetricsEvent && e.Err == nil && e.Node == "well" {
			good <- struct{}{}
		}
	}})
	defer p.Stop()
	if err := p.Set([]Target{{Name: "hung", URL: hung.url}, {Name: "well", URL: well.url}}); err != nil {
		t.Fatal(err)
	}
	end := time.After(20 * time.Second)
	for n := range 20 {
		select {
		case <-good:
		case <-end:
			t.Fatalf("%d answers", n)
		}
	}
	if err := p.Set(nil); err != nil {
		t.Fatal(err)
	}
}

// long is a text that is worth being narrowed.
func long() string {
	text := vllmText + `vllm:prompt_tokens_total{engine="0"} 70` + "\n" + `vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0` + "\n"
	return text + strings.Repeat("vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"0.3\"} 1.0\n", 200)
}

// What is asked for narrowly says the same; an engine whose narrow text lacks
// something is asked for the whole, and nothing of a reading is lost.
func TestNarrow(t *testing.T) {
	text := long()
	narrowed := text[:strings.Index(text, "vllm:e2e")]
	for name, c := range map[string]struct {
		narrow func(conn net.Conn)
		takes  bool
	}{
		"taken": {func(c net.Conn) {
			write(c, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(narrowed), narrowed))
		}, true},
		"ignored": {func(c net.Conn) {
			write(c, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
		}, true},
		"lacks": {func(c net.Conn) {
			write(c, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(vllmText), vllmText))
		}, false},
		"empty":    {func(c net.Conn) { write(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") }, false},
		"no route": {func(c net.Conn) { write(c, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") }, false},
		"closes":   {func(c net.Conn) { _ = c.Close() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := startRaw(t, func(conn net.Conn, path string, _ int) {
				if strings.HasPrefix(path, "/metrics/?") {
					c.narrow(conn)
					return
				}
				write(conn, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text))
			})
			for _, ev := range poll(t, e.url, 5*time.Second, 8) {
				if ev.Err != nil || ev.Sample.PromptTokens.Value != 70 || ev.Sample.CacheTokens != 1600 {
					t.Fatalf("%+v", ev)
				}
			}
			paths, _ := e.asked()
			narrow := 0
			for _, path := range paths {
				if strings.HasPrefix(path, "/metrics/?") {
					narrow++
				}
			}
			if paths[0] != "/metrics" || c.takes && narrow < 6 || !c.takes && narrow > 2 {
				t.Errorf("%d of %d were narrow", narrow, len(paths))
			}
			if query := paths[1]; !strings.Contains(query, "name%5B%5D=vllm%3Anum_requests_running&") || !strings.Contains(query, "name%5B%5D=vllm%3Aprompt_tokens_total") || strings.Contains(query, "sglang") {
				t.Errorf("asked %s", query)
			}
		})
	}
}

// The whole text comes again and again, and at once where it is short.
func TestNarrowTurns(t *testing.T) {
	var n narrow
	whole := Sample{Engine: VLLM, BlockTokens: 16}
	n.whole(whole, narrowWorth-1)
	if n.due() {
		t.Error("a short text is narrowed")
	}
	n.whole(whole, narrowWorth)
	for i := range narrowTurns - 1 {
		if !n.due() || !n.take(whole, nil) {
			t.Fatalf("question %d", i)
		}
	}
	if n.due() {
		t.Error("the whole is never asked for again")
	}
	n.whole(whole, narrowWorth)
	if n.due(); n.take(Sample{Engine: VLLM}, nil) {
		t.Error("a text without block sizes will do")
	}
	for range narrowPause - 1 {
		if n.whole(whole, narrowWorth); n.due() {
			t.Fatal("what was refused is asked for again at once")
		}
	}
	if n.whole(whole, narrowWorth); !n.due() {
		t.Error("what was refused is never asked for again")
	}
	if n.whole(Sample{Engine: TGI}, narrowWorth); n.due() {
		t.Error("an engine that does not narrow is asked to")
	}
}

// TestWheelSlowConnect: the time for an answer begins when the engine could know what is
// asked. A connection that the kernel makes at the second try, after a second, leaves the
// engine its time.
func TestWheelSlowConnect(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err == nil {
		err = unix.Listen(fd, 0) // one connection may wait; SYNs of others are dropped then
	}
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	ln, err := net.FileListener(file)
	_ = file.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	first, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	got := make(chan Event, 1)
	const timeout, think = 1300 * time.Millisecond, 600 * time.Millisecond
	p := NewPoller(NewProber(), PollerConfig{MetricsEvery: time.Hour, Deliver: func(e Event) {
		if e.Kind == HealthEvent {
			got <- e
		}
	}})
	defer p.Stop()
	if err := p.Set([]Target{{Name: "a", URL: "http://" + ln.Addr().String(), HealthTimeout: timeout}}); err != nil {
		t.Fatal(err)
	}
	p.AskHealth("a", 0)
	<-time.After(100 * time.Millisecond)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					<-time.After(think)
					write(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			}()
		}
	}()
	select {
	case e := <-got:
		if e.Err != nil || e.TookSeconds < 1+think.Seconds() {
			t.Errorf("%v after %v s", e.Err, e.TookSeconds)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
	}
}
