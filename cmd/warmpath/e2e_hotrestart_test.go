package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// hotSettings are settings of a router that another one can take over from.
func hotSettings(t *testing.T) string {
	t.Helper()
	return strings.Replace(settings, "{format: json}", "{format: json, level: debug}", 1) + fmt.Sprintf("state_dir: %q\n", filepath.Join(t.TempDir(), "state"))
}

// eventNodes is the key nodes for engines that publish their events.
func eventNodes(sim *engines) string {
	text := "nodes:\n"
	for i, u := range sim.urls {
		text += fmt.Sprintf("  - {name: sim-%d, url: %q, kv_events: {endpoint: %q, replay: %q}}\n", i, u, sim.events[i], sim.replay[i])
	}
	return text
}

// again starts the router anew while it runs, and returns when the new process
// has taken over.
func (r *serving) again(t *testing.T) *serving {
	t.Helper()
	next := launchRouter(t, r.config)
	if !strings.Contains(next.err.String(), fmt.Sprintf("taken over from pid %d: ", r.pid())) || next.url != r.url || next.admin != r.admin {
		t.Fatalf("it serves at %s and %s, and has not taken over: %s", next.url, next.admin, next.err.String())
	}
	http.DefaultClient.CloseIdleConnections() // the old admin side answers those for a moment
	return next
}

// steady is traffic that must not see a restart. Whatever went wrong is kept.
type steady struct {
	r      *serving
	stop   chan struct{}
	wait   sync.WaitGroup
	counts [3]atomic.Int64 // fresh, kept, admin
	mu     sync.Mutex
	failed []string
}

func (s *steady) fail(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failed) < 20 {
		s.failed = append(s.failed, fmt.Sprintf(format, args...))
	}
}

// startSteady starts a request every millisecond, each by a connection of its
// own, clients that keep theirs, and somebody who watches the admin side.
func startSteady(t *testing.T, r *serving, clients int) *steady {
	t.Helper()
	s := &steady{r: r, stop: make(chan struct{})}
	s.wait.Go(func() { s.fresh(t) })
	for i := range clients {
		s.wait.Go(func() { s.kept(t, i) })
	}
	s.wait.Go(func() { s.admin(t) })
	t.Cleanup(func() { s.end(t) })
	return s
}

func (s *steady) fresh(t *testing.T) {
	every := time.NewTicker(time.Millisecond)
	defer every.Stop()
	places := make(chan struct{}, 200)
	for i := 0; ; i++ {
		select {
		case <-s.stop:
			return
		case <-every.C:
		}
		places <- struct{}{}
		s.wait.Go(func() {
			defer func() { <-places }()
			s.one(i)
		})
	}
}

// one sends a request by a connection that is closed behind it.
func (s *steady) one(i int) {
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(s.r.url, "http://"), 5*time.Second)
	if err != nil {
		s.fail("fresh %d: %v", i, err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	body := chatBody(fmt.Sprintf("Fresh %d.", i), `,"max_tokens":1`)
	method := "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	if i%4 == 0 {
		method = fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, len(body), body)
	}
	if _, err := c.Write([]byte(method)); err != nil {
		s.fail("fresh %d: %v", i, err)
		return
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.fail("fresh %d: %v", i, err)
		return
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.fail("fresh %d: %s", i, resp.Status)
	}
	s.counts[0].Add(1)
}

func (s *steady) kept(t *testing.T, client int) {
	for n := 0; ; n++ {
		select {
		case <-s.stop:
			return
		default:
		}
		more := `,"max_tokens":4`
		if n%2 == 1 {
			more += streaming
		}
		a := s.r.try(t, chatPath, chatBody(fmt.Sprintf("Client %d asks %d.", client, n), more))
		if t.Context().Err() == nil && (a.err != nil || a.status != http.StatusOK || a.text == "") {
			s.fail("client %d, request %d: status %d, error %v", client, n, a.status, a.err)
		}
		s.counts[1].Add(1)
	}
}

func (s *steady) admin(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	every := time.NewTicker(10 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-every.C:
		}
		resp, err := client.Get("http://" + s.r.admin + "/readyz")
		if err != nil {
			s.fail("admin: %v", err)
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			s.fail("admin: %s", resp.Status)
		}
		s.counts[2].Add(1)
	}
}

// end stops the traffic; not one request may have failed.
func (s *steady) end(t *testing.T) {
	t.Helper()
	select {
	case <-s.stop:
		return
	default:
	}
	close(s.stop)
	s.wait.Wait()
	t.Logf("%d requests by connections of their own, %d by kept ones, %d to the admin side", s.counts[0].Load(), s.counts[1].Load(), s.counts[2].Load())
	if len(s.failed) > 0 {
		t.Errorf("some failed:\n%s", strings.Join(s.failed, "\n"))
	}
}

// longStream is a stream that runs across restarts.
type longStream struct {
	prompt string
	answer *reply
}

// startStreams starts streams of a few seconds and waits until all have begun.
func (s *steady) startStreams(t *testing.T, wait *sync.WaitGroup, name string, n, tokens int) (streams []*longStream) {
	t.Helper()
	var begun atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	for i := range n {
		l := &longStream{prompt: fmt.Sprintf("Tell me a long story, %s %d.", name, i)}
		streams = append(streams, l)
		wait.Go(func() {
			more := fmt.Sprintf(`,"max_tokens":%d`, tokens) + streaming
			l.answer = s.r.send(ctx, chatPath, "", chatBody(l.prompt, more), func() { begun.Add(1) })
		})
	}
	eventually(t, 10*time.Second, "all streams have begun", func() bool { return begun.Load() == int64(n) })
	return streams
}

// checkStreams compares streams, byte by byte, with what an engine says alone.
func checkStreams(t *testing.T, streams []*longStream, tokens int) {
	t.Helper()
	alone := startEngines(t, 1, "--time-scale", "0")
	direct := &serving{url: alone.urls[0], client: http.DefaultClient}
	for _, l := range streams {
		want := direct.ask(t, chatBody(l.prompt, fmt.Sprintf(`,"max_tokens":%d`, tokens)))
		if l.answer.err != nil || l.answer.status != http.StatusOK || l.answer.text != want.text {
			t.Errorf("stream %q: status %d, error %v, %d of %d bytes", l.prompt, l.answer.status, l.answer.err, len(l.answer.text), len(want.text))
		}
	}
}

// TestHotRestart starts a router five times in a row while it is at work: no
// request is refused or broken, streams are whole, and conversations stay where
// their prefixes are.
func TestHotRestart(t *testing.T) {
	const restarts, tokens = 5, 250
	sim := startEngines(t, 3, "--decode-base-ms", "14", "--decode-per-request-ms", "0.05", "--kv-events-port", "-1", "--replay-port", "-1")
	r := serve(t, hotSettings(t), "policy: {name: overlap}\n", eventNodes(sim)) // loads of this test would outweigh short prefixes
	s := startSteady(t, r, 16)
	var wait sync.WaitGroup
	var streams []*longStream
	olds := []*serving{}
	for i := range restarts {
		streams = append(streams, s.startStreams(t, &wait, fmt.Sprint("restart ", i), 6, tokens)...)
		fresh := &serving{url: r.url, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}} // else the old one answers
		homes := map[string]*reply{}
		for n := range 5 {
			talk := fmt.Sprintf("Restart %d, conversation %d. %s", i, n, strings.Repeat("Answer in full sentences. ", 30))
			homes[talk] = fresh.ask(t, chatBody(talk, `,"max_tokens":2`))
		}
		next := r.again(t)
		for talk, first := range homes {
			second := fresh.ask(t, talkBody([]turn{{"user", talk}, {"assistant", first.text}, {"user", "And then?"}}, `,"max_tokens":2`))
			if record := next.record(t, second.id()); second.node() != first.node() || record.Reason != "prefix" {
				t.Errorf("restart %d: the next turn went from %s to %s (%s): %+v", i, first.node(), second.node(), record.Reason, record.Candidates)
			}
		}
		if i == 0 { // it does already what the signal asks for
			r.signal(t, syscall.SIGTERM)
		}
		if v := next.metric(t, "takeover_seconds"); v <= 0 || v > 10 {
			t.Errorf("takeover_seconds is %v", v)
		}
		olds, r = append(olds, r), next
	}
	wait.Wait()
	s.end(t)
	checkStreams(t, streams, tokens)
	for i, old := range olds {
		if code := old.wait(t, startWithin); code != 0 {
			t.Errorf("process %d: exit code %d", i, code)
		}
	}
	for _, log := range []string{olds[1].err.String(), r.err.String()} {
		if strings.Contains(log, `"level":"ERROR"`) || strings.Contains(log, `"level":"WARN"`) {
			t.Errorf("a process complains: %s", tail(log))
		}
	}
	if out, errs, code := r.cli(t, "status"); code != 0 {
		t.Errorf("warmpath status: code %d: %s%s", code, out, errs)
	}
	s.r.client.CloseIdleConnections()
	r.settled(t)
}

// TestHotRestartReports: agents go on with the new process where they were with
// the old one.
func TestHotRestartReports(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 1, "--time-scale", "0.02", "--kv-events-port", "-1", "--replay-port", "-1")
	dir, listen := t.TempDir(), freeAddress(t)
	w := &reporters{dir: dir, sim: sim, listen: listen}
	token := w.write(t, "token", "token-of-worker-0\n")
	tokens := w.write(t, "tokens", "sim-0: token-of-worker-0\n")
	w.serving = serve(t, hotSettings(t), nodeList(sim.urls...), fmt.Sprintf("reports: {listen: %q, tokens_file: %q}\n", listen, tokens))
	agent := launch(t, "agent", exec.Command(program("warmpath"), "agent", "--router", "http://"+listen, "--worker-id", "sim-0",
		"--token-file", token, "--engine-events", sim.events[0], "--replay", sim.replay[0], "--interval", "20ms", "--sync", "500ms"))
	w.live(t, "at first", 0)
	w.fill(t, 0, 4)
	eventually(t, 10*time.Second, "four prompts are reported", func() bool { return w.units(t, 0) >= 40 && w.units(t, 0)%4 == 0 })
	each := w.units(t, 0) / 4
	for range 2 {
		before := w.units(t, 0)
		next := w.again(t)
		if n := next.node(t, "sim-0"); n.IndexUnits != before || fmt.Sprint(n.Trust) != "[live]" {
			t.Errorf("after the restart: %d units of %d, trust %v", n.IndexUnits, before, n.Trust)
		}
		if code := w.wait(t, 10*time.Second); code != 0 {
			t.Errorf("exit code %d", code)
		}
		w.serving = next
		w.fill(t, 0, 1)
		w.live(t, "after a prompt more", before+each)
		if log := next.err.String(); strings.Contains(log, `"to":"gapped"`) {
			t.Errorf("something was missed: %s", tail(log))
		}
	}
	if log := agent.err.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the agent complains: %s", tail(log))
	}
}

// TestHotRestartRefuses: what cannot take over says why, and the running router
// goes on.
func TestHotRestartRefuses(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 1, "--time-scale", "0.1")
	r := serve(t, hotSettings(t), nodeList(sim.urls...))
	serveAgain := func() (errs string, code int) {
		_, errs, code = warmpath(t, "serve", "--config", r.config)
		return errs, code
	}

	good := readFile(t, r.config)
	for bad, want := range map[string]string{
		strings.Replace(good, "limits:", "limmits:", 1):                              "limmits",
		good + "models: [{name: sim, tokenizer: no-such-file}]\n":                    "no-such-file",
		good + fmt.Sprintf("reports: {listen: %q, tokens_file: x}\n", "127.0.0.1:0"): "tokens_file",
	} {
		rewrite(t, r.config, bad)
		if errs, code := serveAgain(); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("code %d: %s", code, errs)
		}
		r.ask(t, chatBody("Still there?", ""))
	}
	rewrite(t, r.config, good)

	first, ok := r.stopAt(t, stages[0])
	if !ok {
		t.Skip("it was too fast to be stopped")
	}
	if errs, code := serveAgain(); code != 1 || !strings.Contains(errs, fmt.Sprintf("process %d is taking over already", first.pid())) {
		t.Errorf("a second one: code %d: %s", code, errs)
	}
	r.ask(t, chatBody("Still there?", ""))
	first.kill(t)
	eventually(t, 5*time.Second, "the old one goes on", func() bool { return strings.Contains(r.err.String(), "this one goes on") })
	next := r.again(t)
	next.ask(t, chatBody("And now?", ""))
	if code := r.wait(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}

	next.kill(t) // its socket stays behind
	cold := launchRouter(t, r.config)
	cold.usable(t, "sim-0")
	cold.ask(t, chatBody("From nothing?", ""))
	cold.signal(t, syscall.SIGTERM)
	if code := cold.wait(t, 10*time.Second); code != 0 || strings.Contains(cold.err.String(), "taken over") {
		t.Errorf("exit code %d", code)
	}
}
