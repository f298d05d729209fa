package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warmpath/controlplane/admin"
	"warmpath/controlplane/config"
	"warmpath/scaler/actuate"
	engineprocess "warmpath/scaler/actuate/process"
)

// cycles is how often the fleet grows and shrinks; make scale-cycles asks for more.
var cycles = flag.Int("e2e.cycles", 2, "cycles of growing and shrinking in TestScale…")

const (
	scaledMost = 4 // nodes
	crowdSize  = 48
	cycleLimit = 90 * time.Second // for one way
)

// scaled is a router whose scaler runs engines on this host.
type scaled struct {
	*serving
	fleet  string
	engine *engineprocess.Actuator // the test's own view of them
}

// scalerText configures a scaler that acts in seconds.
const scalerText = `nodes: []
state_dir: %q
scaler:
  enabled: true
  fleet: %s
  interval: 1s
  attainment: 0.9 # so that one node is enough for who is always there
  min: 1
  max: %d
  target_ttft: 1s
  stabilise_down: 3s
  cool_down: 2s
  recovery: 5s
  start_up: 2s
  replace_down: 3s
  offers:
    - name: local
      provider: process
      quota: 8
      process: {command: [%q, --port, "{port}", --prefill-tps, "3000", --decode-base-ms, "15", --max-num-seqs, "8"], first_port: %d, last_port: %d, stop_after: 5s}
`

// serveScaled starts a router without nodes and waits until its scaler has made one.
func serveScaled(t *testing.T) *scaled {
	t.Helper()
	s := &scaled{}
	path := configure(t, settings, s.prepare(t))
	s.serving = launchRouter(t, path)
	s.size(t, 1, cycleLimit)
	return s
}

// prepare returns the configuration of a scaler, and ends its engines with the test.
func (s *scaled) prepare(t *testing.T) string {
	t.Helper()
	s.fleet = fmt.Sprintf("e2e-%d-%d", os.Getpid(), rand.IntN(1e6))
	first := freePorts(20000+rand.IntN(8000), 16)
	var err error
	s.engine, err = engineprocess.New(engineprocess.Options{
		Command: []string{program("enginesim")}, Fleet: s.fleet + "-local", FirstPort: first, LastPort: first + 15,
		Environ: config.Environ(), StopAfter: time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.endEngines(t) }) // they outlive the router
	return fmt.Sprintf(scalerText, t.TempDir(), s.fleet, scaledMost, program("enginesim"), first, first+15)
}

// endEngines ends all engines that carry the mark.
func (s *scaled) endEngines(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	eventually(t, 20*time.Second, "no engine is left", func() bool {
		running, err := s.engine.List(ctx)
		for _, i := range running {
			if i.Phase == actuate.Running || i.Phase == actuate.Pending {
				_ = s.engine.Delete(ctx, i)
			}
		}
		return err == nil && !slices.ContainsFunc(running, func(i actuate.Instance) bool { return i.Phase != actuate.Ended })
	})
	_ = s.engine.Close()
}

// running are the engines that run, by key.
func (s *scaled) running(t *testing.T) map[string]actuate.Instance {
	t.Helper()
	list, err := s.engine.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]actuate.Instance{}
	for _, i := range list {
		if i.Phase == actuate.Running {
			found[i.Key] = i
		}
	}
	return found
}

func (s *scaled) view(t *testing.T) admin.ScalerView {
	t.Helper()
	var v admin.ScalerView
	getJSON(t, "http://"+s.admin+"/api/scaler", &v)
	return v
}

// ready is how many nodes serve.
func (s *scaled) ready(t *testing.T) (n int) {
	for _, node := range s.nodes(t) {
		if usable(&node) {
			n++
		}
	}
	return n
}

// size waits until so many nodes serve and nothing else of them is under way.
func (s *scaled) size(t *testing.T, n int, limit time.Duration) {
	t.Helper()
	eventually(t, limit, fmt.Sprintf("%d nodes serve and no more run", n), func() bool {
		v := s.view(t)
		return s.ready(t) == n && len(v.Nodes) == n && len(s.running(t)) == n
	})
}

// askers are clients that ask one stream after the other.
type askers struct {
	wait   sync.WaitGroup
	cancel context.CancelFunc
	mu     sync.Mutex
	all    []*reply // guarded by mu
	turns  []int    // of each client: answers so far; guarded by mu
}

// gather starts so many clients, each with a pause between two streams.
func (s *scaled) gather(t *testing.T, name string, n int, pause time.Duration) *askers {
	ctx, cancel := context.WithCancel(context.Background())
	c := &askers{cancel: cancel, turns: make([]int, n)}
	t.Cleanup(cancel)
	for i := range n {
		c.wait.Go(func() {
			for turn := 0; ctx.Err() == nil; turn++ {
				id := fmt.Sprintf("%s-%d-%d", name, i, turn)
				body := chatBody(id+strings.Repeat(" of many words to compute", 60), `,"max_tokens":12`+streaming)
				limited, end := context.WithTimeout(context.Background(), time.Minute)
				a := s.send(limited, chatPath, id, body, nil)
				end()
				c.mu.Lock()
				c.all = append(c.all, a)
				c.turns[i]++
				c.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	return c
}

// answered waits until each client has had an answer since the call.
func (c *askers) answered(t *testing.T) {
	t.Helper()
	so := func() []int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Clone(c.turns)
	}
	before := so()
	eventually(t, cycleLimit, "all clients have had an answer", func() bool {
		for i, n := range so() {
			if n == before[i] {
				return false
			}
		}
		return true
	})
}

// leave ends the clients after the stream that each has under way, and returns what
// all of them got.
func (c *askers) leave() []*reply {
	c.cancel()
	c.wait.Wait()
	return c.all
}

// whole fails the test for each answer that is not whole.
func whole(t *testing.T, what string, all []*reply) {
	t.Helper()
	failed := 0
	for _, a := range all {
		if a.err == nil && a.status == http.StatusOK && a.text != "" {
			continue
		}
		if failed++; failed <= 5 {
			t.Errorf("%s: request %s to %q: status %d, error %v: %s", what, a.id(), a.node(), a.status, a.err, tail(string(a.body)))
		}
	}
	if failed > 0 {
		t.Errorf("%s: %d of %d requests failed", what, failed, len(all))
	}
}

// TestScaleCycles: the fleet grows from one engine to the most that are allowed and
// shrinks again, time after time, while clients are at it; no request fails.
func TestScaleCycles(t *testing.T) {
	s := serveScaled(t)
	requests, downs := 0, 0
	for n := range *cycles {
		began := time.Now()
		few := s.gather(t, fmt.Sprintf("few-%d", n), 1, 4*time.Second) // somebody is always there
		many := s.gather(t, fmt.Sprintf("many-%d", n), crowdSize, 0)
		eventually(t, cycleLimit, "the fleet has grown", func() bool { return s.ready(t) == scaledMost })
		grown := time.Since(began)
		all := many.leave()
		s.size(t, 1, cycleLimit)
		all = append(all, few.leave()...)
		whole(t, fmt.Sprintf("cycle %d", n+1), all)
		requests, downs = requests+len(all), downs+scaledMost-1
		t.Logf("cycle %d: %d nodes after %.1f s, 1 again after %.1f s; %d requests", n+1, scaledMost, grown.Seconds(), time.Since(began).Seconds(), len(all))
	}
	t.Logf("%d cycles, %d nodes given back under load, %d requests, none failed", *cycles, downs, requests)
	s.settled(t)
}

// TestScaleKill: engines are killed while the fleet grows and shrinks: only streams
// that had begun on them are cut, and others take their place.
func TestScaleKill(t *testing.T) {
	s := serveScaled(t)
	many := s.gather(t, "kill", crowdSize, 0)
	eventually(t, cycleLimit, "the fleet has grown", func() bool { return s.ready(t) == scaledMost })
	killed := map[string]bool{}
	for range max(1, *cycles/2) {
		many.answered(t) // a request that has seen two nodes die is tried on no third
		running := s.running(t)
		for key, i := range running {
			pid, err := strconv.Atoi(strings.TrimPrefix(i.Detail, "process "))
			if err != nil {
				t.Fatalf("an engine's detail is %q: %v", i.Detail, err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed[key] = true
			break
		}
		eventually(t, cycleLimit, "another engine has taken its place", func() bool {
			now := s.running(t)
			return s.ready(t) == scaledMost && !slices.ContainsFunc(s.view(t).Nodes, func(n admin.OwnedView) bool { return killed[n.Name] }) && len(now) >= scaledMost
		})
	}
	all := many.leave()
	cut := 0
	var rest []*reply
	for _, a := range all {
		if a.err != nil && a.begun && killed[a.node()] {
			cut++
			continue
		}
		rest = append(rest, a)
	}
	whole(t, "beside the killed engines", rest)
	t.Logf("%d engines killed under %d requests: %d streams that had begun there were cut, nothing else", len(killed), len(all), cut)
	s.size(t, 1, cycleLimit)
}

// TestScaleRouterKilled: the router is killed with its fleet grown. Its successor
// has the same engines, and gives back those that are too many.
func TestScaleRouterKilled(t *testing.T) {
	s := serveScaled(t)
	many := s.gather(t, "router", crowdSize, 0)
	eventually(t, cycleLimit, "the fleet has grown", func() bool { return s.ready(t) == scaledMost })
	s.kill(t)
	many.leave() // they fail, as their router has
	before := s.running(t)
	s.serving = launchRouter(t, s.config)
	eventually(t, cycleLimit, "all engines are known again", func() bool {
		v := s.view(t)
		for _, n := range v.Nodes {
			if before[n.Name].ID == "" {
				t.Fatalf("a node was doubled: %+v; before: %+v", n, before)
			}
		}
		return len(v.Nodes) == len(before) && s.ready(t) == len(before)
	})
	for key, i := range s.running(t) {
		if before[key].ID != i.ID {
			t.Errorf("engine %s is %s, it was %s", key, i.ID, before[key].ID)
		}
	}
	few := s.gather(t, "after", 1, 2*time.Second)
	s.size(t, 1, cycleLimit)
	whole(t, "after the restart", few.leave())
}
