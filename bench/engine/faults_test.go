package engine

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// listening starts an engine on a loopback port.
func listening(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e := sim(t, cfg)
	if err := e.Start("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	return e
}

// eventually waits for a condition that comes true through real sockets.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// post sends a request over the network and reads the whole answer.
func post(t testing.TB, url, body string) (code int, text string, err error) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

const (
	streamed = `{"messages":[{"role":"user","content":"a"}],"max_tokens":20,"stream":true}`
	plain    = `{"messages":[{"role":"user","content":"a"}],"max_tokens":20}`
)

func TestFaultsOfAnswers(t *testing.T) {
	e := listening(t, Config{AsFastAsPossible: true})
	url := e.URL() + "/v1/chat/completions"
	for _, c := range []struct {
		name   string
		fault  Fault
		body   string
		code   int // 0: no answer at all
		events int // of a stream, before it breaks
		broken bool
		want   string
	}{
		{name: "500", fault: Fault{Kind: Fault500}, body: plain, code: 500, want: "EngineCore encountered"},
		{name: "503", fault: Fault{Kind: Fault503}, body: streamed, code: 503},
		{name: "loading", fault: Fault{Kind: FaultLoading}, body: plain, code: 503},
		{name: "reset", fault: Fault{Kind: FaultReset}, body: plain, broken: true},
		{name: "cut", fault: Fault{Kind: FaultCutMidStream, AfterChunks: 4}, body: streamed, code: 200, events: 4, broken: true},
		{name: "cut at once", fault: Fault{Kind: FaultCutMidStream}, body: streamed, code: 200, events: 0, broken: true},
		{name: "cut late", fault: Fault{Kind: FaultCutMidStream, AfterChunks: 99}, body: streamed, code: 200, events: 21, broken: true},
		{name: "cut whole", fault: Fault{Kind: FaultCutMidStream}, body: plain, code: 200, broken: true},
		{name: "error event", fault: Fault{Kind: FaultErrorEvent, AfterChunks: 3}, body: streamed, code: 200, events: 5, want: "data: [DONE]\n\n"},
		{name: "error whole", fault: Fault{Kind: FaultErrorEvent}, body: plain, code: 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.fault.Count = 1
			if err := e.SetFault(c.fault); err != nil {
				t.Fatal(err)
			}
			code, text, err := post(t, url, c.body)
			if code != c.code || (err != nil) != c.broken || !strings.Contains(text, c.want) {
				t.Errorf("answered %d %q: %v", code, text, err)
			}
			if n := strings.Count(text, "data: "); c.body == streamed && n != c.events {
				t.Errorf("%d events, want %d: %q", n, c.events, text)
			}
			if c.fault.Kind == FaultReset && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("not a reset: %v", err)
			}
			if code, text, err := post(t, url, c.body); code != 200 || err != nil {
				t.Errorf("after it: %d %q %v", code, text, err)
			}
			if s := e.State(); s.Running+s.Waiting != 0 || len(s.Faults) != 0 {
				t.Errorf("left behind: %+v", s)
			}
		})
	}
}

func TestErrorEventIsThatOfVLLM(t *testing.T) {
	_, body := capture(t, "sse_engine_killed_midstream.raw")
	real := strings.Split(strings.TrimSpace(body), "\n\n")
	e := sim(t, Config{AsFastAsPossible: true})
	if err := e.SetFault(Fault{Kind: FaultErrorEvent, AfterChunks: 5}); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(ask(t.Context(), e, "/v1/chat/completions", streamed).Body.String()), "\n\n")
	if a, b := strings.Join(got[len(got)-2:], "\n\n"), strings.Join(real[len(real)-2:], "\n\n"); a != b {
		t.Errorf("stream ends with\n%s\nwant\n%s", a, b)
	}
}

func TestHangs(t *testing.T) {
	for kind, wantHead := range map[FaultKind]bool{FaultHangBeforeHeaders: false, FaultHangAfterHeaders: true} {
		for _, body := range []string{plain, streamed} {
			within(t, Config{}, func(t *testing.T, e *Engine) {
				if err := e.SetFault(Fault{Kind: kind}); err != nil {
					t.Fatal(err)
				}
				over := make(chan struct{})
				w := httptest.NewRecorder()
				go func() {
					defer close(over)
					defer func() { _ = recover() }() // the dropped connection
					e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
				}()
				<-time.After(time.Hour)
				select {
				case <-over:
					t.Error("it did not hang")
				default:
				}
				if err := e.ClearFaults(); err != nil {
					t.Fatal(err)
				}
				<-over
				if w.Flushed != wantHead || w.Body.Len() != 0 {
					t.Errorf("%s: head sent %v, body %q", kind, w.Flushed, w.Body)
				}
			})
		}
	}
}

func TestRefuse(t *testing.T) {
	e := listening(t, Config{AsFastAsPossible: true})
	url := e.URL() + "/health"
	admin := httptest.NewServer(AdminHandler([]*Engine{e}))
	defer admin.Close()
	if resp, err := http.Get(url); err != nil {
		t.Fatal(err)
	} else {
		resp.Body.Close()
	}
	if code, text, err := post(t, admin.URL+"/engines/0/fault", `{"kind":"refuse"}`); code != 200 || err != nil {
		t.Fatal(code, text, err)
	}
	// The idle connection of the client's pool is closed too, so there is nothing to reuse.
	if _, err := http.Get(url); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("answered %v, want a refusal", err)
	}
	if code, text, err := post(t, admin.URL+"/engines/0/clear", ""); code != 200 || err != nil {
		t.Fatal(code, text, err)
	}
	resp, err := http.Get(url)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("after clear: %v", err)
	}
	resp.Body.Close()
}

func TestRestartResetsStreams(t *testing.T) {
	e := listening(t, Config{})
	if _, _, err := post(t, e.URL()+"/v1/chat/completions", plain); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	long := strings.Replace(streamed, `"max_tokens":20`, `"max_tokens":100000`, 1)
	req, err := http.NewRequest(http.MethodPost, e.URL()+"/v1/chat/completions", strings.NewReader(long))
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for line := ""; !strings.Contains(line, `"content":" `); {
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if code, text, err := post(t, e.URL()+"/sim/fault", `{"kind":"restart"}`); code != 200 || err != nil {
		t.Errorf("restart: %d %s %v", code, text, err)
	}
	if _, err = io.Copy(io.Discard, in); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream ended with %v, want a reset", err)
	}
	eventually(t, "restart", func() bool { return e.State().Restarts == 1 })
	if s := e.State(); s.BlocksCached != 0 || s.Running != 0 || s.Generated != 0 || len(s.RequestIDs) != 2 {
		t.Errorf("after restart: %+v", s)
	}
	if code, text, err := post(t, e.URL()+"/v1/chat/completions", plain); code != 200 || err != nil {
		t.Errorf("after restart: %d %s %v", code, text, err)
	}
}

func TestDisconnectOverTheNetwork(t *testing.T) {
	e := listening(t, Config{})
	for _, body := range []string{plain, streamed} {
		aborted := e.State().Aborted
		resp := make(chan error, 1)
		conn, err := net.Dial("tcp", strings.TrimPrefix(e.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequest(http.MethodPost, e.URL()+"/v1/chat/completions", strings.NewReader(strings.Replace(body, ":20", ":100000", 1)))
		if err != nil {
			t.Fatal(err)
		}
		resp <- req.Write(conn)
		if err := <-resp; err != nil {
			t.Fatal(err)
		}
		eventually(t, "request runs", func() bool { return e.State().Running == 1 })
		conn.Close()
		eventually(t, "abort", func() bool { s := e.State(); return s.Aborted == aborted+1 && s.BlocksUsed == 0 })
	}
}

func TestFaultErrors(t *testing.T) {
	e := sim(t, Config{})
	for body, want := range map[string]string{
		`{"kind":"nope"}`:             "no such kind",
		`{"kind":"slow"}`:             "factor",
		`{"kind":"refuse","count":1}`: "cannot be counted",
		`{"kind":"500","count":-1}`:   "0 or more",
		`{"kind":"500","often":1}`:    "unknown field",
		`{`:                           "decode fault",
		`{"kind":"cut_mid_stream","after_chunks":"1`: "decode fault",
	} {
		if w := ask(t.Context(), e, "/sim/fault", body); w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
	admin := AdminHandler([]*Engine{e})
	for path, code := range map[string]int{"/engines": 200, "/engines/0/state": 200, "/engines/1/state": 404, "/engines/00/state": 404} {
		w := httptest.NewRecorder()
		admin.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != code || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
