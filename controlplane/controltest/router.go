package controltest

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"warmpath/controlplane"
	"warmpath/controlplane/config"
	"warmpath/controlplane/kernel"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

// Router is a running data plane and control plane.
type Router struct {
	Data    *dataplane.Dataplane
	Control *controlplane.ControlPlane
	Fleet   *fleet.Holder
	Index   *index.Index
	Log     *Log

	kernel *kernel.Plane // nil with kernel.mode auto or off

	mu   sync.Mutex
	text string // guarded by mu: the configuration that a reload reads
}

// Two loops, little memory, and a fleet that comes up, falls and comes back
// within a second.
const (
	small = "loops: 2\nindex: {memory: 16MiB}\n"
	quick = "health: {interval: 200ms, interval_down: 100ms, timeout: 2s, down_after: 2, up_after: 1}\n"
)

// complete adds what every test wants to text.
func complete(text string) string {
	if !strings.Contains(text, "health:") {
		text = quick + text
	}
	return small + text
}

// Start runs a router until the test ends. text is its configuration; probes
// have short intervals unless it says otherwise.
func Start(t testing.TB, text string) *Router {
	t.Helper()
	r := StartData(t, text)
	r.StartControl(t)
	t.Cleanup(r.Control.Stop)
	return r
}

// StartData runs the data plane alone until the test ends.
func StartData(t testing.TB, text string) *Router {
	t.Helper()
	r := &Router{Fleet: fleet.NewHolder(), Log: &Log{}, text: complete(text)}
	c := r.config(t)
	settings, err := controlplane.DataplaneSettings(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r.Index = index.New(index.Options{MemoryBytes: c.Index.MemoryBytes})
	if mode := c.Kernel.Mode; mode != "auto" && mode != "off" { // else the kernel's programs are left out
		if r.kernel, err = kernel.Open(controlplane.KernelOptions(c, slog.New(slog.DiscardHandler))); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.kernel.Close)
	}
	r.Data, err = dataplane.Start(dataplane.Options{
		Listener: l, Loops: c.Loops, Fleet: r.Fleet, Index: r.Index, Settings: settings, Decisions: c.Decisions.Keep, Flow: r.kernel.Table(), Time: r.kernel.NeedsLoops(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Data.Stop() })
	return r
}

// StartControl runs the control plane until its Stop.
func (r *Router) StartControl(t testing.TB) {
	t.Helper()
	c := *r.config(t)
	seed, err := controlplane.Seed(&c, "")
	if err != nil {
		t.Fatal(err)
	}
	c.Seed = seed
	r.Control, err = controlplane.Start(controlplane.Options{
		Config: &c, Fleet: r.Fleet, Index: r.Index, Dataplane: r.Data, Kernel: r.kernel, Log: slog.New(slog.NewTextHandler(r.Log, nil)),
		Reread: func() (*config.Config, error) { return r.parse() },
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *Router) parse() (*config.Config, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return config.Parse("test", []byte(r.text))
}

func (r *Router) config(t testing.TB) *config.Config {
	t.Helper()
	c, err := r.parse()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Rewrite replaces the text that Start was given, for the next reload.
func (r *Router) Rewrite(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text = complete(text)
}

// Node returns the named node of the published snapshot, nil if there is none.
func (r *Router) Node(name string) *fleet.Node {
	for _, n := range r.Fleet.Load().Nodes {
		if n != nil && n.Name == name {
			return n
		}
	}
	return nil
}

// WaitState waits until the named node is published in a state; "" means that
// it is not published.
func (r *Router) WaitState(t testing.TB, name, state string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("node %s is %q", name, state), func() bool {
		n := r.Node(name)
		return n == nil && state == "" || n != nil && n.State.String() == state
	})
}

// WaitServed waits until the named node is ready and has named its models.
func (r *Router) WaitServed(t testing.TB, name, model string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("node %s serves %q", name, model), func() bool {
		n, snap := r.Node(name), r.Fleet.Load()
		i := snap.ModelIndex([]byte(model))
		if n == nil || !n.Available() || i < 0 {
			return false
		}
		for _, slot := range snap.Models[i].Slots {
			if slot == n.Slot {
				return true
			}
		}
		return false
	})
}

// Chat is a request body with a prompt of at least that many bytes.
func Chat(model string, promptBytes int) []byte {
	return fmt.Appendf(nil, `{"model":%q,"max_tokens":16,"messages":[{"role":"user","content":%q}]}`, model, strings.Repeat("warm path ", promptBytes/10+1))
}

// Ask sends a body to the router and returns status and X-Routed-To.
func (r *Router) Ask(t testing.TB, body []byte, id string) (status int, node string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Data.Addr().String()+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", id)
	req.Close = true // leaves no connection behind
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("X-Routed-To")
}

// Log keeps what was logged.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String is all that was logged so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
