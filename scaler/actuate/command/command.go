package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/message"
)

const defaultTimeout = time.Minute

// Options name the programs.
type Options struct {
	Create, Delete, List []string // program and arguments; the same one may do all three
	Fleet                string   // marks the nodes; as a key in form
	// Timeout is how long a program may take; 0 = 1 min.
	Timeout  time.Duration
	Environ  []string          // of the programs, as name=value; PATH in it is where they are looked for
	Settings map[string]string // handed through in each request
}

func (o *Options) check() error {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	o.Create, o.Delete, o.List = slices.Clone(o.Create), slices.Clone(o.Delete), slices.Clone(o.List)
	o.Environ, o.Settings = slices.Clone(o.Environ), maps.Clone(o.Settings)
	for _, c := range []struct {
		name string
		argv []string
	}{{"create", o.Create}, {"delete", o.Delete}, {"list", o.List}} {
		if len(c.argv) == 0 || c.argv[0] == "" {
			return fmt.Errorf("%s is empty: name a program and its arguments", c.name)
		}
		for i, word := range c.argv {
			if strings.ContainsRune(word, 0) {
				return fmt.Errorf("%s, word %d: %q has a zero byte", c.name, i+1, word)
			}
		}
	}
	if o.Timeout < 0 {
		return fmt.Errorf("timeout %v: use a time above 0", o.Timeout)
	}
	if err := actuate.CheckKey(o.Fleet); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if err := message.CheckSettings(o.Settings); err != nil {
		return err
	}
	return actuate.CheckEnviron(o.Environ)
}

// Actuator makes nodes by programs of the user's own. See the package.
type Actuator struct {
	o      Options
	closed atomic.Bool
}

var _ actuate.Actuator = (*Actuator)(nil)

// New returns the actuator, or what is wrong with o. It runs nothing.
func New(o Options) (*Actuator, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("commands for nodes: %w", err)
	}
	return &Actuator{o: o}, nil
}

// Create runs Options.Create.
func (a *Actuator) Create(ctx context.Context, w actuate.Wanted) (actuate.Instance, error) {
	if err := actuate.CheckKey(w.Key); err != nil {
		return actuate.Instance{}, actuate.Refused(actuate.Settings, err)
	}
	nodes, err := a.ask(ctx, a.o.Create, &message.Request{Action: message.Create, Key: w.Key, Model: w.Model})
	if err != nil {
		return actuate.Instance{}, fmt.Errorf("make node %q: %w", w.Key, err)
	}
	return nodes[0].Instance, nil
}

// Delete runs Options.Delete.
func (a *Actuator) Delete(ctx context.Context, i actuate.Instance) error {
	if i.Key == "" && i.ID == "" {
		return errors.New("end a node: neither its key nor its id was named")
	}
	if _, err := a.ask(ctx, a.o.Delete, &message.Request{Action: message.Delete, Key: i.Key, ID: i.ID}); err != nil {
		return fmt.Errorf("end node %q: %w", i.Key, err)
	}
	return nil
}

// List runs Options.List.
func (a *Actuator) List(ctx context.Context) ([]actuate.Instance, error) {
	nodes, err := a.ask(ctx, a.o.List, &message.Request{Action: message.List})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return message.Instances(nodes), nil
}

// Close makes later calls fail. Programs that run end with their callers' contexts.
func (a *Actuator) Close() error {
	a.closed.Store(true)
	return nil
}

// ask runs one program with one request.
func (a *Actuator) ask(ctx context.Context, argv []string, r *message.Request) ([]message.Node, error) {
	if a.closed.Load() {
		return nil, errors.New("closed")
	}
	if err := ctx.Err(); err != nil { // and nothing was started
		return nil, err
	}
	program, err := actuate.FindProgram(argv[0], a.o.Environ)
	if err != nil {
		return nil, actuate.Refused(actuate.Settings, err)
	}
	r.Fleet, r.Settings = a.o.Fleet, a.o.Settings
	ctx, cancel := context.WithTimeoutCause(ctx, a.o.Timeout, fmt.Errorf("it was not done within %v, and was killed", a.o.Timeout))
	defer cancel()
	run := &run{program: program, argv: argv, environ: a.o.Environ, stdin: r.Bytes()}
	if err := run.do(ctx); err != nil {
		if actuate.AsRefusal(err) != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w%s", program, err, run.lastWords())
	}
	nodes, err := r.Answer(run.stdout)
	if err != nil && actuate.AsRefusal(err) == nil {
		return nil, fmt.Errorf("%s: %w%s", program, err, run.lastWords())
	}
	return nodes, err
}
