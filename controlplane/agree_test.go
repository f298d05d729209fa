package controlplane

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"warmpath/controlplane/config"
	"warmpath/controlplane/discover"
)

// What `check` accepts, `serve` starts with: whatever the configuration takes
// as nodes and as patterns, the sources of nodes take too.
func TestCheckedIsServed(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		odd := rapid.OneOf(
			rapid.StringMatching(`[a-cA-C0-9._-]{1,4}`), rapid.StringN(0, 3, 8),
			rapid.SampledFrom([]string{"-a", "..", "H:080", "127.1", "h//", "h/%41", "*", "10.0.0.1/8", "a_b", "a.", "0"}),
		)
		// One field in seven is odd, the others are good.
		field := func(label string, good ...string) string {
			if rapid.IntRange(0, 6).Draw(t, label+" odd") == 6 {
				return odd.Draw(t, label)
			}
			return rapid.SampledFrom(good).Draw(t, label)
		}
		text := fmt.Sprintf("node_urls_allowed: [%q]\nnodes:\n", field("pattern", "10.0.0.0/8", "*.h", "h:80", "[::1]:80"))
		for i := range rapid.IntRange(1, 2).Draw(t, "nodes") {
			text += fmt.Sprintf("  - {name: %q, url: %q, island: %q, models: [%q], engine: %s, weight: %s}\n",
				field("name", "a", "b", "gpu-a"), "http://"+field("url", "h", "H", "h:80", "H:80/", "10.0.0.1", "[::1]", "[FD00::1]:80", "h/v", "h/v/", fmt.Sprint("h", i)),
				field("island", "", "edge-1"), field("model", "m", "org/m:latest"),
				rapid.SampledFrom([]string{"auto", "vllm", "tgi", "openai"}).Draw(t, "engine"),
				rapid.SampledFrom([]string{"1.0", "0.001", "1000"}).Draw(t, "weight"))
		}
		c, err := config.Parse("f", []byte(text))
		if err != nil {
			return
		}
		accepted++
		if _, err := discover.NewStatic(specsOf(c)); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
		if _, err := discover.ParseAllowed(c.NodeURLsAllowed); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
		if _, err := DataplaneSettings(c); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
	})
	if accepted < 10 {
		t.Errorf("only %d were accepted", accepted)
	}
}
