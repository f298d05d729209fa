package provide_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/controlplane/config"
	"warmpath/controlplane/provide"
	"warmpath/scaler"
	"warmpath/scaler/actuate"
)

// offers reads the offers of a configuration.
func offers(t *testing.T, text string) *config.Scaler {
	t.Helper()
	c, err := config.Parse("test", []byte("nodes: []\nscaler: {enabled: true, interval: 10s, offers: ["+text+"]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return &c.Scaler
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// An offer that cannot be made says why, and is made once its cause is gone.
func TestLateOffers(t *testing.T) {
	folder := t.TempDir()
	secret, logs := filepath.Join(folder, "secret"), filepath.Join(folder, "logs")
	write(t, logs, "a file where a folder should be")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"nodes":[]}`) }))
	defer server.Close()
	var log bytes.Buffer
	a := provide.New(offers(t, fmt.Sprintf(`{name: hook, provider: webhook, webhook: {url: %q, secret_file: %q}},
		{name: local, provider: process, process: {command: [x], first_port: 20000, last_port: 20001, log_dir: %q}},
		{name: both, provider: process, process: {command: [x, "{port+1}"], first_port: 20000, last_port: 20001}}`, server.URL, secret, logs)),
		provide.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for offer, words := range map[string]string{
		"hook": "read webhook.secret_file: open " + secret, "local": "not a directory", "both": "another node's",
	} {
		one := a.ByOffer[offer]
		_, listed := one.List(t.Context())
		_, created := one.Create(t.Context(), actuate.Wanted{Key: "k"})
		deleted := one.Delete(t.Context(), actuate.Instance{Key: "k"})
		for _, err := range []error{listed, created, deleted} {
			if r := actuate.AsRefusal(err); r == nil || r.Reason != actuate.Settings || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v, want a refusal for settings with %q", offer, err, words)
			}
		}
	}
	if a.Callback("local", nil) != nil || a.Callback("nobody", nil) != nil {
		t.Error("callbacks are taken for offers that have none")
	}
	h := a.Callback("hook", func() { t.Error("a callback counts that nobody could check") })
	answer := httptest.NewRecorder()
	if h.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", nil)); answer.Code != http.StatusServiceUnavailable || strings.Contains(answer.Body.String(), secret) {
		t.Errorf("a callback before the secret: %d %q", answer.Code, answer.Body)
	}
	write(t, secret, "  sixteen bytes and more \n")
	if err := os.Remove(logs); err != nil {
		t.Fatal(err)
	}
	for _, offer := range []string{"hook", "local"} {
		if nodes, err := a.ByOffer[offer].List(t.Context()); err != nil || len(nodes) != 0 {
			t.Errorf("%s: %v, %v after its cause is gone", offer, nodes, err)
		}
	}
	answer = httptest.NewRecorder()
	if h.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}"))); answer.Code != http.StatusUnauthorized {
		t.Errorf("a callback that nobody signed: %d %q", answer.Code, answer.Body)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if _, err := a.ByOffer["both"].List(t.Context()); err == nil || strings.Contains(err.Error(), "another") {
		t.Errorf("after the end: %v", err)
	}
}

// A secret that was wrong and was corrected in its file is used at once, both ways, and
// what is known of the nodes stays.
func TestSecretIsCorrected(t *testing.T) {
	const right, wrong = "the right secret of both", "another one, of a mistake"
	signed := func(h http.Header, secret string, body []byte) bool {
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = fmt.Fprintf(mac, "%s.%s", h.Get("X-Warmpath-Timestamp"), body)
		return h.Get("X-Warmpath-Signature") == "sha256="+hex.EncodeToString(mac.Sum(nil))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case !signed(r.Header, right, body):
			w.WriteHeader(http.StatusUnauthorized)
		case bytes.Contains(body, []byte(`"create"`)):
			_, _ = fmt.Fprint(w, `{"nodes":[{"key":"a","id":"i-a","phase":"pending"}]}`)
		default: // it has no list: what the actuator has heard is all that is known
			w.WriteHeader(http.StatusNotImplemented)
		}
	}))
	defer server.Close()
	secret := write(t, filepath.Join(t.TempDir(), "secret"), right)
	var log bytes.Buffer
	a := provide.New(offers(t, fmt.Sprintf(`{name: hook, provider: webhook, webhook: {url: %q, secret_file: %q}}`, server.URL, secret)), provide.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	defer a.Close()
	one := a.ByOffer["hook"]
	if _, err := one.Create(t.Context(), actuate.Wanted{Key: "a"}); err != nil {
		t.Fatal(err)
	}
	write(t, secret, wrong)
	if _, err := one.List(t.Context()); actuate.AsRefusal(err) == nil || actuate.AsRefusal(err).Reason != actuate.Credential {
		t.Errorf("with a wrong secret: %v", err)
	}
	write(t, secret, right+"\n")
	if nodes, err := one.List(t.Context()); err != nil || len(nodes) != 1 || nodes[0].ID != "i-a" {
		t.Errorf("corrected: %v, %v", nodes, err)
	}
	for _, text := range []string{"", "short"} { // somebody writes it just now
		write(t, secret, text)
		for range 2 {
			if _, err := one.List(t.Context()); err != nil {
				t.Errorf("half written: %v", err)
			}
		}
	}
	if n := strings.Count(log.String(), "secret cannot be used"); n != 2 {
		t.Errorf("the log says it %d times, want once for each cause: %s", n, log.String())
	}
	callback := func(secret string) int {
		body := `{"key":"a","id":"i-a","phase":"running"}`
		stamp := fmt.Sprint(time.Now().Unix())
		mac := hmac.New(sha256.New, []byte(secret))
		_, _ = fmt.Fprintf(mac, "%s.%s", stamp, body)
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("X-Warmpath-Timestamp", stamp)
		r.Header.Set("X-Warmpath-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		answer := httptest.NewRecorder()
		a.Callback("hook", func() {}).ServeHTTP(answer, r)
		return answer.Code
	}
	write(t, secret, wrong)
	if code := callback(right); code != http.StatusUnauthorized {
		t.Errorf("a callback signed with the secret before: %d", code)
	}
	if code := callback(wrong); code != http.StatusNoContent {
		t.Errorf("a callback signed with the secret of now: %d", code)
	}
}

// Of a server without a list the list is never whole, whenever it was made.
func TestLatePartial(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	a := provide.New(offers(t, fmt.Sprintf(`{name: hook, provider: webhook, webhook: {url: %q, secret_file: %q}}`, server.URL, secret)), provide.Options{Log: slog.New(slog.DiscardHandler)})
	defer a.Close()
	partial := func() bool {
		p, ok := a.ByOffer["hook"].(interface{ Partial() bool })
		return ok && p.Partial()
	}
	if partial() {
		t.Error("partial before it was made")
	}
	write(t, secret, "sixteen bytes and more")
	if _, err := a.ByOffer["hook"].List(t.Context()); err != nil || !partial() {
		t.Errorf("%v, partial %v", err, partial())
	}
}

// routers are none: what the scaler publishes is kept.
type routers struct{ nodes []scaler.Owned }

func (r *routers) Signals(nowNs int64) scaler.Signals {
	s := scaler.Signals{NowNs: nowNs}
	for _, n := range r.nodes {
		s.Nodes = append(s.Nodes, scaler.Node{Name: n.Key, Phase: scaler.Ready})
	}
	return s
}

func (r *routers) Watch() (seen []scaler.Watch, ok bool) {
	for _, n := range r.nodes {
		seen = append(seen, scaler.Watch{Key: n.Key, Phase: scaler.Ready})
	}
	return seen, true
}
func (r *routers) Publish(nodes []scaler.Owned) { r.nodes = nodes }
func (r *routers) Drain(string, bool)           {}

// quotaScript refuses until a file is there.
const quotaScript = `#!/bin/sh
asked=$(cat)
key=${asked#*\"key\":\"}
key=${key%%%%\"*}
case "$asked" in
*'"action":"create"'*)
	echo x >> %[1]q/creates
	if [ -e %[1]q/free ]; then
		echo "{\"nodes\":[{\"key\":\"$key\",\"id\":\"$key\",\"phase\":\"running\",\"url\":\"http://127.0.0.1:9\"}]}" | tee %[1]q/made
	else
		echo '{"refused":{"reason":"quota","message":"4 of 4 cards are in use"}}'
	fi ;;
*) [ -e %[1]q/made ] && cat %[1]q/made || echo '{"nodes":[]}' ;;
esac
`

// An offer that was refused is left alone for a time, said once, and comes back: with
// the real script, in virtual time.
func TestWithheldComesBack(t *testing.T) {
	folder := t.TempDir()
	script := write(t, filepath.Join(folder, "quota"), fmt.Sprintf(quotaScript, folder))
	c := offers(t, fmt.Sprintf(`{name: script, provider: command, command: {create: [%[1]q], delete: [%[1]q], list: [%[1]q]}}`, script))
	c.Min = 2
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		opt := provide.Options{Environ: []string{"PATH=/usr/bin:/bin"}, Log: slog.New(slog.NewTextHandler(&log, nil))}
		a := provide.New(c, opt)
		r := &routers{}
		loop := scaler.NewLoop(scaler.LoopOptions{Config: provide.Config(c), Book: provide.Book(c, 0), Actuators: a.ByOffer, Routers: r, Log: opt.Log})
		go loop.Run(t.Context())
		synctest.Wait()
		withheld := func() string { return loop.Status().Offers[0].Withheld }
		after := func(d time.Duration) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
		}
		after(30 * time.Second)
		creates := func() int {
			text, _ := os.ReadFile(filepath.Join(folder, "creates"))
			return bytes.Count(text, []byte("x"))
		}
		if why := withheld(); !strings.HasSuffix(why, "refused for quota: 4 of 4 cards are in use") || creates() != 2 {
			t.Errorf("withheld for %q after %d calls", why, creates())
		}
		after(4 * time.Minute)
		if why := withheld(); why == "" || creates() != 2 {
			t.Errorf("it was asked again after 4 min 30 s: %q, %d calls", why, creates())
		}
		if n := strings.Count(log.String(), "an offer gives no node"); n != 1 {
			t.Errorf("the log says it %d times: %s", n, log.String())
		}
		write(t, filepath.Join(folder, "free"), "")
		after(time.Minute)
		if why := withheld(); why != "" || creates() != 4 || len(r.nodes) != 2 {
			t.Errorf("its cause is gone: withheld for %q, %d calls, nodes %+v", why, creates(), r.nodes)
		}
	})
}
