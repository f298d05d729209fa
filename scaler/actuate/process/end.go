package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"warmpath/scaler/actuate"
)

const (
	endsKept   = 64
	tailBytes  = 2048
	lookLeast  = 20 * time.Millisecond // at those that were told to end, and less and less often …
	lookMost   = time.Second           // … up to this
	lookFactor = 1.5
)

// end is how a node ended.
type end struct {
	marks
	why   string
	since time.Time
}

// ends are the last nodes that ended of those that this process started.
type ends struct {
	mu  sync.Mutex
	all []end // oldest first
}

func (e *ends) add(one end) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, one)
	e.all = slices.Delete(e.all, 0, max(0, len(e.all)-endsKept))
}

// of says how the first process of an instance ended, "" if that is not known.
func (e *ends) of(instance string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range e.all {
		if one.instance == instance {
			return one.why
		}
	}
	return ""
}

// list adds those that ended and of which nothing runs. Of a key that runs again it
// says nothing.
func (e *ends) list(to []actuate.Instance, runs map[string]bool) []actuate.Instance {
	keys := map[string]bool{}
	for _, i := range to {
		keys[i.Key] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, one := range slices.Backward(e.all) {
		if runs[one.instance] || keys[one.key] {
			continue
		}
		keys[one.key] = true
		to = append(to, actuate.Instance{Key: one.key, ID: one.instance, Phase: actuate.Ended, Detail: one.why, Since: one.since})
	}
	return to
}

// bury waits for the end of a node's first process, which would stay in the table of
// processes otherwise, and keeps how it ended.
func (a *Actuator) bury(cmd *exec.Cmd, m marks, begun time.Time) {
	err := cmd.Wait()
	why := "ended after " + time.Since(begun).Round(time.Millisecond).String() + ": "
	switch {
	case cmd.ProcessState == nil:
		why += fmt.Sprint(err)
	default:
		why += cmd.ProcessState.String()
	}
	path := a.logPath(m.key)
	if path == "" {
		why += "; its output was not kept"
	} else if last := tail(path, tailBytes); last != "" {
		why += "; its last words: " + last
	} else {
		why += "; it said nothing"
	}
	a.ended.add(end{m, why, begun})
	a.o.Log.Info("first process of a node ended", "node", m.key, "pid", cmd.Process.Pid, "why", why)
}

// stop is one node on its way to its end.
type stop struct {
	killAt time.Time
	killed bool
}

// stop tells a node to end, unless it was told.
func (a *Actuator) stop(n *node) error {
	if a.stops[n.instance] != nil {
		return nil
	}
	if err := a.signal(n, syscall.SIGTERM); err != nil {
		return err
	}
	a.o.Log.Info("node told to end", "node", n.key, "processes", len(n.members))
	a.stops[n.instance] = &stop{killAt: time.Now().Add(a.o.StopAfter)}
	select {
	case a.wake <- struct{}{}:
	default: // it is awake
	}
	return nil
}

// signal sends a signal to every process of a node.
func (a *Actuator) signal(n *node, s syscall.Signal) error {
	var failed error
	for _, m := range n.members {
		if err := a.signalOne(m.identity, s); err != nil {
			failed = errors.Join(failed, fmt.Errorf("end node %q: process %d: %w", n.key, m.pid, err))
		}
	}
	return failed
}

// signalOne sends a signal to a process, if it still is the one that was found.
func (a *Actuator) signalOne(id identity, s syscall.Signal) error {
	// On Linux 5.3 and later this holds a descriptor of the process, not its number.
	p, err := os.FindProcess(id.pid)
	if err != nil {
		return nil // it is gone
	}
	defer func() { _ = p.Release() }()
	// Read after it was taken hold of: what has the number now had it then.
	dir, err := os.OpenRoot(filepath.Join(a.o.Proc, strconv.Itoa(id.pid)))
	if err != nil {
		return unlessGone(err)
	}
	defer dir.Close()
	now, _, dead, err := readStat(dir)
	if err != nil {
		return unlessGone(err)
	}
	if dead || now.start != id.start {
		return nil
	}
	if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// endThem looks after nodes that were told to end, until Close.
func (a *Actuator) endThem() {
	wait := lookLeast
	said := ""
	for {
		left, err := within(a.ctx, a, a.lookAfter, nil)
		switch {
		case a.ctx.Err() != nil:
			return
		case err == nil:
			said = ""
		case said != err.Error():
			said = err.Error()
			a.o.Log.Warn("nodes that were told to end cannot be looked after", "err", err)
		}
		again := time.NewTimer(wait)
		if left == 0 && err == nil {
			again.Stop()
		}
		select {
		case <-a.ctx.Done():
			again.Stop()
			return
		case <-a.wake:
			again.Stop()
			wait = lookLeast
		case <-again.C:
			wait = min(lookMost, a.o.StopAfter, time.Duration(float64(wait)*lookFactor))
		}
	}
}

// lookAfter kills nodes that took too long to end, and forgets those that are gone. It
// returns how many are left.
func (a *Actuator) lookAfter(ctx context.Context) (int, error) {
	if len(a.stops) == 0 {
		return 0, nil
	}
	nodes, _, err := a.scan(ctx)
	if err != nil {
		return len(a.stops), err
	}
	there := map[string]bool{}
	for _, n := range nodes {
		there[n.instance] = true
		stop := a.stops[n.instance]
		if stop == nil || time.Now().Before(stop.killAt) {
			continue
		}
		if !stop.killed { // and again each time: it may have started others
			stop.killed = true
			a.o.Log.Warn("node did not end by itself: killed", "node", n.key, "after", a.o.StopAfter, "processes", len(n.members))
		}
		err = errors.Join(err, a.signal(n, syscall.SIGKILL))
	}
	for instance := range a.stops {
		if !there[instance] {
			delete(a.stops, instance)
		}
	}
	return len(a.stops), err
}
