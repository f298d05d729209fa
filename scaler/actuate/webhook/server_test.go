package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"warmpath/scaler/actuate"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

// server is a provider behind a webhook.
type server struct {
	t    *testing.T
	url  string
	mu   sync.Mutex
	made map[string]map[string]bool // fleet → keys
	asks int
	last asked
	// instead answers in place of it, if it returns true.
	instead func(out http.ResponseWriter, r *http.Request, a asked) bool
}

// asked is a request as a provider reads it.
type asked struct {
	Action, Fleet, Key, Model, ID, Callback string
	Settings                                map[string]string
	idempotency                             string
}

func newServer(t *testing.T) *server {
	s := &server{t: t, made: map[string]map[string]bool{}}
	h := httptest.NewServer(s)
	s.url = h.URL
	t.Cleanup(h.Close)
	return s
}

// instance is a node as JSON.
func instance(key, id, phase, more string) string {
	return fmt.Sprintf(`{"key":%q,"id":%q,"phase":%q%s}`, key, id, phase, more)
}

func (s *server) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var a asked
	if err := json.Unmarshal(body, &a); err != nil {
		s.t.Errorf("asked %q: %v", body, err)
	}
	a.idempotency = r.Header.Get("Idempotency-Key")
	if got := r.Header.Get("X-Warmpath-Signature"); got != signature(secret, r.Header.Get("X-Warmpath-Timestamp"), string(body)) {
		http.Error(out, "who are you?", http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asks++
	s.last = a
	if s.instead != nil && s.instead(out, r, a) {
		return
	}
	fleet := s.made[a.Fleet]
	if fleet == nil {
		fleet = map[string]bool{}
		s.made[a.Fleet] = fleet
	}
	var nodes []string
	switch a.Action {
	case "create":
		fleet[a.Key] = true
		nodes = append(nodes, instance(a.Key, "i-"+a.Key, "pending", ""))
	case "delete":
		if a.ID == "" || a.ID == "i-"+a.Key {
			delete(fleet, a.Key)
		}
	case "list":
		for _, key := range slices.Sorted(maps.Keys(fleet)) {
			nodes = append(nodes, instance(key, "i-"+key, "running", `,"url":"http://10.0.0.1:8000/`+key+`"`))
		}
	}
	_, _ = fmt.Fprintf(out, `{"nodes":[%s]}`, strings.Join(nodes, ","))
}

// answers makes the server answer all that is asked in one way.
func (s *server) answers(f func(out http.ResponseWriter, r *http.Request, a asked) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.instead = f
}

// saying is an answer with a status and a body.
func saying(status int, body string) func(http.ResponseWriter, *http.Request, asked) bool {
	return func(out http.ResponseWriter, _ *http.Request, _ asked) bool {
		out.WriteHeader(status)
		_, _ = io.WriteString(out, body)
		return true
	}
}

func (s *server) options(fleet string) Options {
	return Options{URL: s.url, Secret: secret, Fleet: fleet, CallbackURL: "http://127.0.0.1/callback", Timeout: 10 * time.Second}
}

func open(t *testing.T, o Options) *Webhook {
	t.Helper()
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// signature is what a provider would compute, by its own code.
func signature(secret []byte, timestamp, body string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(timestamp + "." + body))
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// callback is a provider's callback, signed.
func callback(at time.Time, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/callback", strings.NewReader(body))
	timestamp := strconv.FormatInt(at.Unix(), 10)
	r.Header.Set("X-Warmpath-Timestamp", timestamp)
	r.Header.Set("X-Warmpath-Signature", signature(secret, timestamp, body))
	return r
}

// call delivers a callback and returns status and text.
func call(w *Webhook, r *http.Request) (int, string) {
	out := httptest.NewRecorder()
	w.ServeHTTP(out, r)
	return out.Code, out.Body.String()
}

// list is what is listed, by key.
func list(t *testing.T, w *Webhook) map[string]actuate.Instance {
	t.Helper()
	all, err := w.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byKey := map[string]actuate.Instance{}
	for _, i := range all {
		if was, twice := byKey[i.Key]; twice {
			t.Fatalf("listed twice: %+v, %+v", was, i)
		}
		byKey[i.Key] = i
	}
	return byKey
}
