package controlplane

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"warmpath/controlplane/config"
	"warmpath/controlplane/discover"
	"warmpath/controlplane/discover/kube"
	"warmpath/controlplane/state"
)

// sources are where nodes come from, and how each is doing.
type sources struct {
	all []discover.Source // in order of precedence: of two with one name or URL the first has it
	mu  sync.Mutex
	now map[string]SourceStatus // by name; guarded by mu
}

// SourceStatus says how a source of nodes is doing.
type SourceStatus struct {
	Name  string
	Nodes int       // that it named last
	Seen  time.Time // when it named them; zero = not yet
	Err   string    // why those stand and no newer ones; "" = it is well
	Since time.Time // when that began

	logged time.Time // when the log told of a failure last
}

// failureAgain is the least time between two lines in the log about one source that
// goes on failing: look-ups fail with another text each time.
const failureAgain = time.Minute

// sourceAgain is the pause before a source runs again that could not go on.
const sourceAgain = 10 * time.Second

// looks reports whether there is a source of that name that looks elsewhere, which
// may take a while or fail.
func (s *sources) looks(name string) bool {
	return slices.ContainsFunc(s.all, func(s discover.Source) bool {
		switch s.(type) {
		case *discover.File, *discover.DNS, *discover.Owned, *kube.Source:
			return s.Name() == name
		}
		return false
	})
}

// introduceSources tells the State of the sources in their order, which is that of
// precedence. What one that looks elsewhere had named to the process that is taken
// over from stands until it is heard: it may fail just now.
func (c *ControlPlane) introduceSources() {
	for _, source := range c.sources.all {
		name := source.Name()
		var specs []state.Spec
		if c.opt.Offer != nil && c.sources.looks(name) {
			for i := range c.opt.Offer.Nodes {
				if n := &c.opt.Offer.Nodes[i]; n.Source == name {
					specs = append(specs, n.Spec)
				}
			}
		}
		c.sources.now[name] = SourceStatus{Name: name, Nodes: len(specs)}
		c.Send(state.NodesSeen{NowNs: c.NowNs(), Source: name, Specs: specs})
	}
}

func (c *ControlPlane) newSources(cfg *config.Config) []discover.Source {
	all := []discover.Source{c.static, c.api, c.leases}
	if cfg.Scaler.Enabled {
		all = append(all, c.owned)
	}
	if path := cfg.Discovery.File; path != "" {
		all = append(all, discover.NewFile(path, readNodes))
	}
	for i := range cfg.Discovery.DNS {
		all = append(all, discover.NewDNS(dnsOptions(&cfg.Discovery.DNS[i])))
	}
	if k := &cfg.Discovery.Kubernetes; k.Service != "" || k.Selector != "" {
		source, err := kube.New(kubeOptions(k))
		if err != nil {
			c.opt.Log.Error("no nodes come from Kubernetes", "err", err)
		} else {
			all = append(all, source)
		}
	}
	return all
}

func kubeOptions(k *config.Kubernetes) kube.Options {
	return kube.Options{
		Kubeconfig: k.Kubeconfig, Context: k.Context, Namespace: k.Namespace, Service: k.Service, Selector: k.Selector, Port: k.Port,
		Node: state.Spec{Models: k.Models, Engine: k.Engine, Island: k.Island, Region: k.Region, Weight: k.Weight, MaxInFlight: k.MaxInFlight},
	}
}

func readNodes(name string, data []byte) ([]state.Spec, error) {
	nodes, err := config.ParseNodes(name, data)
	if err != nil {
		return nil, err
	}
	return specs(nodes), nil
}

func dnsOptions(n *config.DNSName) discover.DNSOptions {
	o := discover.DNSOptions{
		Name: n.Name, Record: n.Record, Port: n.Port, Interval: n.Interval, Resolver: discover.HostResolver(),
		Node: state.Spec{Models: n.Models, Engine: n.Engine, Island: n.Island, Region: n.Region, Weight: n.Weight, MaxInFlight: n.MaxInFlight},
	}
	if n.Server != "" {
		o.Resolver = discover.ServerResolver(n.Server)
	}
	return o
}

// follow passes on what one source sees, and runs it again if it cannot go on.
func (c *ControlPlane) follow(ctx context.Context, source discover.Source) {
	to := &listener{c, source.Name()}
	for {
		if err := source.Run(ctx, to); err != nil {
			to.Failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(sourceAgain):
		}
	}
}

// listener takes what one source sees.
type listener struct {
	c      *ControlPlane
	source string
}

// Emit implements discover.Listener.
func (l *listener) Emit(nodes []state.Spec) {
	was := l.note(func(s *SourceStatus) {
		*s = SourceStatus{Name: l.source, Nodes: len(nodes), Seen: time.Now()}
	})
	if was.Err != "" {
		l.c.opt.Log.Info("source of nodes is well again", "source", l.source, "nodes", len(nodes))
	}
	l.c.Send(state.NodesSeen{NowNs: l.c.NowNs(), Source: l.source, Specs: nodes})
}

// Failed implements discover.Listener.
func (l *listener) Failed(err error) {
	tell := false
	was := l.note(func(s *SourceStatus) {
		now := time.Now()
		if s.Err == "" {
			s.Since = now
		}
		if tell = s.Err != err.Error() && now.Sub(s.logged) >= failureAgain; tell {
			s.logged = now
		}
		s.Err = err.Error()
	})
	if tell {
		l.c.opt.Log.Error("source of nodes fails; what it named last stands", "source", l.source, "nodes", was.Nodes, "err", err)
	}
}

// note changes what is known of the source and returns what was.
func (l *listener) note(change func(*SourceStatus)) (was SourceStatus) {
	s := &l.c.sources
	s.mu.Lock()
	defer s.mu.Unlock()
	was = s.now[l.source]
	is := was
	change(&is)
	s.now[l.source] = is
	return was
}

// Sources returns how the sources of nodes are doing, by name. Any goroutine may
// call it.
func (c *ControlPlane) Sources() []SourceStatus {
	c.sources.mu.Lock()
	defer c.sources.mu.Unlock()
	var out []SourceStatus
	for _, s := range c.sources.now {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b SourceStatus) int { return strings.Compare(a.Name, b.Name) })
	return out
}
