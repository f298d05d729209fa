package webhook

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"warmpath/scaler/actuate"
)

// clock is a clock that a test sets.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

// silent is a webhook whose server has no list, and its clock.
func silent(t *testing.T) (*Webhook, *server, *clock) {
	s := newServer(t)
	s.answers(func(out http.ResponseWriter, r *http.Request, a asked) bool {
		return a.Action == "list" && saying(404, "")(out, r, a)
	})
	c := &clock{time.Unix(1_800_000_000, 0)}
	o := s.options("f1")
	o.Now = c.Now
	return open(t, o), s, c
}

func TestCallbacksThatAreRefused(t *testing.T) {
	w, _, c := silent(t)
	good := instance("a", "i", "running", "")
	forged := func(change func(*http.Request)) *http.Request {
		r := callback(c.now, good)
		change(r)
		return r
	}
	for _, k := range []struct {
		name    string
		request *http.Request
		status  int
		words   string
	}{
		{"GET", httptest.NewRequest(http.MethodGet, "/", http.NoBody), 405, "use POST"},
		{"unsigned", forged(func(r *http.Request) { r.Header.Del("X-Warmpath-Signature") }), 401, "missing or wrong"},
		{"another scheme", forged(func(r *http.Request) {
			r.Header.Set("X-Warmpath-Signature", strings.TrimPrefix(r.Header.Get("X-Warmpath-Signature"), "sha256="))
		}), 401, "missing or wrong"},
		{"half a signature", forged(func(r *http.Request) { r.Header.Set("X-Warmpath-Signature", r.Header.Get("X-Warmpath-Signature")[:39]) }), 401, "missing or wrong"},
		{"another time", forged(func(r *http.Request) { r.Header.Set("X-Warmpath-Timestamp", strconv.FormatInt(c.now.Unix()+1, 10)) }), 401, "missing or wrong"},
		{"another body", func() *http.Request {
			r := callback(c.now, instance("b", "i", "running", ""))
			r.Header.Set("X-Warmpath-Signature", callback(c.now, good).Header.Get("X-Warmpath-Signature"))
			return r
		}(), 401, "missing or wrong"},
		{"another secret", forged(func(r *http.Request) {
			r.Header.Set("X-Warmpath-Signature", signature([]byte("another secret of theirs"), r.Header.Get("X-Warmpath-Timestamp"), good))
		}), 401, "missing or wrong"},
		{"too old", callback(c.now.Add(-301*time.Second), good), 401, "5m1s off"},
		{"to come", callback(c.now.Add(301*time.Second), good), 401, "-5m1s off"},
		{"no time", forged(func(r *http.Request) {
			r.Header.Set("X-Warmpath-Timestamp", "now")
			r.Header.Set("X-Warmpath-Signature", signature(secret, "now", good))
		}), 401, `"now"`},
		{"too large", callback(c.now, good+strings.Repeat(" ", 70_000)), 413, "65536"},
		{"no JSON", callback(c.now, "ready"), 400, "invalid character"},
		{"unknown names", callback(c.now, instance("a", "i", "running", `,"at":1`)), 400, "at is not known"},
		{"no key", callback(c.now, `{"id":"i","phase":"running"}`), 400, "key is missing"},
		{"no id", callback(c.now, `{"key":"a","phase":"running"}`), 400, "id is missing"},
		{"another fleet", callback(c.now, instance("a", "i", "running", `,"fleet":"f2"`)), 400, `"f2": want "f1"`},
	} {
		status, text := call(w, k.request)
		if status != k.status || !strings.Contains(text, k.words) || strings.Contains(text, string(secret)) {
			t.Errorf("%s: %d %s, want %d with %q", k.name, status, text, k.status, k.words)
		}
	}
	if all := list(t, w); len(all) != 0 {
		t.Errorf("something was believed: %v", all)
	}
	for _, off := range []time.Duration{-300 * time.Second, 300 * time.Second} {
		if status, text := call(w, callback(c.now.Add(off), good)); status != 204 {
			t.Errorf("%v off: %d %s", off, status, text)
		}
	}
}

func TestACallbackMayComeBeforeTheAnswer(t *testing.T) {
	w, s, c := silent(t)
	s.answers(func(_ http.ResponseWriter, _ *http.Request, a asked) bool {
		if a.Action == "create" {
			call(w, callback(c.now, instance("a", "i-a", "running", `,"url":"http://h:1","fleet":"f1"`)))
		}
		return false
	})
	if i, err := w.Create(t.Context(), actuate.Wanted{Key: "a"}); err != nil || i.Phase != actuate.Running || i.URL != "http://h:1" {
		t.Errorf("%+v, %v", i, err)
	}
	s.answers(func(_ http.ResponseWriter, _ *http.Request, a asked) bool {
		if a.Action == "create" {
			call(w, callback(c.now, `{"key":"b","phase":"ended","detail":"no card left"}`))
		}
		return false
	})
	if i, err := w.Create(t.Context(), actuate.Wanted{Key: "b"}); err != nil || i.Phase != actuate.Ended || i.Detail != "no card left" || i.ID != "i-b" {
		t.Errorf("%+v, %v", i, err)
	}
}

// In whatever order callbacks come and however often, the last one counts: by
// sequence, or else the one that is furthest.
func TestTheOrderOfCallbacksDoesNotMatter(t *testing.T) {
	w, _, c := silent(t)
	keys := 0
	rapid.Check(t, func(t *rapid.T) {
		keys++
		key := fmt.Sprint("k", keys)
		ordered := rapid.Bool().Draw(t, "ordered")
		phases := rapid.SliceOfN(rapid.SampledFrom([]string{"pending", "running", "ending", "ended"}), 1, 5).Draw(t, "phases")
		furthest := actuate.Pending
		var requests []*http.Request
		for i, phase := range phases {
			more := fmt.Sprintf(`,"url":"http://h:%d"`, i+1)
			if ordered {
				more += fmt.Sprintf(`,"sequence":%d`, i)
			}
			at := c.now.Add(time.Duration(rapid.IntRange(-200, 200).Draw(t, "off")) * time.Second)
			body := instance(key, "i", phase, more)
			for range rapid.IntRange(1, 3).Draw(t, "times") {
				requests = append(requests, callback(at, body))
			}
			for p := actuate.Pending; p <= actuate.Ended; p++ {
				if p.String() == phase && (p > furthest || ordered) {
					furthest = p
				}
			}
		}
		for _, r := range rapid.Permutation(requests).Draw(t, "order") {
			if status, text := call(w, r); status != 204 {
				t.Fatalf("%d %s", status, text)
			}
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		is := w.book.nodes[name{key, "i"}]
		if is == nil || is.Phase != furthest || ordered && is.URL != fmt.Sprintf("http://h:%d", len(phases)) {
			t.Errorf("%q in order %v: %+v, want %v", phases, ordered, is, furthest)
		}
	})
}

func TestWhatNobodyAskedForIsBounded(t *testing.T) {
	w, _, c := silent(t)
	if _, err := w.Create(t.Context(), actuate.Wanted{Key: "asked"}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * mostUnasked {
		call(w, callback(c.now, instance(fmt.Sprint("u", i), "i", "running", "")))
		call(w, callback(c.now, instance(fmt.Sprint("e", i), "i", "ended", "")))
	}
	all := list(t, w)
	_, first := all["u0"]
	_, last := all[fmt.Sprint("u", 2*mostUnasked-1)]
	if _, asked := all["asked"]; len(all) != 1+mostUnasked+mostEnded || !asked || first || !last {
		t.Errorf("%d are kept; asked for %v, first %v, last %v", len(all), asked, first, last)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range mostNodes + 10 {
		w.book.asks(fmt.Sprint("a", i))
	}
	if len(w.book.asked) != mostNodes || w.book.asked["a0"] != 0 || w.book.asked["a10"] == 0 {
		t.Errorf("%d keys are kept", len(w.book.asked))
	}
}

// lists makes the server list these.
func (s *server) lists(nodes ...string) {
	s.answers(func(out http.ResponseWriter, r *http.Request, a asked) bool {
		return a.Action == "list" && saying(200, `{"nodes":[`+strings.Join(nodes, ",")+`]}`)(out, r, a)
	})
}

func TestCallbacksBesideTheList(t *testing.T) {
	type step struct {
		after    time.Duration
		callback string // "" = none
		listed   string
		want     string // phase, and URL if it has one; "" = not there
	}
	const key, id, url = "a", "i", `,"url":"http://h:1"`
	pending, running, ended := instance(key, id, "pending", ""), instance(key, id, "running", url), instance(key, id, "ended", "")
	listedRunning := instance(key, id, "running", "")
	seq := func(phase string, n int) string { return instance(key, id, phase, fmt.Sprintf(`,"sequence":%d`, n)) }
	for name, steps := range map[string][]step{
		"heard before it was listed":        {{0, running, "", ""}, {30 * time.Second, "", pending, "running http://h:1"}},
		"a list that does not know running": {{0, running, pending, "running http://h:1"}, {time.Hour, "", pending, "running http://h:1"}, {0, "", ended, "ended http://h:1"}},
		"a list without a URL":              {{0, running, listedRunning, "running http://h:1"}, {time.Hour, "", listedRunning, "running http://h:1"}},
		"a list knows it is gone":           {{0, running, listedRunning, "running http://h:1"}, {2 * time.Minute, "", "", ""}},
		"ended, and listed for a while":     {{0, ended, running, "ended http://h:1"}, {time.Second, "", "", ""}, {0, "", running, "ended http://h:1"}},
		"ended, it was said, and is there":  {{0, ended, listedRunning, "ended"}, {2 * time.Minute, "", listedRunning, "running"}, {0, ended, listedRunning, "ended"}},
		"late":                              {{0, running, listedRunning, "running http://h:1"}, {time.Second, pending, listedRunning, "running http://h:1"}},
		"sequences":                         {{0, seq("ended", 5), seq("running", 6), "running"}, {0, "", seq("running", 4), "running"}, {0, seq("ended", 5), seq("running", 6), "running"}, {0, seq("ended", 7), seq("running", 6), "ended"}, {time.Hour, "", seq("running", 6), "ended"}},
		"a clock set back":                  {{0, ended, listedRunning, "ended"}, {-time.Hour, "", listedRunning, "running"}},
	} {
		w, s, c := silent(t)
		for i, step := range steps {
			c.now = c.now.Add(step.after)
			if step.callback != "" {
				if status, text := call(w, callback(c.now, step.callback)); status != 204 {
					t.Fatalf("%d %s", status, text)
				}
			}
			s.lists(strings.Fields(step.listed)...)
			got := ""
			if is, there := list(t, w)[key]; there {
				got = strings.TrimSpace(is.Phase.String() + " " + is.URL)
			}
			if got != step.want {
				t.Errorf("%s, step %d: %q, want %q", name, i, got, step.want)
			}
		}
	}
}

// The same callback again, after a list found it wrong, is still wrong.
func TestAWrongCallbackThatIsRepeated(t *testing.T) {
	w, s, c := silent(t)
	s.lists(instance("a", "i", "running", ""))
	sent := c.now
	body := instance("a", "i", "ended", "")
	call(w, callback(sent, body))
	c.now = c.now.Add(2 * time.Minute)
	if is := list(t, w)["a"]; is.Phase != actuate.Running {
		t.Fatalf("%+v", is)
	}
	call(w, callback(sent, body))
	if is := list(t, w)["a"]; is.Phase != actuate.Running {
		t.Errorf("repeated: %+v", is)
	}
	call(w, callback(c.now, body))
	if is := list(t, w)["a"]; is.Phase != actuate.Ended {
		t.Errorf("said anew: %+v", is)
	}
}

// A create whose answer was lost is in the list, by callback and by being asked again.
func TestALostAnswer(t *testing.T) {
	w, s, c := silent(t)
	s.answers(func(out http.ResponseWriter, r *http.Request, a asked) bool {
		switch a.Action {
		case "create":
			call(w, callback(c.now, instance(a.Key, "i-"+a.Key, "pending", "")))
			return cut(out, r, a)
		case "list":
			return saying(404, "")(out, r, a)
		}
		return false
	})
	if _, err := w.Create(t.Context(), actuate.Wanted{Key: "a"}); err == nil {
		t.Fatal("half an answer was taken")
	}
	if all := list(t, w); all["a"].ID != "i-a" {
		t.Errorf("%v", all)
	}
	if err := w.Delete(t.Context(), actuate.Instance{Key: "a"}); err != nil {
		t.Fatal(err)
	}
	if all := list(t, w); all["a"].Phase != actuate.Ended {
		t.Errorf("%v", all)
	}
}

// What is heard while the list is on its way may not be in it.
func TestACallbackWhileTheListIsAskedFor(t *testing.T) {
	w, s, c := silent(t)
	s.answers(func(out http.ResponseWriter, r *http.Request, a asked) bool {
		call(w, callback(c.now, instance("b", "i", "running", "")))
		call(w, callback(c.now, instance("a", "i", "ended", "")))
		return saying(200, `{"nodes":[`+instance("a", "i", "running", "")+`]}`)(out, r, a)
	})
	if all := list(t, w); len(all) != 2 || all["a"].Phase != actuate.Ended || all["b"].Phase != actuate.Running {
		t.Errorf("%v", all)
	}
	s.lists()
	if all := list(t, w); len(all) != 0 {
		t.Errorf("%v", all)
	}
}
