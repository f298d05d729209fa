package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"warmpath/bpf"
	"warmpath/controlplane/engine"
	"warmpath/controlplane/kernel"
	"warmpath/dataplane/fleet"
)

// Bounds of LoadOptions.
const (
	MinLoadInterval = 10 * time.Millisecond
	MaxLoadInterval = 500 * time.Millisecond // what is a second old is not said any more
)

// metricsWithin is how long an engine may take to say its load: after it nothing is
// said of it.
const metricsWithin = time.Second

// LoadOptions of SayLoad.
type LoadOptions struct {
	URL      string // of the engine, without a trailing slash
	Engine   string // its dialect (package engine)
	Ports    []uint16
	Cgroup   string // folder of the cgroup v2 that the engine is in or below; "" = the root
	Interval time.Duration
	Log      *slog.Logger
}

// Check says what is wrong with the options, all at once.
func (o *LoadOptions) Check() error {
	var faults []error
	if _, err := ParseEngine(o.URL); err != nil {
		faults = append(faults, fmt.Errorf("load url: %w", err))
	}
	if !engine.Known(o.Engine) || o.Engine == engine.OpenAI {
		faults = append(faults, fmt.Errorf("load engine: %q has no metrics that are known; use one of %v", o.Engine, engine.Names()))
	}
	if len(o.Ports) == 0 || len(o.Ports) > bpf.MaxLoadPorts {
		faults = append(faults, fmt.Errorf("load ports: %d; use 1 to %d", len(o.Ports), bpf.MaxLoadPorts))
	}
	if o.Interval < MinLoadInterval || o.Interval > MaxLoadInterval {
		faults = append(faults, fmt.Errorf("load interval: %v; use %v to %v", o.Interval, MinLoadInterval, MaxLoadInterval))
	}
	return errors.Join(faults...)
}

// SayLoad has this host's kernel put the engine's queue and KV use into segments of
// the connections that are accepted at its ports from now on, until ctx ends; then
// it returns nil. An error says in one line why this host does not, and what to do.
func SayLoad(ctx context.Context, o LoadOptions) error {
	if err := o.Check(); err != nil {
		return fmt.Errorf("say load: %w", err)
	}
	w, err := writeLoads(&o)
	if err != nil {
		why := kernel.Explain("option", err)
		if why.Remedy == kernel.NoRemedy {
			return fmt.Errorf("say load: %s", why.Why)
		}
		return fmt.Errorf("say load: %s; %s", why.Why, why.Remedy)
	}
	defer w.Close()
	p := engine.NewProber()
	p.MetricsTimeout = metricsWithin
	defer p.HTTP.CloseIdleConnections()
	o.Log.Info("saying the engine's load in its answers", "engine", o.URL, "ports", o.Ports, "cgroup", o.Cgroup, "every", o.Interval.String())
	o.follow(ctx, p, w.Say)
	return nil
}

func writeLoads(o *LoadOptions) (*bpf.LoadWriter, error) {
	if o.Cgroup == "" {
		root, err := bpf.RootCgroup()
		if err != nil {
			return nil, err
		}
		o.Cgroup = root
	}
	return bpf.WriteLoads(o.Cgroup, o.Ports)
}

// follow asks the engine again and again. While it does not answer nothing new is
// said, and what was said last ends by itself.
func (o *LoadOptions) follow(ctx context.Context, p *engine.Prober, say func(bpf.NodeLoad)) {
	tick := time.NewTicker(o.Interval)
	defer tick.Stop()
	for lost := false; ; {
		sample, err := p.Metrics(ctx, o.Engine, o.URL)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !lost {
				o.Log.Warn("the engine does not say its load, and so nobody does", "err", err)
			}
			lost = true
		default:
			if lost {
				o.Log.Info("the engine says its load again")
			}
			lost = false
			say(bpf.NodeLoad{Waiting: int(math.Round(known(sample.Queued))), KVUse: known(sample.KVUse)})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// known is below zero for what is not, or is no number that could be said.
func known(g fleet.Gauge) float64 {
	if !g.Known || !(g.Value >= 0) {
		return -1
	}
	return min(g.Value, math.MaxInt32)
}
