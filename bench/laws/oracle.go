package laws

import (
	"math"

	"warmpath/bench/scenario"
	"warmpath/bench/workload"
)

// Those who know the future know every request that will come, and what it will take.
// From that they make the load of each moment, in nodes, and from the load how many
// nodes there shall be then. Nodes are there to the second, since they were asked for
// exactly their start-up time before; they cost from then on. Where fewer are needed
// for less than a start-up time they are kept, since to ask for them again would cost
// more.

// planSeconds is how finely they plan.
const planSeconds = 10

// linear is so many nodes for a load that they are busy to the knob's share.
func linear(load, knob float64) float64 { return load / knob }

// root is as many more than the load as its square root times minus the knob, as the
// theory of queues has it for many servers: chance evens out in large fleets.
func root(load, knob float64) float64 { return load - knob*math.Sqrt(load) }

// foresee makes a plan by one of these, on the load as it is on average
// over some seconds around each moment.
func foresee(nodes func(load, knob float64) float64, smoothSeconds int) foreseer {
	return func(knob float64, cfg *scenario.Config) []scenario.Wanted {
		load := smooth(Load(cfg, planSeconds), smoothSeconds/planSeconds/2)
		wanted := make([]int, len(load))
		for i, l := range load {
			wanted[i] = atLeastOne(nodes(l, knob), cfg)
		}
		return steps(kept(wanted, cfg), planSeconds)
	}
}

// flat is the same number of nodes throughout: minus the knob. Where caches matter
// more than the load moves, nothing is cheaper.
func flat(knob float64, cfg *scenario.Config) []scenario.Wanted {
	return []scenario.Wanted{{Nodes: min(cfg.MaxNodes, int(-knob))}}
}

func atLeastOne(nodes float64, cfg *scenario.Config) int {
	return min(cfg.MaxNodes, max(1, int(math.Ceil(nodes-1e-9))))
}

// kept is a plan that keeps nodes that would be asked for again within their start-up
// time.
func kept(wanted []int, cfg *scenario.Config) []int {
	setup := cfg.Setup()
	return fill(wanted, int(setup.StartUpSeconds)/planSeconds)
}

// steps lists the times at which a number changes.
func steps(wanted []int, seconds int) (list []scenario.Wanted) {
	for i, n := range wanted {
		if i == 0 || n != wanted[i-1] {
			list = append(list, scenario.Wanted{FromNs: int64(i) * int64(seconds) * 1e9, Nodes: n})
		}
	}
	return list
}

// Load is what comes in each span of so many seconds, in nodes: prefill of what was
// in no prompt before, and a share of full batches for the answers.
func Load(cfg *scenario.Config, seconds int) []float64 {
	e := &cfg.Engine
	perToken := (e.DecodeBaseMs/float64(e.MaxRunning) + e.DecodePerRequestMs) / 1e3
	load := make([]float64, cfg.Load.SpanNs/(int64(seconds)*1e9)+1)
	seen := make([]bool, cfg.Load.Contents)
	for i := range cfg.Load.Requests {
		r := &cfg.Load.Requests[i]
		behind := 0
		for b, content := range r.Contents {
			if b < int(r.Prompt-1)/workload.BlockTokens && behind == b && seen[content] {
				behind++
			}
			seen[content] = true
		}
		behind *= workload.BlockTokens
		work := float64(e.PrefillNs(behind, int(r.Prompt)-behind))/1e9 + float64(r.Output)*perToken
		load[r.AtNs/(int64(seconds)*1e9)] += work / float64(seconds)
	}
	if n := len(load); n > 1 { // the last span is not whole
		load[n-1] = load[n-2]
	}
	return load
}

// smooth is the mean over so many neighbours on each side.
func smooth(list []float64, reach int) []float64 {
	out := make([]float64, len(list))
	for i := range list {
		from, to, sum := max(0, i-reach), min(len(list), i+reach+1), 0.0
		for _, v := range list[from:to] {
			sum += v
		}
		out[i] = sum / float64(to-from)
	}
	return out
}

// fill raises what lies low for no longer than so many places between higher ones:
// a morphological closing.
func fill(list []int, gap int) []int {
	out := make([]int, len(list))
	for i := range list {
		before := list[i]
		out[i] = list[i]
		// The level that both sides reach within gap places of each other.
		for left := 0; left <= gap && i-left >= 0; left++ {
			before = max(before, list[i-left])
			after := list[i]
			for right := 0; right <= gap-left && i+right < len(list); right++ {
				after = max(after, list[i+right])
			}
			out[i] = max(out[i], min(before, after))
		}
	}
	return out
}
