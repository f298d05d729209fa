package tokenize

import (
	"slices"
	"strings"
	"testing"
)

// TestRealModels checks on real vocabularies what needs no oracle; package hf
// compares ids with the reference's.
func TestRealModels(t *testing.T) {
	if testing.Short() || raceEnabled { // the detector needs minutes to load what shares no memory
		t.Skip("left out: loads large files")
	}
	for _, c := range []struct{ name, solid string }{
		{"qwen3", "<|im_start|>"},
		{"deepseek_v3", "<｜User｜>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tokenizer := model(t, c.name)
			var s Scratch
			for _, pattern := range []string{"../../*.md", "*.go", "testdata/chinese.txt"} {
				text := sample(t, pattern)
				if got := tokenizer.Decode(tokenizer.Append(nil, text, &s)); got != string(text) {
					t.Errorf("%s: decoding does not give the text back", pattern)
				}
				checkAllCuts(t, tokenizer, text)
			}
			ids := tokenizer.Append(nil, []byte("a"+c.solid+"b"), &s)
			if len(ids) != 3 || !tokenizer.Solid(ids[1]) || tokenizer.Solid(ids[0]) {
				t.Errorf("%s between letters gives %v", c.solid, ids)
			}
			giant := tokenizer.Append(nil, []byte(strings.Repeat("中", 1<<16)), &s)
			if got := tokenizer.Decode(giant); got != strings.Repeat("中", 1<<16) {
				t.Error("decoding does not give an endless word back")
			}
		})
	}
}

// checkAllCuts divides a text at all of its cuts at once.
func checkAllCuts(t *testing.T, tokenizer *Tokenizer, text []byte) {
	t.Helper()
	var s Scratch
	var parts []uint32
	done, cuts := 0, 0
	for at := tokenizer.NextCut(text, 1); at >= 0; at = tokenizer.NextCut(text, at+1) {
		parts = tokenizer.Append(parts, text[done:at], &s)
		done = at
		cuts++
	}
	parts = tokenizer.Append(parts, text[done:], &s)
	if !slices.Equal(parts, tokenizer.Append(nil, text, &s)) {
		t.Error("the parts do not make up the whole")
	}
	if cuts < len(text)/40 {
		t.Errorf("%d cuts in %d bytes", cuts, len(text))
	}
}
