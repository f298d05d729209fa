package soak

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// every calls act at an interval, on the average, until ctx ends.
func every(ctx context.Context, interval time.Duration, d dice, act func()) {
	if interval <= 0 {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(d.pause(interval/2, 3*interval/2)):
			if ctx.Err() == nil {
				act()
			}
		}
	}
}

// pauseFor waits, or until ctx ends.
func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// disturb stops one node after the other for a while: it refuses connections, or
// dies with all that it has.
func (r *run) disturb(ctx context.Context) {
	d := roll(r.Seed, 1001)
	every(ctx, r.DisturbEvery, d, func() {
		n := r.nodes[d.IntN(len(r.nodes))]
		n.stops.begin()
		if d.chance(0.6) {
			r.note("node_killed")
			n.kill()
		} else {
			r.note("node_refuses")
			n.refuse()
		}
		pauseFor(ctx, d.pause(100*time.Millisecond, 4*time.Second))
		if err := n.start(); err != nil {
			r.violate(nil, "the machine does not let a node come back: %v", err)
		}
		n.stops.end()
	})
}

// operate does what operators do: reloads, drains, restarts.
func (r *run) operate(ctx context.Context) {
	d := roll(r.Seed, 1002)
	restarted := time.Now()
	operations := []func(context.Context, dice) error{r.reload, r.reload, r.reloadBroken, r.drain, r.drain, r.without}
	interval := r.OperateEvery
	if interval < 0 && r.RestartEvery > 0 {
		interval, operations = r.RestartEvery/4, nil
	}
	every(ctx, interval, d, func() {
		var err error
		if r.RestartEvery > 0 && time.Since(restarted) >= r.RestartEvery {
			restarted = time.Now()
			err = r.restart(ctx)
		} else if len(operations) > 0 {
			err = operations[d.IntN(len(operations))](ctx, d)
		}
		if err != nil && ctx.Err() == nil {
			r.violate(nil, "%v", err)
		}
	})
}

// reload puts another policy and other time-outs into force.
func (r *run) reload(ctx context.Context, _ dice) error {
	r.note("reload")
	r.router.policy++
	if err := r.router.configure(""); err != nil {
		return err
	}
	if err := r.router.current().cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("reload: %w", err)
	}
	return r.await(ctx, "another policy decides", func() (bool, error) {
		body, err := r.router.ask(ctx, http.MethodGet, "/api/status")
		return strings.Contains(string(body), `"policy":"`+policies[r.router.policy%len(policies)]+`"`), err
	})
}

// reloadBroken asks for a configuration that is wrong: the last good one stays.
func (r *run) reloadBroken(ctx context.Context, _ dice) error {
	r.note("reload_broken")
	if err := r.router.configure("no_such_key: 1"); err != nil {
		return err
	}
	_, err := r.router.ask(ctx, http.MethodPost, "/api/reload")
	if restored := r.router.configure(""); restored != nil {
		return restored
	}
	if err == nil || !strings.Contains(err.Error(), "no_such_key") {
		return fmt.Errorf("reload of a wrong configuration: %v", err)
	}
	_, err = r.router.ask(ctx, http.MethodPost, "/api/reload")
	return err
}

// drain takes a node out for a while.
func (r *run) drain(ctx context.Context, d dice) error {
	r.note("drain")
	n := r.nodes[d.IntN(len(r.nodes))]
	if _, err := r.router.ask(ctx, http.MethodPost, "/api/nodes/"+n.name+"/drain"); err != nil {
		return err
	}
	n.close()
	pauseFor(ctx, d.pause(time.Second, 4*time.Second))
	n.open()
	_, err := r.router.ask(ctx, http.MethodPost, "/api/nodes/"+n.name+"/undrain")
	return err
}

// without leaves a node out of the configuration, and puts it back.
func (r *run) without(ctx context.Context, d dice) error {
	r.note("node_removed")
	n := r.nodes[d.IntN(len(r.nodes))]
	r.router.without = n.number
	if err := r.put(ctx); err != nil {
		return err
	}
	n.close()
	pauseFor(ctx, d.pause(time.Second, 6*time.Second))
	n.open()
	r.router.without = -1
	return r.put(ctx)
}

// put puts the configuration as it is now into force.
func (r *run) put(ctx context.Context) error {
	if err := r.router.configure(""); err != nil {
		return err
	}
	_, err := r.router.ask(ctx, http.MethodPost, "/api/reload")
	return err
}

// restartWithin bounds how long the old process may take to finish what it has:
// its longest answers, and drain_process.
const restartWithin = 70 * time.Second

// restart starts the same program with the same configuration again. The new
// process takes over; the old one ends once it has finished what it has.
func (r *run) restart(ctx context.Context) error {
	r.note("restart")
	r.restarts.begin()
	defer r.restarts.end()
	old := r.router.current()
	r.router.expectEnd(old)
	young, err := r.router.launch()
	if err != nil {
		return err
	}
	r.router.mu.Lock()
	r.router.process = young
	r.router.mu.Unlock()
	select {
	case <-old.ended:
	case <-young.ended: // which was noted
		return nil
	case <-time.After(restartWithin):
		return fmt.Errorf("restart: the old process still runs after %v", restartWithin)
	}
	if code := old.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("restart: the old process ended: %v\n%s", old.cmd.ProcessState, r.router.lastLog())
	}
	ctx, cancel := context.WithTimeout(ctx, restartWithin)
	defer cancel()
	return r.router.ready(ctx)
}

// restarting reports whether the router was restarted at any time since.
func (r *run) restarting(since time.Time) bool { return r.restarts.overlaps(since) }

// await waits until ok holds.
func (r *run) await(ctx context.Context, what string, ok func() (bool, error)) error {
	const limit = 10 * time.Second
	for begun := time.Now(); ; {
		done, err := ok()
		if done || ctx.Err() != nil {
			return nil
		}
		if time.Since(begun) > limit {
			return fmt.Errorf("waited %v in vain: %s (%v)", limit, what, err)
		}
		pauseFor(ctx, 20*time.Millisecond)
	}
}
