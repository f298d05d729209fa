package soak

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// watch follows what the router uses.
type watch struct {
	run         *run
	descriptors int // before any traffic
	goroutines  int
	samples     []sample // written by follow, read when it has ended
	rested      usage    // at the end
}

// sample is what the router used at a time.
type sample struct {
	residentBytes int64
	descriptors   int
}

// usage is what the router uses at rest.
type usage struct{ descriptors, goroutines int }

func newWatch(r *run) (*watch, error) {
	w := &watch{run: r}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	if w.goroutines, err = r.router.goroutines(ctx); err != nil {
		return nil, err
	}
	w.descriptors, err = descriptors(r.router.pid())
	return w, err
}

// progressEvery is how often a line says how far the run has come.
const progressEvery = 10 * time.Second

// follow samples every second, asks for the metrics as a collector would, and
// says how far the run has come.
func (w *watch) follow(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	said, issued := time.Now(), int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.sample(ctx)
		if since := time.Since(said); since >= progressEvery {
			now := w.run.issued.Load()
			w.progress(float64(now-issued) / since.Seconds())
			said, issued = time.Now(), now
		}
	}
}

func (w *watch) sample(ctx context.Context) {
	pid := w.run.router.pid()
	memory, err := resident(pid)
	open, openErr := descriptors(pid)
	if err != nil || openErr != nil {
		return // it has just ended, which is noticed elsewhere
	}
	w.samples = append(w.samples, sample{memory, open})
	if _, err := w.run.router.families(ctx); err != nil && ctx.Err() == nil && !w.run.restarting(time.Now().Add(-time.Second)) {
		w.run.violate(nil, "%v", err)
	}
}

func (w *watch) progress(perSecond float64) {
	r := w.run
	r.mu.Lock()
	defer r.mu.Unlock()
	last := sample{}
	if n := len(w.samples); n > 0 {
		last = w.samples[n-1]
	}
	fmt.Fprintf(r.log, "%6.0f s: %d requests, %.0f a second; ok %d, retried %d, cut %d, left %d, errors %d; router %d MiB, %d descriptors\n",
		time.Since(r.start).Seconds(), r.issued.Load(), perSecond, r.counts[classOK], r.counts[classRetried], r.counts[classCut], r.counts[classLeft],
		r.counts[classOwnError]+r.counts[classPassedOn], last.residentBytes>>20, last.descriptors)
}

// settleWithin is how long after the last request the router may take to be at
// rest: idle connections to nodes time out, probes bring stopped nodes back.
const settleWithin = 30 * time.Second

// Slack of what is compared: probes come and go.
const (
	slackDescriptors = 8
	slackGoroutines  = 12
)

// settle waits until nothing is left of the traffic, and says what is if that
// does not come.
func (w *watch) settle(ctx context.Context) {
	var left string
	for begun := time.Now(); time.Since(begun) < settleWithin && ctx.Err() == nil; pauseFor(ctx, 200*time.Millisecond) {
		if left = w.left(ctx); left == "" {
			w.checkMemory()
			w.checkTotals(ctx)
			return
		}
	}
	w.run.violate(nil, "%v after the last request the router still has %s", settleWithin, left)
}

// left says what the router still has of the traffic, "" if nothing.
func (w *watch) left(ctx context.Context) string {
	r := w.run.router
	nodes, err := r.nodes(ctx)
	if err != nil {
		return err.Error()
	}
	for _, n := range nodes {
		if n.InFlight != 0 || n.Tokens != 0 || n.Prefill != 0 {
			return fmt.Sprintf("%d requests, %d tokens, %d of them prefill in flight at %s", n.InFlight, n.Tokens, n.Prefill, n.Name)
		}
	}
	if n, err := r.active(ctx); n != 0 || err != nil {
		return fmt.Sprintf("%d requests under way (%v)", n, err)
	}
	families, err := r.families(ctx)
	if err != nil {
		return err.Error()
	}
	for _, name := range []string{"in_flight", "in_flight_tokens", "identified_prompts", "identify_queue", "evidence_bytes", "connections"} {
		for _, m := range families["warmpath_"+name].GetMetric() {
			if v := m.GetGauge().GetValue(); v != 0 {
				return fmt.Sprintf("%v %s %v", v, name, m.GetLabel())
			}
		}
	}
	if w.rested.descriptors, err = descriptors(r.pid()); err != nil || w.rested.descriptors > w.descriptors+slackDescriptors {
		return fmt.Sprintf("%d descriptors, of %d before the traffic (%v)", w.rested.descriptors, w.descriptors, err)
	}
	if w.rested.goroutines, err = r.goroutines(ctx); err != nil || w.rested.goroutines > w.goroutines+slackGoroutines {
		return fmt.Sprintf("%d goroutines, of %d before the traffic (%v)", w.rested.goroutines, w.goroutines, err)
	}
	for _, n := range w.run.nodes {
		if open := n.connections(); open > slackDescriptors {
			return fmt.Sprintf("%d connections to node %d", open, n.number)
		}
	}
	return ""
}

// Memory may grow by this much from the first third of a run, warm-up left out,
// to its last.
const (
	mostGrowth      = 0.25
	mostGrowthBytes = 32 << 20
	leastSamples    = 60 // fewer say nothing of a trend
)

// thirds returns the mean memory of the first and of the last third, after a
// warm-up of a fifth.
func (w *watch) thirds() (first, last float64) {
	s := w.samples[len(w.samples)/5:]
	n := len(s) / 3
	if n == 0 {
		return 0, 0
	}
	for i := range n {
		first += float64(s[i].residentBytes) / float64(n)
		last += float64(s[len(s)-1-i].residentBytes) / float64(n)
	}
	return first, last
}

func (w *watch) checkMemory() {
	first, last := w.thirds()
	if len(w.samples) >= leastSamples && last > first*(1+mostGrowth)+mostGrowthBytes {
		w.run.violate(nil, "the router's memory grew from %.0f MiB in the first third to %.0f MiB in the last", first/(1<<20), last/(1<<20))
	}
}

// checkTotals compares what the router has counted with what clients have seen.
// Processes before the last restart took their counts with them.
func (w *watch) checkTotals(ctx context.Context) {
	families, err := w.run.router.families(ctx)
	if err != nil {
		w.run.violate(nil, "%v", err)
		return
	}
	counted, total := map[string]int64{}, int64(0)
	for _, m := range families["warmpath_requests_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "code" {
				counted[l.GetValue()] += int64(m.GetCounter().GetValue())
			}
		}
		total += int64(m.GetCounter().GetValue())
	}
	for _, problem := range w.run.compareTotals(counted, total) {
		w.run.violate(nil, "%s", problem)
	}
	for _, m := range families["warmpath_in_flight_healed_total"].GetMetric() { // what healed is not left, but was wrong
		if n := m.GetCounter().GetValue(); n != 0 {
			w.run.violate(nil, "counts of what is in flight were corrected %v times, %v", n, m.GetLabel())
		}
	}
}

// compareTotals says how the router's counts, by status, differ from what clients
// have seen.
func (r *run) compareTotals(counted map[string]int64, total int64) (problems []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if total > r.issued.Load() {
		problems = append(problems, fmt.Sprintf("the router counts %d requests, clients have sent %d", total, r.issued.Load()))
	}
	if r.counts["restart"] > 0 {
		return problems
	}
	answered := int64(0)
	for status, n := range r.statuses {
		answered += n
		if have := counted[strconv.Itoa(status)]; have < n {
			problems = append(problems, fmt.Sprintf("clients got %d answers of %d, the router counts %d", n, status, have))
		}
	}
	if total < answered {
		problems = append(problems, fmt.Sprintf("clients got %d answers, the router counts %d requests", answered, total))
	}
	return problems
}

func descriptors(pid int) (int, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "fd"))
	if err != nil {
		return 0, fmt.Errorf("count the router's descriptors: %w", err)
	}
	return len(entries), nil
}

// resident is the memory of a process that is in use.
func resident(pid int) (bytes int64, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm"))
	if err != nil {
		return 0, fmt.Errorf("read the router's memory: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read the router's memory: %q", text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// families asks the router for its metrics.
func (r *router) families(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	text, err := r.ask(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return nil, err
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the router's metrics: %w", err)
	}
	return families, nil
}
