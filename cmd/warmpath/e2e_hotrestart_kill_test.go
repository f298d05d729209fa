package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// stages are what a process that takes over says, in order, until it is ready.
var stages = []string{
	`"taking over"`, "taking over: the nodes are known", "taking over: the nodes are as ready as they were", "taking over: what the nodes hold is known",
}

// stopAt starts the router anew and stops the new process at a stage; false if it
// was too fast.
func (r *serving) stopAt(t *testing.T, stage string) (next *process, ok bool) {
	t.Helper()
	next = launch(t, "warmpath", exec.Command(program("warmpath"), "serve", "--config", r.config))
	look := time.NewTicker(200 * time.Microsecond)
	defer look.Stop()
	for limit := time.Now().Add(startWithin); !strings.Contains(next.err.String(), stage); <-look.C {
		if !next.running() || time.Now().After(limit) {
			t.Fatalf("it does not come to %q: %s", stage, next.err.String())
		}
	}
	next.signal(t, syscall.SIGSTOP)
	return next, !r.succeeded()
}

// succeeded reports whether another process has taken over.
func (r *serving) succeeded() bool { return strings.Contains(r.err.String(), "has taken over") }

// TestHotRestartKilled ends the new process by SIGKILL at each stage: the running
// router goes on, and nobody notices.
func TestHotRestartKilled(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--time-scale", "0.1", "--kv-events-port", "-1", "--replay-port", "-1")
	r := serve(t, hotSettings(t), eventNodes(sim))
	l := startLoad(t, r, 4)
	l.more(t, 20)
	for i, stage := range stages {
		next, _ := r.stopAt(t, stage)
		from := l.answers.Load() // it may have been ready, and the old one slow to read that
		eventually(t, 15*time.Second, "the load goes on", func() bool { return r.succeeded() || l.answers.Load() >= from+20 })
		if r.succeeded() {
			t.Logf("stage %d: it was too fast", i)
			next.signal(t, syscall.SIGCONT)
			r = r.follow(t, next)
			continue
		}
		before := strings.Count(r.err.String(), "this one goes on")
		next.kill(t)
		eventually(t, 5*time.Second, "the running router goes on", func() bool { return strings.Count(r.err.String(), "this one goes on") == before+1 })
		l.more(t, 20)
	}
	next := r.again(t)
	l.more(t, 20)
	l.end(t)
	if code := r.wait(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r.client.CloseIdleConnections()
	next.settled(t)
}

// follow is the router whose process has taken over after all.
func (r *serving) follow(t *testing.T, next *process) *serving {
	t.Helper()
	eventually(t, startWithin, "it serves", func() bool { return strings.Contains(next.err.String(), `"msg":"serving"`) })
	return &serving{process: next, config: r.config, url: r.url, admin: r.admin, client: r.client}
}

// TestHotRestartOrphaned ends the old process by SIGKILL at each stage: the new
// one goes on with what it has, and no connection is refused.
func TestHotRestartOrphaned(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--time-scale", "0.1", "--kv-events-port", "-1", "--replay-port", "-1")
	r := serve(t, hotSettings(t), eventNodes(sim))
	stop, stopped := make(chan struct{}), make(chan struct{})
	var refused, dialled atomic.Int64
	address := strings.TrimPrefix(r.url, "http://")
	go func() {
		defer close(stopped)
		every := time.NewTicker(2 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-stop:
				return
			case <-every.C:
			}
			c, err := net.Dial("tcp", address)
			if err != nil {
				refused.Add(1)
				continue
			}
			dialled.Add(1)
			_ = c.Close()
		}
	}()
	for i, stage := range stages {
		next, ok := r.stopAt(t, stage)
		if ok {
			r.kill(t)
		}
		next.signal(t, syscall.SIGCONT)
		was := r.pid()
		r = r.follow(t, next)
		if log := next.err.String(); ok && i < len(stages)-1 && !strings.Contains(log, "the running router died") && !strings.Contains(log, fmt.Sprintf("taken over from pid %d", was)) {
			t.Errorf("stage %d: %s", i, tail(log))
		}
		r.client.CloseIdleConnections()
		r.usable(t, "sim-0")
		r.ask(t, chatBody(fmt.Sprintf("Stage %d, is anybody there?", i), ""))
	}
	close(stop)
	<-stopped
	if refused.Load() > 0 {
		t.Errorf("%d of %d connections were refused", refused.Load(), refused.Load()+dialled.Load())
	}
}
