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
	const tokens = 16 // of an answer
	speeds := []float64{6000, 12000, 24000}
	urls := make([]string, len(speeds))
	for i, speed := range speeds {
		urls[i] = startEngines(t, 1, "--prefill-tps", fmt.Sprint(speed), "--context-tokens", "-1", "--decode-base-ms", "4", "--decode-per-request-ms", "0").urls[0]
	}
	r := serve(t, settings, nodeList(urls...))
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var clients sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]time.Duration{} // by node: the clients' time from a first token to the last
	streams := map[string]int{}
	for range 2 * len(speeds) {
		clients.Go(func() {
			for ctx.Err() == nil {
				text := strings.Repeat(fmt.Sprintf("Words of story %d. ", bodies.Add(1)), 300)
				var begun time.Time
				a := r.send(ctx, chatPath, "", chatBody(text, fmt.Sprintf(`,"stream":true,"max_tokens":%d`, tokens)), func() { begun = time.Now() })
				if ctx.Err() != nil {
					return
				}
				if a.err != nil || a.status != http.StatusOK {
					t.Errorf("status %d, error %v", a.status, a.err)
					continue
				}
				mu.Lock()
				seen[a.node()] += time.Since(begun)
				streams[a.node()]++
				mu.Unlock()
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
		// A step of 4 ms makes a token, one with a prompt beside it takes longer, and longer
		// yet on a machine that has no time: the clients know.
		clients := float64(streams[n.Name]*(tokens-1)) / seen[n.Name].Seconds()
		if *n.DecodeRate < min(50, clients/2) || *n.DecodeRate > 300 {
			t.Errorf("%s is said to decode %.0f tokens a second, the clients saw %.0f", n.Name, *n.DecodeRate, clients)
		}
	}
}
