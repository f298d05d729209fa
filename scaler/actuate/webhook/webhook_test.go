package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/actuatetest"
)

func TestConforms(t *testing.T) {
	s := newServer(t)
	opens := func(fleet string, change func(*Options)) actuatetest.New {
		return func(t *testing.T) actuate.Actuator {
			o := s.options(fleet)
			change(&o)
			return open(t, o)
		}
	}
	actuatetest.Conforms(t, opens("ours", func(*Options) {}), actuatetest.OtherFleet(opens("theirs", func(*Options) {})), actuatetest.Model("m"),
		actuatetest.Refuses("a wrong secret", actuate.Credential, opens("ours", func(o *Options) { o.Secret = []byte("another secret of the same kind") }), "401", "who are you?"))
}

// A server without a list conforms as far as one actuator goes.
func TestNoList(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusNotImplemented} {
		s := newServer(t)
		s.answers(func(out http.ResponseWriter, r *http.Request, a asked) bool {
			return a.Action == "list" && saying(status, "no such action")(out, r, a)
		})
		var log strings.Builder
		o := s.options("f1")
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		w := open(t, o)
		if all := list(t, w); len(all) != 0 || !w.Partial() {
			t.Errorf("at first: %v, partial %v", all, w.Partial())
		}
		a, err := w.Create(t.Context(), actuate.Wanted{Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if again, err := w.Create(t.Context(), actuate.Wanted{Key: "a"}); err != nil || again != a {
			t.Errorf("again: %+v, %v", again, err)
		}
		call(w, callback(time.Now(), instance("b", "i-b", "running", `,"url":"http://h:1"`)))
		if all := list(t, w); len(all) != 2 || all["a"].Phase != actuate.Pending || all["b"].URL != "http://h:1" {
			t.Errorf("two: %v", all)
		}
		if err := w.Delete(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		call(w, callback(time.Now(), instance("a", "i-a", "running", ""))) // late
		call(w, callback(time.Now(), instance("b", "i-b", "ended", `,"detail":"preempted"`)))
		if all := list(t, w); all["a"].Phase != actuate.Ended || all["b"].Phase != actuate.Ended || all["b"].Detail != "preempted" {
			t.Errorf("none: %v", all)
		}
		if again, err := w.Create(t.Context(), actuate.Wanted{Key: "a"}); err != nil || again.Phase != actuate.Pending || list(t, w)["a"].Phase != actuate.Pending {
			t.Errorf("made again: %+v, %v, %v", again, err, list(t, w))
		}
		if said := strings.Count(log.String(), "lists no nodes"); said != 1 {
			t.Errorf("it was said %d times", said)
		}
		s.answers(nil)
		if list(t, w); w.Partial() {
			t.Error("it has a list now")
		}
	}
}

func TestWhatTheServerIsAsked(t *testing.T) {
	s := newServer(t)
	o := s.options("f1")
	o.Settings = map[string]string{"zone": "b"}
	w := open(t, o)
	if i, err := w.Create(t.Context(), actuate.Wanted{Key: "a", Model: "m"}); err != nil || i != (actuate.Instance{Key: "a", ID: "i-a"}) {
		t.Errorf("%+v, %v", i, err)
	}
	if want := (asked{"create", "f1", "a", "m", "", o.CallbackURL, o.Settings, "a"}); !reflect.DeepEqual(s.last, want) {
		t.Errorf("asked %+v, want %+v", s.last, want)
	}
	if err := w.Delete(t.Context(), actuate.Instance{Key: "a", ID: "i-a"}); err != nil {
		t.Error(err)
	}
	if want := (asked{"delete", "f1", "a", "", "i-a", "", o.Settings, ""}); !reflect.DeepEqual(s.last, want) {
		t.Errorf("asked %+v, want %+v", s.last, want)
	}
	list(t, w)
	if want := (asked{"list", "f1", "", "", "", "", o.Settings, ""}); !reflect.DeepEqual(s.last, want) {
		t.Errorf("asked %+v, want %+v", s.last, want)
	}
}

func TestWhatStatusesMean(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		status int
		body   string
		reason actuate.Reason
		words  string
	}{
		{401, "bad key", actuate.Credential, "status 401 Unauthorized: bad key"},
		{403, "", actuate.Credential, "403 Forbidden, and no word why"},
		{402, "pay first", actuate.Quota, "402 Payment Required: pay first"},
		{429, "slowly", actuate.Quota, "slowly"},
		{429, `{"refused":{"reason":"capacity","message":"no H100 left in eu"}}`, actuate.Capacity, "no H100 left in eu"},
		{402, `{"refused":{"reason":"quota","message":"budget is used up"}}`, actuate.Quota, "budget is used up"},
		{400, "no image ami-1", actuate.Settings, "400 Bad Request: no image ami-1"},
		{404, "not here", actuate.Settings, "404 Not Found: not here"},
		{422, long, actuate.Settings, long[:mostWords]},
		{302, "", actuate.Settings, `sends us to "http://elsewhere/"`},
		{200, `{"refused":{"reason":"settings","message":"no such zone"}}`, actuate.Settings, "no such zone"},
	} {
		s := newServer(t)
		s.answers(func(out http.ResponseWriter, r *http.Request, a asked) bool {
			out.Header().Set("Location", "http://elsewhere/")
			return saying(c.status, c.body)(out, r, a)
		})
		_, err := open(t, s.options("f1")).Create(t.Context(), actuate.Wanted{Key: "a"})
		if r := actuate.AsRefusal(err); r == nil || r.Reason != c.reason || !strings.Contains(err.Error(), c.words) || len(err.Error()) > mostWords+300 {
			t.Errorf("%d %.80q: %.300v, want a refusal for %v with %.80q", c.status, c.body, err, c.reason, c.words)
		}
		if s.asks != 1 {
			t.Errorf("%d: asked %d times", c.status, s.asks)
		}
	}
}

// cut answers with half of an answer and cuts the connection.
func cut(out http.ResponseWriter, _ *http.Request, _ asked) bool {
	c, buffer, err := http.NewResponseController(out).Hijack()
	if err != nil {
		return false
	}
	_, _ = buffer.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"nodes\":[")
	_ = buffer.Flush()
	_ = c.Close()
	return true
}

func TestWhatNobodyKnows(t *testing.T) {
	for _, c := range []struct {
		name, words string
		answer      func(http.ResponseWriter, *http.Request, asked) bool
	}{
		{"500", "status 500 Internal Server Error: oops", saying(500, "oops")},
		{"501", "status 501", saying(501, "")},
		{"503 with a refusal", "status 503", saying(503, `{"refused":{"reason":"quota","message":"x"}}`)},
		{"408", "status 408", saying(408, "")},
		{"no JSON", "status 200 OK: answer to create", saying(200, "<html>")},
		{"no node", "nodes is empty", saying(200, `{"nodes":[]}`)},
		{"another node", `want "a"`, saying(200, `{"nodes":[`+instance("b", "i", "pending", "")+`]}`)},
		{"too much", "more than 1048576 bytes", saying(200, strings.Repeat(" ", 1<<20+1))},
		{"half", "half of an answer: unexpected EOF", cut},
		{"hangs", "no answer within 300ms", func(out http.ResponseWriter, r *http.Request, _ asked) bool {
			<-r.Context().Done()
			return true
		}},
		{"hangs within", "no answer within 300ms", func(out http.ResponseWriter, r *http.Request, _ asked) bool {
			_, _ = out.Write([]byte(`{"nodes":[`))
			_ = http.NewResponseController(out).Flush()
			<-r.Context().Done()
			return true
		}},
	} {
		s := newServer(t)
		s.answers(c.answer)
		o := s.options("f1")
		if strings.Contains(c.name, "hangs") {
			o.Timeout = 300 * time.Millisecond
		}
		_, err := open(t, o).Create(t.Context(), actuate.Wanted{Key: "a"})
		if err == nil || actuate.AsRefusal(err) != nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %.300v, want %q", c.name, err, c.words)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	w := open(t, Options{URL: "http://" + l.Addr().String(), Secret: secret, Fleet: "f1"})
	if _, err := w.List(t.Context()); err == nil || actuate.AsRefusal(err) != nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.List(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// What an operator puts into the URL for the server alone is in no error and in no log.
func TestURLIsKept(t *testing.T) {
	s := newServer(t)
	var log strings.Builder
	o := s.options("f1")
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	o.URL = strings.Replace(s.url, "http://", "http://user:hunter2@", 1) + "/nodes?api_key=hunter2"
	check := func(what string, err error, words string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q and no secret", what, err, words)
		}
	}
	w := open(t, o)
	s.answers(func(out http.ResponseWriter, r *http.Request, a asked) bool {
		out.Header().Set("Location", "/nodes/?"+r.URL.RawQuery)
		return saying(http.StatusPermanentRedirect, "")(out, r, a)
	})
	_, err := w.List(t.Context())
	check("sent elsewhere", err, `sends us to "/nodes/"`)
	s.answers(saying(http.StatusNotImplemented, ""))
	list(t, w)
	if !strings.Contains(log.String(), "lists no nodes") || strings.Contains(log.String(), "hunter2") {
		t.Errorf("log: %s", log.String())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	place := "http://" + l.Addr().String() + "/nodes"
	o.URL = strings.Replace(place, "http://", "http://user:hunter2@", 1) + "?api_key=hunter2"
	_, err = open(t, o).List(t.Context())
	check("nobody there", err, fmt.Sprintf("Post %q: dial tcp", place))
	for _, wrong := range []string{"ftp://user:hunter2@h/nodes?api_key=hunter2", "https://h/%zz?api_key=hunter2"} {
		o.URL, o.CallbackURL = wrong, ""
		_, err = New(o)
		check("a wrong URL", err, "url ")
		o.URL, o.CallbackURL = s.url, wrong
		_, err = New(o)
		check("a wrong callback URL", err, "callback url ")
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	good := Options{URL: "https://h/x", Secret: secret, Fleet: "f1"}
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.URL = "h/x" }, `url "h/x"`},
		{func(o *Options) { o.URL = "http://h:port" }, "url"},
		{func(o *Options) { o.CallbackURL = "/x" }, `callback url "/x"`},
		{func(o *Options) { o.Secret = []byte("short") }, "secret has 5 bytes"},
		{func(o *Options) { o.Fleet = "A" }, "fleet"},
		{func(o *Options) { o.Timeout = -1 }, "timeout"},
		{func(o *Options) { o.Settings = map[string]string{"a": strings.Repeat("x", 40<<10)} }, "settings"},
	} {
		o := good
		c.change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(fmt.Sprint(err), string(secret)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	w := open(t, good)
	_ = w.Close()
	if _, err := w.List(t.Context()); err == nil {
		t.Error("List after Close succeeded")
	}
	if err := open(t, good).Delete(t.Context(), actuate.Instance{}); err == nil {
		t.Error("nothing was named, and it was no error")
	}
}
