package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestRatesOfAMixedFleet: three cards, each twice as fast as the one before, get
// streams that share nothing, more of them at a time than there are cards. Queues
// are not charged to the cards: what the router learns of each is its own speed,
// within the error that it names, and it weights them by that.
func TestRatesOfAMixedFleet(t *testing.T) {
	speeds := []float64{6000, 12000, 24000}
	urls := make([]string, len(speeds))
	for i, speed := range speeds {
		urls[i] = startEngines(t, 1, "--prefill-tps", fmt.Sprint(speed), "--context-tokens", "-1", "--decode-base-ms", "4", "--decode-per-request-ms", "0").urls[0]
	}
	r := serve(t, settings, nodeList(urls...))
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var clients sync.WaitGroup
	for range 2 * len(speeds) {
		clients.Go(func() {
			for ctx.Err() == nil {
				text := strings.Repeat(fmt.Sprintf("Words of story %d. ", bodies.Add(1)), 300)
				if a := r.send(ctx, chatPath, "", chatBody(text, `,"stream":true,"max_tokens":16`), nil); ctx.Err() == nil && (a.err != nil || a.status != http.StatusOK) {
					t.Errorf("status %d, error %v", a.status, a.err)
				}
			}
		})
	}
	clients.Wait()
	const middle = 1
	eventually(t, 10*time.Second, "the rates are learned", func() bool {
		for i := range speeds {
			if n := r.node(t, fmt.Sprint("sim-", i)); n.PrefillRate == nil || n.DecodeRate == nil {
				return false
			}
		}
		return true
	})
	for i, speed := range speeds {
		n := r.node(t, fmt.Sprint("sim-", i))
		t.Logf("%s: prefill %.0f (true %.0f) ± %.2f, decode %.0f ± %.2f, weight %.2f", n.Name, *n.PrefillRate, speed, *n.PrefillError, *n.DecodeRate, *n.DecodeError, n.Weight)
		if off := math.Log(*n.PrefillRate / speed); math.Abs(off) > 0.35 {
			t.Errorf("%s prefills %.0f tokens a second, and is said to do %.0f", n.Name, speed, *n.PrefillRate)
		}
		if want := speed / speeds[middle]; math.Abs(math.Log(n.Weight/want)) > 0.35 {
			t.Errorf("%s has weight %.2f, want about %.2f", n.Name, n.Weight, want)
		}
		if *n.DecodeRate < 10 || *n.DecodeRate > 300 { // a step of 4 ms makes a token, one that computes a prompt beside it takes up to a third of a second
			t.Errorf("%s is said to decode %.0f tokens a second", n.Name, *n.DecodeRate)
		}
	}
}
