package laws

import (
	"context"
	"math"

	"warmpath/bench/scenario"
)

// The oracle. It tries the whole workload at each rung of a ladder first: how smooth
// a load, and what share of the nodes it shall be. So it knows for each minute what
// each rung costs there and how many first tokens come late. Of each minute it then
// takes the rung at which nodes' seconds plus a price of late tokens are least; the
// price is its knob. So it spends the few that may come late where they save most,
// which no fixed utilisation can.

// ladder is all that is tried: the load as it is on average over some seconds, and
// its share of the nodes.
var ladder = []struct {
	smoothSeconds int
	share         float64
}{
	{120, .4},
	{120, .52},
	{120, .62},
	{120, .7},
	{120, .77},
	{120, .84},
	{120, .91},
	{120, 1},
	{120, 1.1},
	{600, .45},
	{600, .6},
	{600, .7},
	{600, .8},
	{600, .9},
}

// minuteBins is how many bins of planSeconds are decided on together.
const minuteBins = 6

// studyLadder runs a configuration at each rung.
func studyLadder(ctx context.Context, cfg *scenario.Config) (foreseer, error) {
	load := Load(cfg, planSeconds)
	plans := make([][]int, len(ladder))
	late := make([][]float64, len(ladder))
	for rung, is := range ladder {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		plans[rung] = make([]int, len(load))
		for i, l := range smooth(load, is.smoothSeconds/planSeconds/2) {
			plans[rung][i] = atLeastOne(l/is.share, cfg)
		}
		try := *cfg
		try.Foreseen, try.Series = steps(kept(plans[rung], cfg), planSeconds), false
		r, err := scenario.Run(try, nil)
		if err != nil {
			return nil, err
		}
		late[rung] = lateOf(r, len(load))
	}
	return func(knob float64, cfg *scenario.Config) []scenario.Wanted {
		wanted := make([]int, len(load))
		for from := 0; from < len(load); from += minuteBins {
			to := min(len(load), from+minuteBins)
			best, least := 0, math.Inf(1)
			for rung := range ladder {
				if c := price(plans[rung][from:to], late[rung][from:to], 1/knob); c < least {
					best, least = rung, c
				}
			}
			copy(wanted[from:to], plans[best][from:to])
		}
		return steps(kept(wanted, cfg), planSeconds)
	}, nil
}

// price is nodes' seconds and what late tokens cost, in the same.
func price(plan []int, late []float64, each float64) float64 {
	sum := 0.0
	for i := range plan {
		sum += float64(plan[i]*planSeconds) + late[i]*each
	}
	return sum
}

// lateOf is how many requests did not attain their target, by bins of planSeconds.
func lateOf(r *scenario.Report, bins int) []float64 {
	late := make([]float64, bins)
	for second, s := range r.Seconds {
		late[second/planSeconds] += float64(s.Arrived - s.Attained)
	}
	return late
}
