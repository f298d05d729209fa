package tokenize

import (
	"slices"
	"sync"
	"testing"
)

// TestAppendShared has several goroutines fill and read one cache of words,
// small enough to go round under them.
func TestAppendShared(t *testing.T) {
	g, err := readGoldens()
	if err != nil {
		t.Fatal(err)
	}
	tokenizer := tiny(t, "qwen")
	tokenizer.encoder.(*byteLevel).cache = newRing(1 << 10)
	var group sync.WaitGroup
	for start := range 4 {
		group.Go(func() {
			var s Scratch
			for i := range 4 * len(g.Texts) {
				at := (i + 53*start) % len(g.Texts)
				if got, want := tokenizer.Append(nil, []byte(g.Texts[at]), &s), g.Variants[0].IDs[at]; !slices.Equal(got, want) {
					t.Errorf("%q gives %v, want %v", g.Texts[at], got, want)
					return
				}
			}
		})
	}
	group.Wait()
}
