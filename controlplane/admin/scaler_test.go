package admin_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/admin"
	ct "warmpath/controlplane/controltest"
	"warmpath/scaler"
)

// scaled is a router whose scaler has so many engines to ask for.
func scaled(t *testing.T, token, more string, engines int) (*surface, *ct.Provider) {
	t.Helper()
	var urls []string
	for range engines {
		urls = append(urls, ct.StartEngine(t, "m").URL())
	}
	p := ct.StartProvider(t, urls...)
	s := serve(t, token, fmt.Sprintf("nodes: []\nstate_dir: %q\nscaler:\n  enabled: true\n  interval: 1s\n  min: %d\n  offers:\n    - %s\n    - {name: script, provider: command, command: {create: [/none], delete: [/none], list: [/none]}}\n%s",
		t.TempDir(), engines, p.Offer("hook"), more))
	return s, p
}

func (s *surface) scaler() (v admin.ScalerView) {
	s.t.Helper()
	s.get("/api/scaler", &v)
	return v
}

// A router without a scaler says so wherever one asks.
func TestNoScaler(t *testing.T) {
	s := serve(t, "", "nodes: []\n")
	if v := s.scaler(); v.Enabled || v.Waits != "" || v.Last != nil || v.Predicted != nil || v.Nodes == nil || v.Offers == nil || v.Orphans == nil || v.Decisions == nil {
		t.Errorf("%+v", v)
	}
	for name := range s.metrics() {
		if strings.HasPrefix(name, "warmpath_scaler") {
			t.Errorf("there is %s", name)
		}
	}
	s.refused("POST", "/api/scaler/callback/hook", "{}", 404, "not_found", "no offer takes callbacks by that name: hook")
}

// What the scaler does is shown: its nodes, its offers, its decisions.
func TestScalerView(t *testing.T) {
	s, p := scaled(t, "", "", 1)
	ct.Eventually(t, "its node serves", func() bool {
		v := s.scaler()
		return len(v.Nodes) == 1 && v.Nodes[0].Stage == string(scaler.StageServing)
	})
	v := s.scaler()
	n := v.Nodes[0]
	if !v.Enabled || v.Waits != "" || v.Refused != "" || n.Offer != "hook" || n.ID != "at-"+n.Name || n.Name != p.Made()[0] || n.ForSeconds < 0 || n.ForSeconds > 60 || n.Why == "" {
		t.Errorf("%+v", v)
	}
	if len(v.Decisions) == 0 || v.Decisions[len(v.Decisions)-1].Action != "up" || v.Last == nil || time.Since(v.Last.At) > time.Minute {
		t.Errorf("decisions %+v, the last %+v", v.Decisions, v.Last)
	}
	if o := v.Offers; len(o) != 2 || o[0].Name != "hook" || o[0].Withheld != "" || !o[0].StartUpSeconds.Known || o[1].Name != "script" || !strings.Contains(o[1].Withheld, "/none: no such file or directory") {
		t.Errorf("offers %+v", o)
	}
	p.Refuse(http.StatusForbidden, "your account is closed")
	s.called(p, "hook", fmt.Sprintf(`{"key":%q,"id":%q,"phase":"running"}`, n.Name, n.ID), nil) // so that it is asked now
	ct.Eventually(t, "it is asked in vain", func() bool {
		return s.scaler().Offers[0].Unlisted == "list nodes: refused for credential: status 403 Forbidden: your account is closed"
	})
	if v := s.scaler(); len(v.Nodes) != 1 || v.Nodes[0].Stage != string(scaler.StageServing) {
		t.Errorf("a provider that says nothing any more took the node along: %+v", v.Nodes)
	}
}

// What a scaler in another process reads counts from this one's start.
func TestScalerReading(t *testing.T) {
	e := ct.StartEngine(t, "m")
	s := serve(t, "s3cret", fmt.Sprintf("nodes: [{name: a, url: %q}, {name: b, url: \"http://127.0.0.1:1\", models: [n]}]\n", e.URL()))
	s.WaitServed(t, "a", "m")
	if status, _ := s.Ask(t, ct.Chat("m", 4000), "one"); status != 200 {
		t.Fatal(status)
	}
	var all scaler.Reading
	ct.Eventually(t, "the engine says how it is", func() bool {
		all = scaler.Reading{}
		s.get("/api/scaler/reading", &all)
		return len(all.Nodes) == 2 && all.Nodes[0].KVUse == scaler.Known(0.25)
	})
	if a, b := all.Nodes[0], all.Nodes[1]; a.Name != "a" || a.Phase != scaler.Ready || b.Name != "b" || b.Phase == scaler.Ready || b.KVUse.Known || b.Offer != "" || a.CacheTokens != scaler.Known(16000) {
		t.Errorf("nodes %+v", all.Nodes)
	}
	got := all.Totals
	if got.Requests != 1 || got.PromptTokens == 0 || got.UncachedTokens != got.PromptTokens || got.OutputTokens != 7 || got.Answers != 1 || got.SpanSeconds <= 0 || all.Held != 0 ||
		len(got.Uncached) != len(scaler.TokenBounds)+1 || len(got.TTFT) != len(scaler.NewTTFT()) || sumOf(got.Uncached) != 1 {
		t.Errorf("totals %+v", got)
	}
	var of scaler.Reading
	if s.get("/api/scaler/reading?model=n", &of); len(of.Nodes) != 1 || of.Nodes[0].Name != "b" || of.Totals.Requests != 0 {
		t.Errorf("of n: %+v", of)
	}
	of = scaler.Reading{}
	if s.get("/api/scaler/reading?model=nobody%27s", &of); of.Nodes == nil || len(of.Nodes) != 0 || of.Totals.Requests != 0 {
		t.Errorf("of a model that nobody has: %+v", of)
	}
	s.token = ""
	for _, path := range []string{"/api/scaler", "/api/scaler/reading"} {
		s.refused("GET", path, "", 401, "unauthorized", "admin.token")
	}
}

func sumOf(counts []float64) (sum float64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// called sends a callback and returns what was said to it.
func (s *surface) called(p *ct.Provider, offer, body string, change func(*http.Request)) (int, string) {
	s.t.Helper()
	r := p.Callback(s.base+"/api/scaler/callback/"+offer, body)
	if change != nil {
		change(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// A callback is believed for its signature alone, and what is not believed does
// nothing: neither to the nodes nor to their provider.
func TestScalerCallback(t *testing.T) {
	s, p := scaled(t, "s3cret", "", 1)
	ct.Eventually(t, "its node serves", func() bool {
		v := s.scaler()
		return len(v.Nodes) == 1 && v.Nodes[0].Stage == string(scaler.StageServing)
	})
	n := s.scaler().Nodes[0]
	told := fmt.Sprintf(`{"key":%q,"id":%q,"phase":"running","url":%q,"sequence":1}`, n.Name, n.ID, n.URL)
	ended := fmt.Sprintf(`{"key":%q,"id":%q,"phase":"ended"}`, n.Name, n.ID)
	sign := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-Warmpath-"+name, value) }
	}
	lists := p.Asked("list")
	for _, c := range []struct {
		name, offer, body string
		change            func(*http.Request)
		status            int
		words             string
	}{
		{"no signature", "hook", ended, func(r *http.Request) { r.Header.Del("X-Warmpath-Signature") }, 401, "X-Warmpath-Signature is missing or wrong"},
		{"a wrong one", "hook", ended, sign("Signature", "sha256="+strings.Repeat("00", 32)), 401, "is missing or wrong"},
		{"of another time", "hook", ended, sign("Timestamp", "1"), 401, "is missing or wrong"},
		{"the admin token in its place", "hook", ended, func(r *http.Request) {
			r.Header.Del("X-Warmpath-Signature")
			r.Header.Set("Authorization", "Bearer s3cret")
		}, 401, "is missing or wrong"},
		{"no key", "hook", `{"id":"x","phase":"running"}`, nil, 400, "key is missing"},
		{"no JSON", "hook", "now", nil, 400, ""},
		{"another fleet", "hook", fmt.Sprintf(`{"key":%q,"phase":"ended","fleet":"other"}`, n.Name), nil, 400, `fleet is "other": want "warmpath-hook"`},
		{"too much", "hook", strings.Repeat(" ", 65<<10), nil, 413, "more than 65536 bytes"},
		{"nobody's offer", "nobody", told, nil, 404, "no offer takes callbacks by that name: nobody"},
		{"an offer that has none", "script", told, nil, 404, "no offer takes callbacks by that name: script"},
		{"a way out", "hook/../../../nodes", told, nil, 401, "admin.token"},
		{"GET", "hook", "", func(r *http.Request) { r.Method = http.MethodGet }, 401, "admin.token"},
	} {
		if status, text := s.called(p, c.offer, c.body, c.change); status != c.status || !strings.Contains(text, c.words) {
			t.Errorf("%s: %d %s, want %d with %q", c.name, status, text, c.status, c.words)
		}
	}
	at := s.Control.State().NowNs
	ct.Eventually(t, "a second has passed", func() bool { return s.Control.State().NowNs > at+1e9 })
	if got := p.Asked("list"); got > lists+1 { // one may be due
		t.Errorf("what nobody signed had the provider asked %d times", got-lists)
	}
	if v := s.scaler(); len(v.Nodes) != 1 || v.Nodes[0].Stage != string(scaler.StageServing) {
		t.Errorf("after them: %+v", v.Nodes)
	}
	lists = p.Asked("list")
	for range 2 { // the same again changes nothing
		if status, text := s.called(p, "hook", told, func(r *http.Request) { r.Host = "router.example" }); status != 204 || text != "" {
			t.Errorf("a right one: %d %s", status, text)
		}
	}
	ct.Eventually(t, "it is listed at once", func() bool { return p.Asked("list") > lists })
	if v := s.scaler(); len(v.Nodes) != 1 || v.Nodes[0].Name != n.Name || v.Nodes[0].URL != n.URL {
		t.Errorf("after one that came twice: %+v", v.Nodes)
	}
}

// On loopback without a token a callback may name any host, as a proxy hands it on;
// nothing else may.
func TestScalerCallbackHost(t *testing.T) {
	s, p := scaled(t, "", "", 0)
	ct.Eventually(t, "it runs", func() bool { return s.scaler().Enabled })
	as := func(r *http.Request) { r.Host = "router.example" }
	if status, text := s.called(p, "hook", `{"key":"k","id":"i","phase":"running"}`, as); status != 204 {
		t.Errorf("%d %s", status, text)
	}
	if status, text := s.called(p, "../claim", `{}`, as); status == 204 || status == 200 || !slices.Contains([]int{403}, status) {
		t.Errorf("another route by that host: %d %s", status, text)
	}
}
