package dataplane

import "testing"

// TestPrefillTimeIsTheNodesOwn: of prompts that wait for each other at a node, each
// is charged with what it took alone; what ends at once is shared; short ones and
// what is passed on unread say nothing.
func TestPrefillTimeIsTheNodesOwn(t *testing.T) {
	s := newStockRoom(t, 1, 1, nil)
	tallied := newNodeTally()
	const ms = 1_000_000
	for i, c := range []struct {
		tokens         int
		passing        bool
		sentMs, cameMs int64
		wantTokens     uint64
		wantMs         float64
	}{
		{tokens: 1000, sentMs: 0, cameMs: 100, wantTokens: 1000, wantMs: 100},
		{tokens: 1000, sentMs: 50, cameMs: 200, wantTokens: 2000, wantMs: 200}, // waited for the first
		{tokens: 2000, sentMs: 60, cameMs: 400, wantTokens: 4000, wantMs: 400}, // … and for the second
		{tokens: 2000, sentMs: 60, cameMs: 400, wantTokens: 6000, wantMs: 400}, // in one batch with it
		{tokens: 1000, sentMs: 900, cameMs: 990, wantTokens: 7000, wantMs: 490},
		{tokens: learnTokensMin - 1, sentMs: 1000, cameMs: 2000, wantTokens: 7000, wantMs: 490},
		{tokens: 5000, passing: true, sentMs: 1000, cameMs: 2000, wantTokens: 7000, wantMs: 490},
		{tokens: 1000, sentMs: 1500, cameMs: 1600, wantTokens: 8000, wantMs: 590}, // the last two were none of its queue
		{tokens: 1000, sentMs: 1600, cameMs: 1700, wantTokens: 9000, wantMs: 690},
		{tokens: 1000, sentMs: 1600, cameMs: 1650, wantTokens: 10000, wantMs: 690}, // another loop was later to see it
		{tokens: 1000, sentMs: 1600, cameMs: 1750, wantTokens: 11000, wantMs: 740},
	} {
		x := &exchange{}
		x.watch.Reset()
		x.node, x.passing = s.nodes[0], c.passing
		x.polReq.PromptTokens = c.tokens
		x.timePrefill(c.sentMs*ms, c.cameMs*ms)
		tallied.countPrefill(x)
		if gotMs := tallied.PrefillSeconds * 1000; tallied.PrefillTokens != c.wantTokens || gotMs < c.wantMs-0.001 || gotMs > c.wantMs+0.001 {
			t.Errorf("step %d: %d tokens in %.1f ms, want %d in %.1f", i, tallied.PrefillTokens, gotMs, c.wantTokens, c.wantMs)
		}
	}
	if tallied.Prefills != 9 {
		t.Errorf("%d prompts, want 9", tallied.Prefills)
	}
}

// TestCachedPromptsAreNotFast: what the engine had in its cache took it no time,
// whether or not the index knew; where it does not say, what was predicted counts.
func TestCachedPromptsAreNotFast(t *testing.T) {
	s := newStockRoom(t, 1, 1, nil)
	for name, c := range map[string]struct {
		prompt, cached int64
		want           uint64
	}{
		"not said":            {-1, -1, 4000},
		"nothing cached":      {4100, 0, 4100},
		"half":                {4100, 2048, 2052},
		"nearly all":          {4100, 4096, 0},
		"cached of how many?": {-1, 2048, 4000},
	} {
		x, tallied := &exchange{}, newNodeTally()
		x.node, x.polReq.PromptTokens = s.nodes[0], 4000
		x.watch.Reset()
		x.timePrefill(0, 50e6)
		x.watch.PromptTokens, x.watch.CachedTokens = c.prompt, c.cached
		tallied.countPrefill(x)
		if tallied.PrefillTokens != c.want || (tallied.Prefills == 1) != (c.want > 0) || (tallied.PrefillSeconds > 0) != (c.want > 0) {
			t.Errorf("%s: %d tokens in %v s of %d prompts, want %d", name, tallied.PrefillTokens, tallied.PrefillSeconds, tallied.Prefills, c.want)
		}
		s.nodes[0].Load.PrefilledNs.Store(0)
	}
}

// TestSlowClientsAreNotSlowNodes: a stream that was held for its client has no
// part in the node's decode rate.
func TestSlowClientsAreNotSlowNodes(t *testing.T) {
	x, tallied := &exchange{}, newNodeTally()
	x.watch.Reset()
	x.watch.Events, x.firstEventNs, x.lastTokenNs = 100, 1e9, 2e9
	if tallied.countDecode(x); tallied.Decodes != 1 {
		t.Fatalf("%d streams, want 1", tallied.Decodes)
	}
	x.pausedNs, x.lastTokenNs = 15e8, 90e9
	if tallied.countDecode(x); tallied.Decodes != 1 || tallied.DecodeSeconds != 1 {
		t.Errorf("%d streams, %v s, want 1 in 1", tallied.Decodes, tallied.DecodeSeconds)
	}
}
