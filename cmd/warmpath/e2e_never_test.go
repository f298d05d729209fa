package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var neverFor = flag.Duration("e2e.never", 0, "how long nodes that are late, lossy or reset are watched for being called dead")

// What the nodes are that must never be called dead, and for how long each of two
// kinds of time takes turns: many short requests, and one long silence of each
// node, in which its requests wait acknowledged and sentinels ask.
const (
	neverBusy    = 4 * time.Second
	neverSilent  = 4 * time.Second
	neverEvery   = 15 * time.Millisecond // between short requests
	neverReset   = 10 * time.Second      // between resets
	neverPerMill = 10                    // packets lost each way
	longPrompt   = 18_000                // tokens, of four bytes each: more than two seconds of prefill
)

// TestNeverDead: a node that answers after 25 to 35 ms, one that loses one packet
// in a hundred in each direction, and one that resets a connection now and then.
func TestNeverDead(t *testing.T) {
	if *neverFor == 0 {
		t.Skip("runs with -e2e.never: make dead-trials")
	}
	cells := makeCells(t, 3)
	names := []string{"sim-0 answers after 25 to 35 ms", "sim-1 loses 1 % of packets each way", "sim-2 resets a connection each 10 s"}
	sims, urls := make([]*engines, len(cells)), make([]string, len(cells))
	for i, c := range cells {
		args := []string{}
		if i == 0 {
			args = []string{"--decode-base-ms", "29", "--decode-per-request-ms", "0.5"}
		}
		sims[i] = startEnginesAt(t, c.by(), c.address, 1, args...)
		urls[i] = sims[i].urls[0]
	}
	r := serve(t, settings, "policy: {name: round_robin}\nkernel: {mode: auto}\n", nodeList(urls...))
	cells[1].loss(t).Set(neverPerMill)
	ctx, cancel := context.WithTimeout(t.Context(), *neverFor)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { each(ctx, neverReset, func() { sims[2].fault(t, 0, `{"kind":"reset","count":1}`) }) })
	var asked, failed atomic.Int64
	all.Go(func() { r.inTurns(ctx, &asked, &failed) })
	said := map[string]int{}
	stalled := stalls()
	each(ctx, 50*time.Millisecond, func() {
		for i, n := range r.nodes(t) {
			if n.State != "ready" || n.Breaker != "closed" {
				said[fmt.Sprintf("%s: %s %s, breaker %s: %s", names[i], n.State, n.Down, n.Breaker, n.Reason)]++
			}
		}
	})
	all.Wait()
	stall := stalled()
	fmt.Printf("\n# never dead, for %v\n\n%d requests, %d failed; this machine stalled for %d ms at most\n", *neverFor, asked.Load(), failed.Load(), stall.Milliseconds())
	for i, name := range names {
		sentinels := func(outcome string) float64 {
			return r.metric(t, fmt.Sprintf(`sentinels_total{node="sim-%d",outcome=%q}`, i, outcome))
		}
		of := func(series, more string) float64 {
			return r.metric(t, fmt.Sprintf(`%s{%snode="sim-%d"}`, series, more, i))
		}
		fmt.Printf("%-38s %v segments sent again, %v retransmission time-outs, %v resets; %v sentinel exchanges answered, %v not, %v broken off\n", name,
			of("kernel_retransmits_total", ""), of("kernel_retransmission_timeouts_total", ""), of("node_failures_total", `kind="reset",`),
			sentinels("answered"), sentinels("unanswered"), sentinels("void"))
	}
	for _, what := range slices.Sorted(maps.Keys(said)) {
		fmt.Printf("seen %d times: %s\n", said[what], what)
	}
	dead := strings.Count(r.err.String(), "dead")
	fmt.Printf("called dead: %d times\n", dead)
	if dead > 0 || failed.Load() > 0 {
		t.Errorf("%d lines on dead nodes, %d requests failed", dead, failed.Load())
	}
}

// each does something at intervals until ctx ends.
func each(ctx context.Context, every time.Duration, do func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// inTurns sends many short requests for a while, then one to each node that is
// silent for long, and so on.
func (r *serving) inTurns(ctx context.Context, asked, failed *atomic.Int64) {
	var under sync.WaitGroup
	send := func(text, more string) {
		id := asked.Add(1)
		under.Go(func() {
			if a := r.send(context.WithoutCancel(ctx), chatPath, "", chatBody(fmt.Sprint(id, text), more), nil); a.err != nil || a.status != http.StatusOK {
				failed.Add(1)
			}
		})
	}
	for ctx.Err() == nil {
		busy, cancel := context.WithTimeout(ctx, neverBusy)
		n := 0
		each(busy, neverEvery, func() {
			n++
			send(" in short", []string{`,"max_tokens":1`, `,"max_tokens":20` + streaming}[n%8/7])
		})
		cancel()
		under.Wait()
		for range 3 {
			send(strings.Repeat(" lo", 4*longPrompt/3), `,"max_tokens":2`+streaming)
		}
		silent, cancel := context.WithTimeout(ctx, neverSilent)
		each(silent, neverSilent, func() {})
		cancel()
		under.Wait()
	}
}
