package fleetbench

import (
	"bufio"
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
	"syscall"
	"time"
)

const (
	readyWithin = 2 * time.Minute
	keepRecords = 40000 // decisions that the router remembers
	askRecords  = 10000 // … and shows at once
)

// router is a running `warmpath serve`.
type router struct {
	cmd            *exec.Cmd
	dir            string
	clients, admin string // host:port
}

// configuration of a router before the first nodes of the fleet.
func configuration(o *Options, c Case, clients, admin string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "listen: %s\nadmin: {listen: %q}\ndecisions: {keep: %d}\nlimits: {connections: 2000}\nlog: {level: warn}\n%s\nnodes:\n", clients, admin, keepRecords, strings.Join(o.Config, "\n"))
	for i := range c.Nodes {
		fmt.Fprintf(&b, "  - {name: node-%04d, url: \"http://%s\"", i, Address(i, o.Port))
		if c.Unscraped { // an engine of which nobody expects metrics
			b.WriteString(", engine: openai")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// startRouter runs the router until close, and waits until all nodes are ready.
func startRouter(ctx context.Context, o *Options, c Case) (_ *router, err error) {
	r := &router{}
	if r.dir, err = os.MkdirTemp("", "warmpath-fleet-"); err != nil {
		return nil, fmt.Errorf("make a folder for the router: %w", err)
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.clients, err = freeAddress(); err != nil {
		return nil, err
	}
	if r.admin, err = freeAddress(); err != nil {
		return nil, err
	}
	path := filepath.Join(r.dir, "warmpath.yaml")
	if err := os.WriteFile(path, []byte(configuration(o, c, r.clients, r.admin)), 0o600); err != nil {
		return nil, fmt.Errorf("write the router's configuration: %w", err)
	}
	r.cmd = exec.CommandContext(ctx, o.Program, "serve", "--config", path)
	r.cmd.Stderr = os.Stderr
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		r.cmd = nil
		return nil, fmt.Errorf("start the router: %w", err)
	}
	return r, r.waitReady(ctx, c.Nodes)
}

func (r *router) waitReady(ctx context.Context, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for ready := -1; ; {
		var list []struct{ State string }
		if r.get(ctx, "/api/nodes", func(body io.Reader) error { return json.NewDecoder(body).Decode(&list) }) == nil {
			ready = 0
			for _, n := range list {
				if n.State == "ready" {
					ready++
				}
			}
			if ready == nodes {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d nodes: %d are ready: %w", nodes, ready, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// close ends the router and removes its folder.
func (r *router) close() {
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
		_ = r.cmd.Wait() // how it ended does not matter any more
	}
	_ = os.RemoveAll(r.dir)
}

func (r *router) get(ctx context.Context, path string, use func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+path, nil)
	if err != nil {
		return err
	}
	req.Close = true // no connection of ours shall be open while it is measured
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the router for %s: %s", path, res.Status)
	}
	return use(res.Body)
}

// cpuSeconds is what the process has used so far: user and system time
// (proc_pid_stat(5)), counted in hundredths of a second.
func (r *router) cpuSeconds() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read the router's processor time: %w", err)
	}
	fields := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:]) // behind the name, which may hold anything
	if len(fields) < 13 {
		return 0, errors.New("read the router's processor time: too few fields")
	}
	total := 0.0
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, fmt.Errorf("read the router's processor time: %w", err)
		}
		total += ticks / 100
	}
	return total, nil
}

// residentMiB is what the process holds of memory.
func (r *router) residentMiB() float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", r.cmd.Process.Pid))
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(fields[1], 64)
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

// publishes is the router's histogram of how long snapshots took: how many within
// each bound, in seconds, ascending; the last is all of them.
type publishes struct {
	bounds []float64
	counts []float64 // cumulative
	sum    float64
}

const publishName = "warmpath_snapshot_publish_seconds"

func (r *router) publishes(ctx context.Context) (p publishes, err error) {
	err = r.get(ctx, "/metrics", func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			name, value, ok := strings.Cut(lines.Text(), " ")
			if !ok || !strings.HasPrefix(name, publishName) {
				continue
			}
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return err
			}
			if bound, is := strings.CutPrefix(name, publishName+`_bucket{le="`); is {
				le, err := strconv.ParseFloat(strings.TrimSuffix(bound, `"}`), 64)
				if err != nil {
					return err
				}
				p.bounds, p.counts = append(p.bounds, le), append(p.counts, v)
			} else if name == publishName+"_sum" {
				p.sum = v
			}
		}
		return lines.Err()
	})
	return p, err
}

// since is what was published after an earlier look.
func (p publishes) since(was publishes) publishes {
	d := publishes{bounds: p.bounds, sum: p.sum - was.sum, counts: make([]float64, len(p.counts))}
	for i := range p.counts {
		d.counts[i] = p.counts[i]
		if i < len(was.counts) {
			d.counts[i] -= was.counts[i]
		}
	}
	return d
}

func (p publishes) total() float64 {
	if len(p.counts) == 0 {
		return 0
	}
	return p.counts[len(p.counts)-1]
}

// within is the least bound in milliseconds within which the share q was, 0 if
// nothing was published.
func (p publishes) within(q float64) float64 {
	for i, n := range p.counts {
		if n > 0 && n >= q*p.total() {
			return p.bounds[i] * 1e3
		}
	}
	return 0
}

func (p publishes) meanMs() float64 {
	if p.total() == 0 {
		return 0
	}
	return p.sum / p.total() * 1e3
}

// routing returns the times that the router took, in seconds, from requests' last
// bytes to their dispatch, since start.
func (r *router) routing(ctx context.Context, start time.Time) (seconds []float64, nodes int, err error) {
	var views []struct {
		At      time.Time `json:"at"`
		Node    string    `json:"node"`
		Outcome *struct {
			RoutingSeconds float64 `json:"routing_seconds"`
		} `json:"outcome"`
	}
	if err := r.get(ctx, "/api/decisions?n="+strconv.Itoa(askRecords), func(body io.Reader) error { return json.NewDecoder(body).Decode(&views) }); err != nil {
		return nil, 0, err
	}
	seen := map[string]bool{}
	for _, v := range views {
		if v.Outcome != nil && v.At.After(start) {
			seconds = append(seconds, v.Outcome.RoutingSeconds)
			seen[v.Node] = true
		}
	}
	return seconds, len(seen), nil
}

// freeAddress finds one of loopback that nobody listens on, below the ports that
// connections get by themselves.
func freeAddress() (string, error) {
	const lowest, highest = 20000, 31999
	for i := range highest - lowest {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+(os.Getpid()*7+i)%(highest-lowest))
		if taken[address] {
			continue
		}
		if ln, err := net.Listen("tcp", address); err == nil {
			_ = ln.Close()
			taken[address] = true
			return address, nil
		}
	}
	return "", fmt.Errorf("find a free port from %d to %d: none is", lowest, highest)
}

// taken are addresses that were given out.
var taken = map[string]bool{}
