package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warmpath/controlplane/admin"
	"warmpath/scaler"
)

// scalerAlone is a running `warmpath scale` before two routers.
type scalerAlone struct {
	*process
	config  string
	admin   string    // host:port
	routers []*scaled // their engines are the same
}

// serveAlone starts two routers without nodes, and a scaler beside them that has heard of
// both: from then on they hold requests for which there is no node. more are further keys
// of the scaler.
func serveAlone(t *testing.T, more string) *scalerAlone {
	t.Helper()
	s := &scalerAlone{}
	var urls []string
	for range 2 {
		r := launchRouter(t, configure(t, settings, "nodes: []\n"))
		s.routers, urls = append(s.routers, &scaled{serving: r}), append(urls, fmt.Sprintf("%q", "http://"+r.admin))
	}
	first := s.routers[0]
	text := first.prepare(t)
	for _, r := range s.routers {
		r.engine = first.engine
	}
	text = strings.Replace(text, "enabled: true", "routers: ["+strings.Join(urls, ", ")+"]"+more, 1)
	if strings.Contains(more, "min: ") {
		text = strings.Replace(text, "  min: 1\n", "", 1)
	}
	s.config = configure(t, settings, text)
	s.launch(t)
	eventually(t, startWithin, "the scaler has decided something", func() bool {
		last := s.view(t).Last
		return last != nil && last.Action != "frozen"
	})
	return s
}

// launch starts the scaler and waits until it runs.
func (s *scalerAlone) launch(t *testing.T) {
	t.Helper()
	s.process = launch(t, "warmpath scale", exec.Command(program("warmpath"), "scale", "--config", s.config))
	var said struct{ Msg, Admin string }
	eventually(t, startWithin, "warmpath scales", func() bool {
		if !s.running() {
			t.Fatalf("warmpath scale ended with code %d: %s", s.code, s.err.String())
		}
		for line := range strings.Lines(s.err.String()) {
			if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "scaling" {
				return true
			}
		}
		return false
	})
	s.admin = said.Admin
}

func (s *scalerAlone) view(t *testing.T) admin.ScalerView {
	t.Helper()
	var v admin.ScalerView
	getJSON(t, "http://"+s.admin+"/api/scaler", &v)
	return v
}

// ready is how many nodes serve at the router that has the fewest of them.
func (s *scalerAlone) ready(t *testing.T) int {
	return min(s.routers[0].ready(t), s.routers[1].ready(t))
}

// size waits until both routers have so many nodes, and nothing else of them is under
// way.
func (s *scalerAlone) size(t *testing.T, n int, limit time.Duration) {
	t.Helper()
	eventually(t, limit, fmt.Sprintf("%d nodes serve and no more run", n), func() bool {
		for _, r := range s.routers {
			if len(r.nodes(t)) != n {
				return false
			}
		}
		return s.ready(t) == n && len(s.view(t).Nodes) == n && len(s.routers[0].running(t)) == n
	})
}

// TestScaleAlone: a scaler in a process of its own grows and shrinks the fleet of two
// routers while clients ask both; killed in between, it neither loses nor doubles a
// node, and no request fails.
func TestScaleAlone(t *testing.T) {
	s := serveAlone(t, "")
	s.size(t, 1, cycleLimit)
	began := time.Now()
	var few, many []*askers
	for i, r := range s.routers {
		few = append(few, r.gather(t, fmt.Sprintf("few-%d", i), 1, 4*time.Second)) // somebody is always there
		many = append(many, r.gather(t, fmt.Sprintf("many-%d", i), crowdSize/2, 0))
	}
	eventually(t, cycleLimit, "the fleet has grown at both", func() bool { return s.ready(t) == scaledMost })
	grown := time.Since(began)
	before := s.routers[0].running(t)
	s.signal(t, syscall.SIGKILL)
	s.wait(t, startWithin)
	for _, r := range s.routers {
		if n := r.ready(t); n != scaledMost {
			t.Errorf("without the scaler a router has %d nodes", n)
		}
	}
	s.launch(t)
	eventually(t, cycleLimit, "all engines are known again", func() bool {
		v := s.view(t)
		for _, n := range v.Nodes {
			if before[n.Name].ID == "" {
				t.Fatalf("a node was doubled: %+v; before: %+v", n, before)
			}
		}
		return len(v.Nodes) == len(before) && s.ready(t) == len(before) && v.Last != nil && v.Last.Action != "frozen"
	})
	for key, i := range s.routers[0].running(t) {
		if before[key].ID != i.ID {
			t.Errorf("engine %s is %s, it was %s", key, i.ID, before[key].ID)
		}
	}
	out, errs, code := warmpath(t, "scaler", "--admin", s.admin)
	if code != 0 || !strings.Contains(out, "http://"+s.routers[1].admin) || !strings.Contains(out, "serving") {
		t.Errorf("warmpath scaler: code %d: %s%s", code, out, errs)
	}
	var all []*reply
	for _, c := range many {
		all = append(all, c.leave()...)
	}
	s.size(t, 1, cycleLimit)
	shrunk := time.Since(began)
	for _, c := range few {
		all = append(all, c.leave()...)
	}
	whole(t, "two routers", all)
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t, startWithin); code != 0 {
		t.Errorf("the scaler ended with code %d", code)
	}
	for _, r := range s.routers {
		if n := r.ready(t); n != 1 {
			t.Errorf("after the scaler's end a router has %d nodes", n)
		}
		r.settled(t)
	}
	t.Logf("%d nodes at both after %.1f s, 1 again after %.1f s; %d requests, none failed", scaledMost, grown.Seconds(), shrunk.Seconds(), len(all))
}

// TestScaleAloneFromZero: with min 0 the last node goes, and a request at either
// router waits for the next one.
func TestScaleAloneFromZero(t *testing.T) {
	s := serveAlone(t, "\n  min: 0\n  idle: 2s")
	for _, r := range s.routers {
		s.size(t, 0, cycleLimit)
		began := time.Now()
		if a := r.try(t, chatPath, chatBody("Is anybody there?", `,"max_tokens":2`)); a.err != nil || a.status != http.StatusOK {
			t.Errorf("the request that wakes the fleet: status %d, error %v: %s", a.status, a.err, a.body)
		}
		t.Logf("answered from zero after %.1f s", time.Since(began).Seconds())
	}
}

// TestScaleCopied: a copy of the journal lets nobody scale beside who has it. Who is
// started after a process that was killed waits until the routers know, and not if it
// was stopped.
func TestScaleCopied(t *testing.T) {
	const waits = "waits for the claim"
	s := serveAlone(t, "")
	s.size(t, 1, cycleLimit)
	text, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	dir, copied := regexp.MustCompile(`(?m)^state_dir: "(.*)"$`).FindStringSubmatch(string(text))[1], t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	_, errs, code := warmpath(t, "scale", "--config", configure(t, strings.ReplaceAll(string(text), dir, copied)))
	if code != 1 || !strings.Contains(errs, "another process with this scaler's journal") || !strings.Contains(errs, "if state_dir was copied") {
		t.Errorf("the copy: code %d: %s", code, errs)
	}
	s.signal(t, syscall.SIGTERM)
	s.wait(t, startWithin)
	if s.launch(t); strings.Contains(s.err.String(), waits) {
		t.Errorf("it waits for who was stopped: %s", s.err.String())
	}
	eventually(t, startWithin, "the routers have heard of it", func() bool { return s.view(t).Last != nil && s.view(t).Last.Action != "frozen" })
	s.signal(t, syscall.SIGKILL)
	s.wait(t, startWithin)
	if s.launch(t); !strings.Contains(s.err.String(), waits) {
		t.Errorf("it was let in beside who was killed a moment ago: %s", s.err.String())
	}
	s.size(t, 1, cycleLimit)
	s.signal(t, syscall.SIGTERM)
	s.wait(t, startWithin)
}

// TestScaleRefuses: what would make two scalers of one fleet, or one that cannot go
// on, is refused with a remedy.
func TestScaleRefuses(t *testing.T) {
	t.Parallel()
	offer := "  offers: [{name: o, provider: command, command: {create: [\"false\"], delete: [\"false\"], list: [\"false\"]}}]\n"
	state := fmt.Sprintf("nodes: []\nstate_dir: %q\nscaler:\n", t.TempDir())
	own := launchRouter(t, configure(t, settings, state, "  enabled: true\n", offer))
	closed := launchRouter(t, configure(t, settings, "nodes: []\nadmin: {listen: \"127.0.0.1:0\", token: right}\n"))
	for _, c := range []struct {
		config string
		words  []string
	}{
		{state + "  enabled: true\n" + offer, []string{"scaler.enabled", "scaler.routers"}},
		{state + offer, []string{"scaler.routers is empty"}},
		{state + "  routers: [\"http://127.0.0.1:1\"]\n", []string{"scaler.offers is empty"}},
		{"nodes: []\nscaler:\n  routers: [\"http://127.0.0.1:1\"]\n" + offer, []string{"state_dir is empty"}},
		{state + "  routers: [\"http://127.0.0.1:1\"]\n" + offer, []string{"another scaler has this journal", "end the other process"}},
		{
			strings.Replace(state, "state_dir: ", "state_dir: "+t.TempDir()+" # ", 1) + fmt.Sprintf("  routers: [\"http://%s\"]\n", own.admin) + offer,
			[]string{own.admin, "another scaler scales these nodes", "scaler.enabled: false"},
		},
		{
			strings.Replace(state, "state_dir: ", "state_dir: "+t.TempDir()+" # ", 1) + fmt.Sprintf("  routers: [\"http://%s\"]\n  router_token: wrong\n", closed.admin) + offer,
			[]string{closed.admin, "401", "scaler.router_token"},
		},
	} {
		_, errs, code := warmpath(t, "scale", "--config", configure(t, settings, c.config))
		if code != 1 || slices.ContainsFunc(c.words, func(w string) bool { return !strings.Contains(errs, w) }) {
			t.Errorf("code %d: %s\nwant %q in it for\n%s", code, errs, c.words, c.config)
		}
	}
}

// TestScaleSeesFormer: while a process that was taken over from has streams, its
// successor says so, for it does not count them.
func TestScaleSeesFormer(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 1, "--decode-base-ms", "30")
	r := launchRouter(t, configure(t, hotSettings(t), nodeList(sim.urls...))).allReady(t)
	reading := func(r *serving) (v scaler.Reading) {
		getJSON(t, "http://"+r.admin+"/api/scaler/reading", &v)
		return v
	}
	if v := reading(r); v.Former || v.Missing != "" || v.NowNs == 0 {
		t.Errorf("before: %+v", v)
	}
	began, ended := make(chan struct{}), make(chan *reply)
	go func() {
		ended <- r.send(t.Context(), chatPath, "long", chatBody("a long answer", `,"max_tokens":100`+streaming), sync.OnceFunc(func() { close(began) }))
	}()
	<-began
	next := r.again(t)
	if v := reading(next); !v.Former || !strings.Contains(v.Missing, "took over") {
		t.Errorf("beside the stream: %+v", v)
	}
	if a := <-ended; a.err != nil || a.status != http.StatusOK {
		t.Errorf("the stream: %d, %v", a.status, a.err)
	}
	r.wait(t, startWithin)
	eventually(t, startWithin, "the former process is gone", func() bool { return !reading(next).Former })
	next.settled(t)
}

// TestScaleSeesFormerOfFormer: two restarts follow each other while the first process has
// a stream. The last one goes on saying so when the one between has ended.
func TestScaleSeesFormerOfFormer(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 1, "--decode-base-ms", "30")
	first := launchRouter(t, configure(t, hotSettings(t), nodeList(sim.urls...))).allReady(t)
	began, ended := make(chan struct{}), make(chan *reply)
	go func() {
		ended <- first.send(t.Context(), chatPath, "long", chatBody("a long answer", `,"max_tokens":400`+streaming), sync.OnceFunc(func() { close(began) }))
	}()
	<-began
	second := first.again(t)
	third := second.again(t)
	second.wait(t, startWithin)
	former := func() bool {
		var v scaler.Reading
		getJSON(t, "http://"+third.admin+"/api/scaler/reading", &v)
		return v.Former
	}
	if !former() {
		t.Error("the stream of the first process is not seen any more")
	}
	if !first.running() {
		t.Error("the first process has ended: this proves nothing")
	}
	if a := <-ended; a.err != nil || a.status != http.StatusOK {
		t.Errorf("the stream: %d, %v", a.status, a.err)
	}
	first.wait(t, startWithin)
	eventually(t, startWithin, "the first process is gone", func() bool { return !former() })
	third.settled(t)
}
