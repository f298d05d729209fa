package scenario

import (
	"math"

	"warmpath/bench/workload"
	"warmpath/scaler"
)

// Report is what became of a run. Times before Workload.MeasureNs do not count.
type Report struct {
	Scaler   string `json:"scaler"`
	Workload string `json:"workload"`
	Policy   string `json:"policy"`
	Seed     uint64 `json:"seed"`
	Commit   string `json:"commit,omitempty"` // of the program, if its caller says

	GPUHours                float64 `json:"gpu_hours"`
	SLOAttainment           float64 `json:"slo_attainment"`
	LostRequests            int64   `json:"lost_requests"` // cut streams among them
	DirectionChangesPerHour float64 `json:"direction_changes_per_h"`

	Hours        float64    `json:"hours"`
	Requests     int64      `json:"requests"`
	CutStreams   int64      `json:"cut_streams"` // answers that had begun on a node that died, at any time of the run
	TTFTMean     float64    `json:"ttft_mean_s"`
	TTFTP50      float64    `json:"ttft_p50_s"`
	TTFTP90      float64    `json:"ttft_p90_s"`
	TTFTP99      float64    `json:"ttft_p99_s"`
	Cost         float64    `json:"cost"`
	CachedShare  float64    `json:"cached_share"` // of prompt tokens, as engines found them
	PeakNodes    int        `json:"peak_nodes"`   // ready at once, at any time of the run
	NodesStarted int        `json:"nodes_started"`
	Drains       int        `json:"drains"`
	Deaths       int        `json:"deaths"`
	Preemptions  int64      `json:"preemptions"`
	Recoveries   []Recovery `json:"recoveries,omitempty"`

	Seconds []Second `json:"-"` // by when requests came
	Points  []Point  `json:"-"` // if Config.Series
}

// Recovery is how soon requests attained their target again after something happened.
type Recovery struct {
	Event   string  `json:"event"`
	AtS     float64 `json:"at_s"`
	Seconds float64 `json:"seconds"` // 0 = they never ceased to; -1 = they never did again
}

// Second is what came in one second of the workload.
type Second struct {
	Arrived, Attained int32
}

// Point is the fleet at one moment.
type Point struct {
	AtSeconds                       float64
	Ready, Starting, Draining, Down int
	InFlight, Queued, Held          int
}

// seriesNs is between two points.
const seriesNs = int64(10e9)

// Steps of the histogram of times to first token: each a hundredth more than the one
// before.
const (
	ttftLeast = 1e-3
	ttftSteps = 1700
	ttftStep  = 0.01
)

// tally counts what the report is made of.
type tally struct {
	cfg      *Config
	seconds  []Second
	measured int64 // second from which on it counts
	ttft     [ttftSteps]int64
	ttftSum  float64
	ttftN    int64
	lost     int64
	cut      int64
	prompt   int64
	cached   int64

	gpuNs  int64
	cost   float64
	peak   int
	drains int
	deaths int

	preemptions int64
	direction   int // of the latest order that changed the number of nodes
	changes     int64
	points      []Point
}

func newTally(cfg *Config) tally {
	return tally{cfg: cfg, seconds: make([]Second, cfg.Load.SpanNs/1e9+1), measured: cfg.Load.MeasureNs}
}

func (t *tally) arrived(atNs int64) { t.seconds[atNs/1e9].Arrived++ }

// firstToken counts a first token. It reports whether it came in time.
func (t *tally) firstToken(r *workload.Request, seconds float64) bool {
	target := t.cfg.Target.TTFTSeconds
	if f := t.cfg.Target.OwnFactor; f > 0 {
		target = max(target, f*float64(t.cfg.Engine.PrefillNs(0, int(r.Prompt)))/1e9)
	}
	attained := seconds <= target
	if attained {
		t.seconds[r.AtNs/1e9].Attained++
	}
	if r.AtNs >= t.measured {
		step := math.Log(max(seconds, ttftLeast)/ttftLeast) / ttftStep
		t.ttft[min(ttftSteps-1, int(step))]++
		t.ttftSum += seconds
		t.ttftN++
	}
	return attained
}

// prompts counts what engines found of a prompt in their caches.
func (t *tally) prompts(r *workload.Request, cached int) {
	if r.AtNs >= t.measured {
		t.prompt += int64(r.Prompt)
		t.cached += int64(cached)
	}
}

// lose counts a request that gets no whole answer.
func (t *tally) lose(atNs int64, attained bool) {
	if attained {
		t.seconds[atNs/1e9].Attained--
	}
	if atNs >= t.measured {
		t.lost++
	}
}

// ordered counts changes of direction.
func (t *tally) ordered(nowNs int64, by int) {
	switch {
	case by == 0:
		return
	case t.direction != 0 && (by > 0) != (t.direction > 0) && nowNs >= t.measured:
		t.changes++
	}
	t.direction = by
}

// quantile is the time that the share q of first tokens had, to 1 %.
func (t *tally) quantile(q float64) float64 {
	rank, sum := int64(math.Ceil(q*float64(t.ttftN))), int64(0)
	for i, n := range t.ttft {
		if sum += n; sum >= rank && sum > 0 {
			return ttftLeast * math.Exp((float64(i)+.5)*ttftStep)
		}
	}
	return 0
}

// look adds a point to the series.
func (w *world) look() {
	p := Point{
		AtSeconds: float64(w.nowNs) / 1e9, Held: len(w.held), InFlight: w.active,
		Ready: w.count(scaler.Ready), Starting: w.count(scaler.Starting), Draining: w.count(scaler.Draining), Down: w.count(scaler.Down),
	}
	for _, n := range w.nodes {
		if n.engine != nil {
			p.Queued += n.engine.Waiting()
		}
	}
	w.tally.points = append(w.tally.points, p)
}

// close ends the run: nodes are paid for, what is unanswered is lost.
func (w *world) close() *Report {
	for _, f := range w.flying {
		if f.node != nil {
			w.tally.lose(w.load.Requests[f.request].AtNs, f.attained)
		}
	}
	for _, request := range w.held {
		w.tally.lose(w.load.Requests[request].AtNs, false)
	}
	for _, n := range w.nodes {
		w.pay(n)
		if n.engine != nil {
			w.tally.preemptions += n.engine.Preemptions
		}
	}
	t := &w.tally
	r := &Report{
		Scaler: "foreseen", Workload: w.load.Name, Policy: w.cfg.Policy, Seed: w.cfg.Seed,
		GPUHours: float64(t.gpuNs) / 3600e9, LostRequests: t.lost, CutStreams: t.cut, Cost: t.cost,
		Hours: float64(w.load.SpanNs-w.load.MeasureNs) / 3600e9, TTFTMean: t.ttftSum / float64(max(1, t.ttftN)),
		TTFTP50: t.quantile(.5), TTFTP90: t.quantile(.9), TTFTP99: t.quantile(.99),
		CachedShare: float64(t.cached) / float64(max(1, t.prompt)), PeakNodes: t.peak, NodesStarted: w.last, Drains: t.drains, Deaths: t.deaths,
		Preemptions: t.preemptions, Seconds: t.seconds, Points: t.points,
	}
	if w.cfg.Foreseen == nil {
		r.Scaler = w.law.Name()
	}
	r.DirectionChangesPerHour = float64(t.changes) / r.Hours
	r.Requests, r.SLOAttainment = Attainment(t.seconds[t.measured/1e9:])
	r.Recoveries = w.recoveries()
	return r
}

// Attainment is how many requests came in some seconds, and the share of them that
// attained their target; 1 if none came.
func Attainment(seconds []Second) (requests int64, share float64) {
	attained := int64(0)
	for _, s := range seconds {
		requests += int64(s.Arrived)
		attained += int64(s.Attained)
	}
	if requests == 0 {
		return 0, 1
	}
	return requests, float64(attained) / float64(requests)
}

// recoveries finds out how soon each event was over.
func (w *world) recoveries() (list []Recovery) {
	add := func(event string, atNs int64) {
		if atNs < w.load.SpanNs {
			list = append(list, Recovery{event, float64(atNs) / 1e9, Recover(w.tally.seconds, int(atNs/1e9))})
		}
	}
	for _, m := range w.load.Marks {
		add(m.Name, m.AtNs)
	}
	for _, k := range w.cfg.Kills {
		add("kill", k.AtNs)
	}
	for i := range w.cfg.Offers {
		for _, o := range w.cfg.Offers[i].Outages {
			add("outage of "+w.cfg.Offers[i].Name, o.FromNs)
		}
	}
	return list
}

// Recover is the first time from a second on after which, for 60 s, of the requests
// that come in any 30 s 99 % attain their target; in seconds since then, -1 if there
// is none.
func Recover(seconds []Second, from int) float64 {
	const window, stay, share = 30, 60, .99
	good := 0
	for at := from; at+window <= len(seconds); at++ {
		if _, s := Attainment(seconds[at : at+window]); s >= share {
			good++
		} else {
			good = 0
		}
		if good > stay || good > 0 && at+window == len(seconds) {
			return float64(at - good + 1 - from)
		}
	}
	return -1
}
