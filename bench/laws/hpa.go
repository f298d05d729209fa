package laws

import (
	"fmt"
	"math"

	"warmpath/bench/scenario"
	"warmpath/scaler"
)

// The defaults of Kubernetes' horizontal pod autoscaler, version 2.
const (
	hpaSyncSeconds   = 15.0
	hpaTolerance     = 0.1
	hpaStabiliseDown = 300.0 // seconds
	hpaStepPods      = 4     // that may be added in hpaStepSeconds, or …
	hpaStepFactor    = 2.0   // … so many times as many as there were, whichever is more
	hpaStepSeconds   = 15.0
)

// replicas is the part of the pod autoscaler that does not depend on the metric: how
// a recommendation becomes the number of pods. What the cluster cannot give stays
// pending and is asked for again; pods whose nodes died are made again at once.
type replicas struct {
	spec  int // pods that are asked for
	most  int
	said  []said // recommendations of the stabilisation window
	steps []said // pods that were added
}

// said is a number at a time.
type said struct {
	atNs int64
	n    int
}

// recommend takes a recommendation and sets spec. The number of pods that the
// autoscaler finds at first counts as recommended.
func (r *replicas) recommend(nowNs int64, n int) {
	n = min(max(n, 1), r.most)
	if len(r.said) == 0 {
		r.said = append(r.said, said{nowNs, r.spec})
	}
	r.said = append(recent(r.said, nowNs, hpaStabiliseDown), said{nowNs, n})
	for _, s := range r.said { // of the last minutes the highest counts, so the fleet shrinks late
		if n < r.spec {
			n = max(n, min(s.n, r.spec))
		}
	}
	r.steps = recent(r.steps, nowNs, hpaStepSeconds)
	if n > r.spec {
		before := r.spec
		for _, s := range r.steps {
			before -= s.n
		}
		n = min(n, max(r.spec, before+hpaStepPods, int(math.Ceil(float64(before)*hpaStepFactor))))
		r.steps = append(r.steps, said{nowNs, n - r.spec})
	}
	r.spec = n
}

// recent drops what is older than so many seconds.
func recent(list []said, nowNs int64, seconds float64) []said {
	kept := list[:0]
	for _, s := range list {
		if float64(nowNs-s.atNs) < seconds*1e9 {
			kept = append(kept, s)
		}
	}
	return kept
}

// orders makes as many pods as are asked for of those there are.
func (r *replicas) orders(s *scaler.Signals) scenario.Orders {
	have := pods(s)
	switch {
	case have < r.spec:
		return scenario.Orders{Start: []scaler.Start{{Count: r.spec - have}}}
	default:
		return scenario.Orders{Fewer: have - r.spec}
	}
}

// pods counts the nodes that serve or will.
func pods(s *scaler.Signals) (n int) {
	for i := range s.Nodes {
		if p := s.Nodes[i].Phase; p == scaler.Ready || p == scaler.Starting {
			n++
		}
	}
	return n
}

// minute is the mean of a gauge over the last minute, as rules on metrics usually
// have it: what comes in tokens is too noisy for less.
type minute struct{ values []reading }

type reading struct {
	atNs  int64
	value float64
}

const minuteNs = int64(60e9)

// add takes a reading, if there is one, and returns the mean.
func (m *minute) add(nowNs int64, g scaler.Gauge) scaler.Gauge {
	kept, sum := m.values[:0], 0.0
	for _, v := range m.values {
		if nowNs-v.atNs < minuteNs {
			kept = append(kept, v)
		}
	}
	if m.values = kept; g.Known {
		m.values = append(m.values, reading{nowNs, g.Value})
	}
	if len(m.values) == 0 {
		return scaler.Gauge{}
	}
	for _, v := range m.values {
		sum += v.value
	}
	return scaler.Known(sum / float64(len(m.values)))
}

// hpa scales on a target utilisation, the mean over pods of a metric that each pod
// has.
type hpa struct {
	replicas
	name   string
	use    func(n *scaler.Node, s *scenario.Setup) scaler.Gauge // 0 … 1, of a pod
	target float64
	setup  scenario.Setup
	pods   map[string]*minute
}

func newHPA(name string, use func(*scaler.Node, *scenario.Setup) scaler.Gauge, target float64, s scenario.Setup) *hpa {
	return &hpa{replicas: replicas{most: s.MaxNodes}, name: name, use: use, target: target, setup: s, pods: map[string]*minute{}}
}

// busyShare is the time in which a GPU worked on anything.
func busyShare(n *scaler.Node, _ *scenario.Setup) scaler.Gauge { return n.Busy }

// runningShare is the requests that an engine works on, against what it could.
func runningShare(n *scaler.Node, s *scenario.Setup) scaler.Gauge {
	if !n.Running.Known {
		return n.Running
	}
	return scaler.Known(n.Running.Value / float64(s.MostRunning))
}

func (h *hpa) Name() string { return fmt.Sprintf("%s %.4g", h.name, h.target) }

func (h *hpa) IntervalSeconds() float64 { return hpaSyncSeconds }

func (h *hpa) Decide(s *scaler.Signals) scenario.Orders {
	if h.spec == 0 {
		h.spec = max(1, pods(s))
	}
	if s.Missing == "" {
		if n, ok := h.desired(s); ok {
			h.recommend(s.NowNs, n)
		}
	}
	return h.orders(s)
}

// desired is the autoscaler's formula with its treatment of pods that are not ready,
// or whose metrics are missing: they count as idle when it would grow, as on target
// when it would shrink, and must not turn the one into the other.
func (h *hpa) desired(s *scaler.Signals) (n int, ok bool) {
	sum, known, missing := 0.0, 0, 0
	ready := 0
	pods := map[string]*minute{}
	for i := range s.Nodes {
		if s.Nodes[i].Phase != scaler.Ready {
			continue
		}
		ready++
		name := s.Nodes[i].Name
		if pods[name] = h.pods[name]; pods[name] == nil {
			pods[name] = &minute{}
		}
		if g := pods[name].add(s.NowNs, h.use(&s.Nodes[i], &h.setup)); g.Known {
			sum += g.Value
			known++
		} else {
			missing++
		}
	}
	if h.pods = pods; known == 0 {
		return 0, false
	}
	unready := max(0, h.spec-ready)
	ratio := sum / float64(known) / h.target
	idle := unready > 0 && ratio > 1
	if !idle && missing == 0 {
		if math.Abs(ratio-1) <= hpaTolerance {
			return h.spec, true
		}
		return int(math.Ceil(ratio * float64(known))), true
	}
	counted := known + missing
	if ratio < 1 {
		sum += float64(missing) * max(1, h.target)
	} else if idle {
		counted += unready
	}
	again := sum / float64(counted) / h.target
	if math.Abs(again-1) <= hpaTolerance || ratio < 1 && again > 1 || ratio > 1 && again < 1 {
		return h.spec, true
	}
	n = int(math.Ceil(again * float64(counted)))
	if again < 1 && n > h.spec || again > 1 && n < h.spec {
		return h.spec, true
	}
	return n, true
}

// keda scales on a queue: as many pods as it takes for each to have no more than a
// target of what waits, or of what waits and is worked on.
type keda struct {
	replicas
	name    string
	running bool
	target  float64
	total   minute
}

// kedaPollSeconds is how often the queue is looked at.
const kedaPollSeconds = 30.0

func newKEDA(name string, running bool, target float64, s scenario.Setup) *keda {
	return &keda{replicas: replicas{most: s.MaxNodes}, name: name, running: running, target: target}
}

func (k *keda) Name() string { return fmt.Sprintf("%s %.4g", k.name, k.target) }

func (k *keda) IntervalSeconds() float64 { return kedaPollSeconds }

func (k *keda) Decide(s *scaler.Signals) scenario.Orders {
	if k.spec == 0 {
		k.spec = max(1, pods(s))
	}
	if s.Missing == "" {
		total := s.Held
		for i := range s.Nodes {
			n := &s.Nodes[i]
			total += n.Queued.Or(0)
			if k.running {
				total += n.Running.Or(0)
			}
		}
		total = k.total.add(s.NowNs, scaler.Known(total)).Value
		n := k.spec
		if ratio := total / k.target / float64(k.spec); math.Abs(ratio-1) > hpaTolerance {
			n = int(math.Ceil(min(total/k.target, 1e6)))
		}
		k.recommend(s.NowNs, n)
	}
	return k.orders(s)
}
