package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// routerRetries is retry.retries.
const routerRetries = 2

// policies take turns as the configuration is loaded again.
var policies = []string{"cost", "least_requests", "cache_aware", "p2c", "prefix_hash", "round_robin", "session", "weighted"}

// router is the router under test: the process that serves now.
type router struct {
	run    *run
	dir    string // of its configuration and its log
	admin  string // host:port
	client *http.Client

	mu      sync.Mutex
	process *process // that serves
	all     []*process
	policy  int
	without int // the node that the configuration leaves out; -1 = none
}

// process is one process of the router.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	asked bool          // its end is expected; guarded by router.mu
}

func nodeName(i int) string { return "soak-" + strconv.Itoa(i) }

// freeAddresses returns addresses of loopback that nobody listens on. Their
// ports lie below those that connections get by themselves, so that a listener
// that is closed can come back.
func freeAddresses(n int) ([]string, error) {
	const lowest, highest = 20000, 31999
	var found []string
	for port := lowest + os.Getpid()%(highest-lowest); port < 2*highest && len(found) < n; port++ {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+(port-lowest)%(highest-lowest))
		ln, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		_ = ln.Close()
		found = append(found, address)
	}
	if len(found) < n {
		return nil, fmt.Errorf("find %d free ports from %d to %d: only %d are", n, lowest, highest, len(found))
	}
	return found, nil
}

func startRouter(run *run, admin string) (*router, error) {
	dir, err := os.MkdirTemp("", "warmpath-soak-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the router: %w", err)
	}
	r := &router{run: run, dir: dir, admin: admin, without: -1, client: &http.Client{Timeout: 30 * time.Second}}
	if err := r.configure(""); err != nil {
		return r, err
	}
	if r.process, err = r.launch(); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return r, r.ready(ctx)
}

func (r *router) file(name string) string { return filepath.Join(r.dir, name) }

// configure writes the configuration. more is a line that may be wrong.
func (r *router) configure(more string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "listen: %s\nadmin: {listen: %q}\n", r.run.address, r.admin)
	b.WriteString("nodes:\n")
	for _, n := range r.run.nodes {
		if n.number != r.without {
			fmt.Fprintf(&b, "  - {name: %s, url: \"http://%s\"}\n", n.name, n.address)
		}
	}
	fmt.Fprintf(&b, "policy: {name: %s}\n", policies[r.policy%len(policies)])
	fmt.Fprintf(&b, "timeouts: {connect: 2s, head: 10s, first_event: %v, idle_stream: %v, request: 30s, idle_client: %ds, idle_node: %ds, drain_node: 20s, drain_process: 60s}\n",
		firstEventLimit, idleStreamLimit, 30+r.policy%5, 1+r.policy%3)
	fmt.Fprintf(&b, "limits: {head_bytes: %d, body_bytes: %d}\n", maxRouterHead, bodyBytes)
	fmt.Fprintf(&b, "retry: {retries: %d}\n", routerRetries)
	b.WriteString(`health: {interval: 1s, interval_down: 300ms, timeout: 3s, down_after: 2, up_after: 1}
breaker: {failures: 5, open: 1s, probe_timeout: 2s}
index: {memory: 64MiB, memo: 16MiB, approximate_ttl: 20s}
decisions: {keep: 1000}
log: {level: warn, format: json}
`)
	for _, line := range append(r.run.Config, more) {
		b.WriteString(line + "\n")
	}
	// In one step: the router may read it at any time.
	if err := os.WriteFile(r.file("next.yaml"), []byte(b.String()), 0o600); err != nil {
		return fmt.Errorf("write the router's configuration: %w", err)
	}
	if err := os.Rename(r.file("next.yaml"), r.file("warmpath.yaml")); err != nil {
		return fmt.Errorf("write the router's configuration: %w", err)
	}
	return nil
}

// launch starts a process of the router.
func (r *router) launch() (*process, error) {
	log, err := os.OpenFile(r.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the router's log: %w", err)
	}
	defer log.Close()
	p := &process{cmd: exec.Command(r.run.Warmpath, "serve", "--config", r.file("warmpath.yaml")), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing outlives an aborted run
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the router: %w", err)
	}
	r.mu.Lock()
	r.all = append(r.all, p)
	r.mu.Unlock()
	go func() {
		_ = p.cmd.Wait() // its code is all that matters
		r.mu.Lock()
		asked := p.asked
		r.mu.Unlock()
		if !asked {
			r.run.violate(nil, "the router (process %d) ended: %v\n%s", p.cmd.Process.Pid, p.cmd.ProcessState, r.lastLog())
		}
		close(p.ended)
	}()
	return p, nil
}

// pid is that of the process that serves.
func (r *router) pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process.cmd.Process.Pid
}

// current is the process that serves.
func (r *router) current() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process
}

// end stops the router and removes its folder.
func (r *router) end(ctx context.Context) {
	r.mu.Lock()
	all := r.all
	r.mu.Unlock()
	for _, p := range all {
		r.expectEnd(p)
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // the second one does not wait for what is under way
		select {
		case <-p.ended:
		case <-ctx.Done():
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
	}
	r.client.CloseIdleConnections()
	_ = os.RemoveAll(r.dir)
}

func (r *router) expectEnd(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.asked = true
}

// ready waits until all configured nodes are ready.
func (r *router) ready(ctx context.Context) error {
	for {
		nodes, err := r.nodes(ctx)
		if err == nil {
			ready := 0
			for _, n := range nodes {
				if n.State == "ready" && len(n.Models) > 0 {
					ready++
				}
			}
			if ready == len(r.run.nodes) {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the router to be ready: %w (%v)\n%s", ctx.Err(), err, r.lastLog())
		case <-r.current().ended:
			return fmt.Errorf("the router has ended\n%s", r.lastLog())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// lastLog is the end of what the router has logged.
func (r *router) lastLog() string {
	text, _ := os.ReadFile(r.file("log"))
	if at := bytes.Index(text, []byte("panic: ")); at >= 0 {
		text = text[at:]
		return string(text[:min(len(text), 4000)])
	}
	return string(text[max(0, len(text)-2000):])
}

// crashed returns what the router has logged of a crash or a race, "" if there
// was none.
func (r *router) crashed() string {
	text, err := os.ReadFile(r.file("log"))
	if err != nil {
		return err.Error()
	}
	for _, sign := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
		if at := bytes.Index(text, []byte(sign)); at >= 0 {
			return string(text[at:min(len(text), at+4000)])
		}
	}
	return ""
}

// ask sends a request to the admin side and returns its answer.
func (r *router) ask(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.admin+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, body)
	}
	return body, nil
}

// nodeView is what the router says of a node.
type nodeView struct {
	Name     string   `json:"name"`
	State    string   `json:"state"`
	Models   []string `json:"models"`
	InFlight int64    `json:"in_flight"`
	Tokens   int64    `json:"in_flight_tokens"`
	Prefill  int64    `json:"in_flight_prefill_tokens"`
}

func (r *router) nodes(ctx context.Context) ([]nodeView, error) {
	body, err := r.ask(ctx, http.MethodGet, "/api/nodes")
	if err != nil {
		return nil, err
	}
	var nodes []nodeView
	if err := json.Unmarshal(body, &nodes); err != nil {
		return nil, fmt.Errorf("read the router's nodes: %w", err)
	}
	return nodes, nil
}

// active is how many requests the router takes to be under way.
func (r *router) active(ctx context.Context) (int64, error) {
	body, err := r.ask(ctx, http.MethodGet, "/api/status")
	if err != nil {
		return 0, err
	}
	var status struct {
		Active int64 `json:"active"`
	}
	return status.Active, json.Unmarshal(body, &status)
}

// goroutines is how many the router has.
func (r *router) goroutines(ctx context.Context) (int, error) {
	body, err := r.ask(ctx, http.MethodGet, "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(body, []byte("\n"))
	_, total, ok := strings.Cut(string(line), "total ")
	if !ok {
		return 0, errors.New("read the router's goroutines: no total in the first line")
	}
	return strconv.Atoi(strings.TrimSpace(total))
}
