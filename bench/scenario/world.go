package scenario

import (
	"fmt"
	"math"
	"math/rand/v2"

	"warmpath/bench/virtual"
	"warmpath/bench/workload"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
	"warmpath/scaler"
)

// patienceNs is how long after the workload's end its answers may still end.
const patienceNs = int64(600e9)

// world is one run in progress.
type world struct {
	cfg   Config
	load  *workload.Workload
	law   Law
	rng   *rand.Rand // of faults, signals and ties, apart from start-up times
	nowNs int64

	timers timers
	wakes  wakes
	index  *virtual.Index

	nodes  []*node // that are not gone, by name
	slots  []*node // by slot; nil = free
	last   int     // number of the latest node
	offers []*offerState

	router router
	held   []int32 // requests that no node can take, in the order of their coming
	flying []*flight
	idle   []int32 // free places in flying
	active int     // requests in flight

	traffic traffic
	tally   tally
}

// flight is a request at a node.
type flight struct {
	job      virtual.Job
	request  int32
	node     *node
	uncached int64 // that were counted at its node …
	total    int64
	expected []uint32 // contents that were noted as expected there
	beganNs  int64    // when its first token came
	attained bool     // in time
}

// Run runs a workload under a law. Config.Foreseen, if it is set, stands in for the
// law, which may then be nil.
func Run(cfg Config, law Law) (*Report, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	rule, err := policy.New(cfg.Policy, cfg.Params)
	if err != nil {
		return nil, fmt.Errorf("check scenario: %w", err)
	}
	slots := 2 * cfg.MaxNodes // half of them may drain
	w := &world{
		cfg: cfg, load: cfg.Load, law: law, rng: rand.New(rand.NewPCG(cfg.Seed, 0x90a1)),
		wakes: newWakes(slots), index: virtual.NewIndex(max(cfg.Load.Contents, 1), slots), slots: make([]*node, slots),
		router: newRouter(rule, slots),
	}
	w.traffic.reset()
	w.tally = newTally(&w.cfg)
	for i := range w.cfg.Offers {
		w.offers = append(w.offers, newOfferState(&w.cfg.Offers[i]))
	}
	w.begin()
	w.run()
	return w.close(), nil
}

// begin makes the nodes that are there at the start and sets what is known to happen.
func (w *world) begin() {
	start := w.cfg.StartNodes
	if w.cfg.Foreseen != nil {
		start = w.cfg.Foreseen[0].Nodes
		for _, wanted := range w.cfg.Foreseen[1:] {
			w.timers.set(wanted.FromNs, func(int64) { w.foresee(wanted.Nodes) })
		}
	}
	for range max(0, start) {
		w.ready(w.addNode(w.offers[0], 0))
	}
	for _, k := range w.cfg.Kills {
		w.timers.set(k.AtNs, func(int64) { w.kill(&k) })
	}
	w.every(int64(w.cfg.Signs.MetricsSeconds*1e9), w.scrape)
	w.every(1e9, w.refresh)
	if w.cfg.Series {
		w.every(seriesNs, w.look)
	}
	if w.cfg.Foreseen == nil {
		w.every(int64(w.law.IntervalSeconds()*1e9), w.ask)
	}
	w.publish()
}

// every does something again and again, until the workload ends.
func (w *world) every(ns int64, do func()) {
	var again func(int64)
	again = func(nowNs int64) {
		if nowNs > w.load.SpanNs {
			return
		}
		do()
		w.timers.set(nowNs+ns, again)
	}
	w.timers.set(ns, again)
}

// run takes what happens by time: engines first, then timers, then arrivals.
func (w *world) run() {
	next, requests := 0, w.load.Requests
	for {
		arrivalNs := int64(math.MaxInt64)
		if next < len(requests) {
			arrivalNs = requests[next].AtNs
		}
		slot, wakeNs := w.wakes.next()
		timerNs := w.timers.nextNs()
		switch {
		case min(arrivalNs, wakeNs, timerNs) > w.load.SpanNs+patienceNs,
			arrivalNs == math.MaxInt64 && w.active == 0 && len(w.held) == 0 && w.nowNs >= w.load.SpanNs:
			return
		case wakeNs <= timerNs && wakeNs <= arrivalNs:
			w.nowNs = wakeNs
			w.wake(slot)
		case timerNs <= arrivalNs:
			w.nowNs = timerNs
			t := w.timers.pop()
			t.do(timerNs)
		default:
			w.nowNs = arrivalNs
			w.arrive(int32(next))
			next++
		}
	}
}

// arrive takes a request from a client.
func (w *world) arrive(request int32) {
	w.traffic.requests++
	w.tally.arrived(w.load.Requests[request].AtNs)
	if w.send(request) {
		return
	}
	if len(w.held) >= w.cfg.MostHeld {
		w.tally.lose(w.load.Requests[request].AtNs, false)
		return
	}
	w.held = append(w.held, request)
}

// sendHeld sends what waits for a node, the oldest first, and loses what has waited
// for too long.
func (w *world) sendHeld() {
	for len(w.held) > 0 {
		atNs := w.load.Requests[w.held[0]].AtNs
		switch {
		case float64(w.nowNs-atNs) > w.cfg.HeldSeconds*1e9:
			w.tally.lose(atNs, false)
		case !w.send(w.held[0]):
			return
		}
		w.held = w.held[1:]
	}
}

// send has a request decided on and sends it. It reports false if no node can take
// it.
func (w *world) send(request int32) bool {
	r := &w.load.Requests[request]
	slot := w.router.decide(w, r)
	if slot < 0 {
		return false
	}
	n, f := w.slots[slot], w.flight()
	f.request, f.node = request, n
	prompt := r.Contents[:min(len(r.Contents), int(r.Prompt)/workload.BlockTokens)]
	matched := int(w.router.match.Tokens[slot])
	f.uncached = max(1, int64(int(r.Prompt)-min(matched, int(r.Prompt-1)/workload.BlockTokens*workload.BlockTokens)))
	f.total = int64(r.Prompt) + int64(w.router.meanOutput)
	if f.expected = prompt[min(len(prompt), matched/workload.BlockTokens):]; len(f.expected) > 0 {
		w.index.Expect(f.expected, slot, true)
	}
	w.router.count(slot, 1, f.uncached, f.total)
	w.traffic.sent(int64(r.Prompt), f.uncached)
	w.active++
	f.job.Prompt, f.job.Output, f.job.Contents = r.Prompt, r.Output, r.Contents
	n.engine.Add(&f.job, w.nowNs)
	w.wakes.set(slot, n.engine.WakeNs())
	return true
}

// flight returns one that is free.
func (w *world) flight() *flight {
	if len(w.idle) == 0 {
		w.idle = append(w.idle, int32(len(w.flying)))
		w.flying = append(w.flying, &flight{})
	}
	id := w.idle[len(w.idle)-1]
	w.idle = w.idle[:len(w.idle)-1]
	f := w.flying[id]
	f.job.Reset()
	f.job.ID = id
	return f
}

// wake ends a row of steps of a node's engine.
func (w *world) wake(slot int) {
	n := w.slots[slot]
	for _, o := range n.engine.Wake(w.nowNs) {
		f := w.flying[o.Job.ID]
		r := &w.load.Requests[f.request]
		if o.First {
			f.firstToken(w, r)
		}
		if o.Last {
			n.answered(w.nowNs, f, r)
			w.traffic.answers++
			w.router.learnOutput(r.Output)
			w.router.count(slot, -1, 0, -f.total)
			w.release(f)
		}
	}
	w.wakes.set(slot, n.engine.WakeNs())
	if n.phase == scaler.Draining && w.router.loads.Requests[slot] == 0 {
		w.end(n)
	}
}

// speculativeNs is how long after the first token an expected content counts.
const speculativeNs = int64(2e9)

func (f *flight) firstToken(w *world, r *workload.Request) {
	slot := f.node.slot
	w.router.count(slot, 0, -f.uncached, 0)
	f.node.began(w, f)
	seconds := float64(w.nowNs-r.AtNs) / 1e9
	w.traffic.firstToken(seconds, f.uncached)
	f.attained = w.tally.firstToken(r, seconds)
	w.tally.prompts(r, f.job.Cached())
	if len(f.expected) > 0 {
		f.node.lapse = append(f.node.lapse, lapse{w.nowNs + speculativeNs, f.expected})
		f.expected = nil
	}
}

// release frees a flight that is over, or whose node is gone.
func (w *world) release(f *flight) {
	if len(f.expected) > 0 {
		w.index.Expect(f.expected, f.node.slot, false)
	}
	f.expected, f.node, f.attained = nil, nil, false
	w.idle = append(w.idle, f.job.ID)
	w.active--
}

// fleetNode is a node as the router's snapshot has it.
func (w *world) fleetNode(n *node) *fleet.Node {
	state := fleet.Ready
	if n.phase == scaler.Draining {
		state = fleet.Draining
	}
	gauge := func(g scaler.Gauge) fleet.Gauge { return fleet.Gauge(g) }
	return &fleet.Node{
		Slot: n.slot, Name: n.name, State: state, Island: n.offer.Island, Region: n.offer.Region,
		CapacityClass: 1, Weight: n.weight, BlockTokens: w.cfg.Engine.BlockTokens, CacheTokens: int64(w.cfg.Engine.CacheTokens),
		PrefillTokensPerSecond: gauge(n.prefill.gauge()), DecodeTokensPerSecond: gauge(n.decode),
		QueuedRequests: gauge(n.queued), RunningRequests: gauge(n.running), KVUse: gauge(n.kvUse), EvictedTokensPerSecond: gauge(n.evictRate),
		Load: &n.load,
	}
}
