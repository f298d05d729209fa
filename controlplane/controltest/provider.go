package controltest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const providerSecret = "sixteen bytes and more"

// Provider is a server that makes nodes for webhook offers: of engines that it was
// given, as long as it has any.
type Provider struct {
	server *httptest.Server
	secret string // file

	mu     sync.Mutex
	status int               // of its refusal; 0 = it gives
	words  string            // with it
	free   []string          // URLs
	made   map[string]string // URL by key
	asked  map[string]int    // by action
}

// StartProvider runs a provider until the test ends.
func StartProvider(t testing.TB, urls ...string) *Provider {
	t.Helper()
	p := &Provider{free: urls, made: map[string]string{}, asked: map[string]int{}, secret: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(p.secret, []byte(providerSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.server = httptest.NewServer(p)
	t.Cleanup(p.server.Close)
	return p
}

// URL is where it is asked.
func (p *Provider) URL() string { return p.server.URL }

// Offer is an offer of it, for scaler.offers.
func (p *Provider) Offer(name string) string {
	return fmt.Sprintf("{name: %s, provider: webhook, webhook: {url: %q, secret_file: %q}}", name, p.server.URL, p.secret)
}

// Refuse has it answer everything with a status and words; 0 = it gives again.
func (p *Provider) Refuse(status int, words string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status, p.words = status, words
}

// Made are the keys of the nodes that there are.
func (p *Provider) Made() (keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.made {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Asked is how often it was asked to do something: create, delete or list.
func (p *Provider) Asked(action string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[action]
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Action, Key string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[asked.Action]++
	if p.status != 0 {
		w.WriteHeader(p.status)
		_, _ = io.WriteString(w, p.words)
		return
	}
	switch url := p.made[asked.Key]; {
	case asked.Action == "delete" && url != "":
		delete(p.made, asked.Key)
		p.free = append(p.free, url)
	case asked.Action == "create" && url == "" && len(p.free) == 0:
		_, _ = io.WriteString(w, `{"refused":{"reason":"capacity","message":"none is left"}}`)
		return
	case asked.Action == "create" && url == "":
		p.made[asked.Key], p.free = p.free[0], p.free[1:]
	}
	nodes := []map[string]string{}
	for key, url := range p.made {
		if asked.Action == "list" || key == asked.Key {
			nodes = append(nodes, map[string]string{"key": key, "id": "at-" + key, "phase": "running", "url": url})
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"nodes": nodes})
}

// Callback is what it would send to tell of a node, signed as of now.
func (p *Provider) Callback(url, body string) *http.Request {
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		panic("BUG: controltest: " + err.Error())
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(providerSecret))
	_, _ = io.WriteString(mac, now+"."+body)
	r.Header.Set("X-Warmpath-Timestamp", now)
	r.Header.Set("X-Warmpath-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	return r
}
