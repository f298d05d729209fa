package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"warmpath/scaler/actuate"
)

// known is what is remembered of a process that was seen to be a node's: when it ends,
// or when it writes over its environment, the kernel shows its marks no more.
type known struct {
	start uint64
	marks
	warned bool
}

// Actuator makes nodes of processes on this host. See the package.
type Actuator struct {
	o   Options
	uid int // whose processes are ours

	// gate is held by whoever looks at processes, starts or signals them. A look can
	// hang in the kernel, and then keeps it.
	gate  chan struct{}
	known map[int]known    // by process, as of the last look; held by the gate
	stops map[string]*stop // by instance: those that were told to end; held by the gate
	wake  chan struct{}    // a stop was added
	ended *ends            // how those ended that this process started
	ctx   context.Context  // ends with Close
	close context.CancelFunc
	work  sync.WaitGroup
}

var _ actuate.Actuator = (*Actuator)(nil)

// New returns the actuator, or what is wrong with o. It starts nothing. It makes the
// folder of logs if there is none.
func New(o Options) (*Actuator, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("processes as nodes: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &Actuator{
		o: o, uid: os.Geteuid(), gate: make(chan struct{}, 1), known: map[int]known{}, stops: map[string]*stop{},
		wake: make(chan struct{}, 1), ended: &ends{}, ctx: ctx, close: cancel,
	}
	a.work.Go(a.endThem)
	return a, nil
}

// Create starts a node and returns it as Running, which says that its command runs and
// not that it serves. A key that has processes by now is that node, which may be Ending.
// One that ran and ended is started again.
func (a *Actuator) Create(ctx context.Context, w actuate.Wanted) (actuate.Instance, error) {
	if err := actuate.CheckKey(w.Key); err != nil {
		return actuate.Instance{}, actuate.Refused(actuate.Settings, err)
	}
	// Refuse what the options already tell is impossible before anything is waited for.
	if _, err := a.o.command(w, a.o.FirstPort); err != nil {
		return actuate.Instance{}, actuate.Refused(actuate.Settings, err)
	}
	unlock, err := a.lock(ctx)
	if err != nil {
		return actuate.Instance{}, fmt.Errorf("start node %q: %w", w.Key, err)
	}
	return within(ctx, a, func(ctx context.Context) (actuate.Instance, error) {
		defer unlock()
		return a.create(ctx, w)
	}, unlock)
}

func (a *Actuator) create(ctx context.Context, w actuate.Wanted) (actuate.Instance, error) {
	nodes, ports, err := a.scan(ctx)
	if err != nil {
		return actuate.Instance{}, fmt.Errorf("start node %q: %w", w.Key, err)
	}
	for _, n := range nodes {
		if n.key == w.Key {
			return a.instance(n), nil
		}
	}
	if a.o.MaxNodes > 0 && len(nodes) >= a.o.MaxNodes {
		return actuate.Instance{}, actuate.Refused(actuate.Quota, fmt.Errorf("start node %q: fleet %q has %d nodes on this host, and may have %d", w.Key, a.o.Fleet, len(nodes), a.o.MaxNodes))
	}
	port, err := a.freePort(ctx, ports)
	if err != nil {
		return actuate.Instance{}, fmt.Errorf("start node %q: %w", w.Key, err)
	}
	n, err := a.start(w, port)
	if err != nil {
		return actuate.Instance{}, fmt.Errorf("start node %q: %w", w.Key, err)
	}
	a.pruneLogs(append(nodes, n))
	return a.instance(n), nil
}

// List returns the fleet's nodes on this host, and how those ended that this process
// started, the last of them.
func (a *Actuator) List(ctx context.Context) ([]actuate.Instance, error) {
	return within(ctx, a, func(ctx context.Context) ([]actuate.Instance, error) {
		nodes, _, err := a.scan(ctx)
		if err != nil {
			return nil, err
		}
		all := make([]actuate.Instance, 0, len(nodes))
		runs := map[string]bool{}
		for _, n := range nodes {
			all = append(all, a.instance(n))
			runs[n.instance] = true
		}
		return a.ended.list(all, runs), nil
	}, nil)
}

// Delete sends SIGTERM to all processes of a node and returns. Until they are gone the
// node is Ending; what is left of it after Options.StopAfter is killed. i.ID narrows it to that run of the
// key. A second one changes nothing.
func (a *Actuator) Delete(ctx context.Context, i actuate.Instance) error {
	if i.Key == "" && i.ID == "" {
		return errors.New("end a node: neither its key nor its id was named")
	}
	_, err := within(ctx, a, func(ctx context.Context) (struct{}, error) {
		nodes, _, err := a.scan(ctx)
		if err != nil {
			return struct{}{}, fmt.Errorf("end node %q: %w", i.Key, err)
		}
		for _, n := range nodes {
			if (i.Key == "" || n.key == i.Key) && (i.ID == "" || n.instance == i.ID) {
				err = errors.Join(err, a.stop(n))
			}
		}
		return struct{}{}, err
	}, nil)
	return err
}

// Close lets go of the nodes: they stay, also those that were told to end and have not
// yet; nobody kills them then. Calls after it fail.
func (a *Actuator) Close() error {
	a.close()
	a.work.Wait()
	return nil
}

// instance is a node in the words of actuate.
func (a *Actuator) instance(n *node) actuate.Instance {
	leader, there := n.leader()
	i := actuate.Instance{Key: n.key, ID: n.instance, Phase: actuate.Running, URL: a.o.url(n.key, n.port), Since: a.since(leader.start)}
	i.Detail = fmt.Sprintf("process %d", leader.pid)
	if !there {
		i.Detail = fmt.Sprintf("its first process is gone, and %d of its processes are left, as %d", len(n.members), leader.pid)
		if why := a.ended.of(n.instance); why != "" {
			i.Detail += "; the first " + why
		}
	}
	if a.stops[n.instance] != nil {
		i.Phase = actuate.Ending
	}
	return i
}

// within does do while it holds the gate, and returns when that has, or when ctx ends:
// a look at a process can hang in the kernel for as long as that process does. unless, if not
// nil, is called if do never will be.
func within[T any](ctx context.Context, a *Actuator, do func(context.Context) (T, error), unless func()) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(a.ctx, func() { cancel(errClosed) })()
	err := context.Cause(ctx)
	if err == nil && a.ctx.Err() != nil {
		err = errClosed
	}
	if err == nil {
		select {
		case a.gate <- struct{}{}:
		case <-ctx.Done():
			err = fmt.Errorf("wait for the last look at this host's processes: %w", context.Cause(ctx))
		}
	}
	if err != nil {
		cancel(nil)
		if unless != nil {
			unless()
		}
		return none, err
	}
	done := make(chan result, 1)
	go func() {
		defer cancel(nil)
		defer func() { <-a.gate }()
		value, err := do(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // it ended as well
		return r.value, r.err
	default:
		return none, context.Cause(ctx)
	}
}

var errClosed = errors.New("closed")
