package scaler

import (
	"cmp"
	"slices"
)

// Reading is what one router says of the pool at one moment. Its Totals count from
// the router's start; their SpanSeconds is the time since then.
type Reading struct {
	NowNs   int64   `json:"now_ns"` // by the router's clock, as are Nodes' times
	Nodes   []Node  `json:"nodes"`
	Totals  Traffic `json:"totals"`
	Held    float64 `json:"held"`
	Missing string  `json:"missing,omitempty"` // why it cannot be believed; "" = it can
	// Former says that a process that the router took over from has not ended: it may
	// have requests at nodes that the router does not count.
	Former bool `json:"former,omitempty"`
}

// Since is the traffic between two readings of one router; nothing is known of it
// if the router was started again in between.
func (t *Traffic) Since(was *Traffic) Traffic {
	d := Traffic{
		SpanSeconds: t.SpanSeconds - was.SpanSeconds, Requests: t.Requests - was.Requests, PromptTokens: t.PromptTokens - was.PromptTokens,
		UncachedTokens: t.UncachedTokens - was.UncachedTokens, OutputTokens: t.OutputTokens - was.OutputTokens, Answers: t.Answers - was.Answers,
		Uncached: less(t.Uncached, was.Uncached), TTFT: less(t.TTFT, was.TTFT),
	}
	if d.SpanSeconds <= 0 || d.Requests < 0 || d.PromptTokens < 0 || d.UncachedTokens < 0 || d.OutputTokens < 0 || d.Answers < 0 || d.Uncached == nil || d.TTFT == nil {
		return Traffic{}
	}
	return d
}

// less is a - b, nil if anything would be negative.
func less(a, b []float64) []float64 {
	d := slices.Clone(a)
	for i := range d {
		if i < len(b) {
			d[i] -= b[i]
		}
		if d[i] < 0 {
			return nil
		}
	}
	if d == nil {
		d = []float64{}
	}
	return d
}

// stretched is the traffic as it would be in a longer span: the readings of two
// routers are never of the same moments.
func (t *Traffic) stretched(spanSeconds float64) Traffic {
	by := spanSeconds / t.SpanSeconds
	if by == 1 {
		return *t
	}
	s := Traffic{
		SpanSeconds: spanSeconds, Requests: t.Requests * by, PromptTokens: t.PromptTokens * by, UncachedTokens: t.UncachedTokens * by,
		OutputTokens: t.OutputTokens * by, Answers: t.Answers * by, Uncached: slices.Clone(t.Uncached), TTFT: slices.Clone(t.TTFT),
	}
	for _, counts := range [][]float64{s.Uncached, s.TTFT} {
		for i := range counts {
			counts[i] *= by
		}
	}
	return s
}

// add adds what came at another router in the same span.
func (t *Traffic) add(o *Traffic) {
	t.SpanSeconds = max(t.SpanSeconds, o.SpanSeconds)
	t.Requests += o.Requests
	t.PromptTokens += o.PromptTokens
	t.UncachedTokens += o.UncachedTokens
	t.OutputTokens += o.OutputTokens
	t.Answers += o.Answers
	t.Uncached, t.TTFT = plus(t.Uncached, o.Uncached), plus(t.TTFT, o.TTFT)
}

func plus(a, b []float64) []float64 {
	sum := slices.Clone(a)
	for i, n := range b {
		if i == len(sum) {
			sum = append(sum, 0)
		}
		sum[i] += n
	}
	return sum
}

// Meter turns the readings of one or more routers into Signals.
type Meter struct {
	was map[string]*Traffic // by router
}

// Signals combines the readings of all routers, by name. Of a router that is seen
// for the first time, or was started again, there is no traffic yet: then nothing
// is known of the whole.
func (m *Meter) Signals(nowNs int64, readings map[string]*Reading) Signals {
	s := Signals{NowNs: nowNs}
	next := make(map[string]*Traffic, len(readings))
	nodes := map[string]Node{}
	var spans []Traffic
	longest, all := 0.0, true
	names := make([]string, 0, len(readings))
	for name := range readings {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		r := readings[name]
		if r.Missing != "" && s.Missing == "" {
			s.Missing = name + ": " + r.Missing
		}
		next[name] = &r.Totals
		d := Traffic{}
		if was := m.was[name]; was != nil {
			d = r.Totals.Since(was)
		}
		all = all && d.SpanSeconds > 0
		spans, longest = append(spans, d), max(longest, d.SpanSeconds)
		s.Held += r.Held
		for i := range r.Nodes {
			nodes[r.Nodes[i].Name] = joined(nodes, &r.Nodes[i])
		}
	}
	m.was = next
	for i := 0; i < len(spans) && all; i++ {
		d := spans[i].stretched(longest)
		s.Traffic.add(&d)
	}
	for _, n := range nodes {
		s.Nodes = append(s.Nodes, n)
	}
	slices.SortFunc(s.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// joined is a node as several routers see it: what each has sent there adds up, what
// the engine says is the same for all, and it is as well as the one to which it is
// well: another one's way there may be broken.
func joined(nodes map[string]Node, n *Node) Node {
	was, ok := nodes[n.Name]
	if !ok {
		return *n
	}
	if n.Phase == Ready && was.Phase != Draining || n.Phase == Draining {
		was.Phase, was.SinceNs = n.Phase, n.SinceNs
	}
	was.InFlight += n.InFlight
	if n.BacklogSeconds.Known {
		was.BacklogSeconds = Known(was.BacklogSeconds.Or(0) + n.BacklogSeconds.Value)
	}
	for _, g := range []struct{ to, from *Gauge }{
		{&was.Queued, &n.Queued},
		{&was.Running, &n.Running},
		{&was.MostRunning, &n.MostRunning},
		{&was.KVUse, &n.KVUse},
		{&was.Evicted, &n.Evicted},
		{&was.CacheTokens, &n.CacheTokens},
		{&was.Fill, &n.Fill},
		{&was.Busy, &n.Busy},
		{&was.PrefillTokensPerSecond, &n.PrefillTokensPerSecond},
		{&was.DecodeTokensPerSecond, &n.DecodeTokensPerSecond},
	} {
		if !g.to.Known {
			*g.to = *g.from
		}
	}
	return was
}
