package tokenize

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// checkSpmCuts divides a text at each cut that the tokenizer names, in plain
// and in escaped form, and at both sides of each solid token. It returns how
// many places there were.
func checkSpmCuts(t *testing.T, tokenizer *Tokenizer, text string) (cuts int) {
	t.Helper()
	var s Scratch
	whole := tokenizer.Append(nil, []byte(text), &s)
	check := func(left, right string) {
		t.Helper()
		cuts++
		parts := tokenizer.Append(nil, []byte(left), &s)
		if parts = tokenizer.Append(parts, []byte(right), &s); !slices.Equal(parts, whole) {
			t.Fatalf("%q and %q give\n%v, together\n%v", left, right, parts, whole)
		}
	}
	for at := tokenizer.NextCut([]byte(text), 0); at >= 0; at = tokenizer.NextCut([]byte(text), at+1) {
		check(text[:at], text[at:])
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	raw := quoted[1 : len(quoted)-1]
	for at := tokenizer.NextCutEscaped(raw, 0); at >= 0; at = tokenizer.NextCutEscaped(raw, at+1) {
		check(unquoted(t, raw[:at]), unquoted(t, raw[at:]))
	}
	for from := 0; ; {
		start, end, id, ok := tokenizer.FindAdded([]byte(text), from)
		if !ok {
			return cuts
		}
		if tokenizer.Solid(id) {
			check(text[:start], text[start:])
			check(text[:end], text[end:])
		}
		from = end
	}
}

func unquoted(t *testing.T, raw []byte) (text string) {
	t.Helper()
	if err := json.Unmarshal(slices.Concat([]byte{'"'}, raw, []byte{'"'}), &text); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return text
}

func TestSentencePieceCuts(t *testing.T) {
	texts, variants := spmGoldens(t)
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			tokenizer := mustLoad(t, spmFile(t, v.Patch))
			for _, text := range texts {
				checkSpmCuts(t, tokenizer, text)
			}
		})
	}
}

func TestSentencePieceCutsOfRandomVocabularies(t *testing.T) {
	cuts := 0
	for seed := range randomSeeds() {
		random := rand.New(rand.NewPCG(seed, 8))
		tokenizer := mustLoad(t, randomSpm(random))
		for range 30 {
			cuts += checkSpmCuts(t, tokenizer, randomSpmText(random))
		}
	}
	if cuts < 10*int(randomSeeds()) {
		t.Errorf("only %d places to divide at: too few to test", cuts)
	}
}

// TestSentencePieceCutClasses names which classes are left in each setting.
func TestSentencePieceCutClasses(t *testing.T) {
	text := "a word\nnext€ 中。"
	none, space, line := []int{}, []int{1}, []int{7}
	all := slices.Concat(space, line, []int{11, 18})
	for name, want := range map[string][]int{
		"llama": none, "gemma": all, "replace only": all, "never": all,
		"always": space, "first": space, "always, not split": space,
		"unknown": space, "some bytes": space, "whole pieces": none, "whole words": space, "whole words, no prefix": space,
		"normalized": none, "flags": {1, 7},
	} {
		tokenizer := spm(t, name)
		got := []int{}
		for at := tokenizer.NextCut([]byte(text), 0); at >= 0; at = tokenizer.NextCut([]byte(text), at+1) {
			got = append(got, at)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q is cut at %v, want %v", name, text, got, want)
		}
	}
}

// TestSentencePieceSolid: after a solid token, a piece begins that looks the
// same when it stands alone, which it does not with prepend_scheme first.
func TestSentencePieceSolid(t *testing.T) {
	for name, want := range map[string]bool{"llama": true, "gemma": true, "always": true, "first": false} {
		if got := spm(t, name).Solid(1); got != want {
			t.Errorf("%s: <s> is solid: %v, want %v", name, got, want)
		}
	}
	if tokenizer := spm(t, "gemma"); tokenizer.Solid(tokenizer.Append(nil, []byte("\n"), &Scratch{})[0]) {
		t.Error("a newline is solid though two are another token")
	}
}

// TestSentencePieceCutsWithUnknownNeighbours: what is unknown on both sides of
// a place would be one symbol, not two.
func TestSentencePieceCutsWithUnknownNeighbours(t *testing.T) {
	tokenizer := spm(t, "unknown")
	var s Scratch
	if got := tokenizer.Append(nil, []byte("ﬁ☃☃ ☃"), &s); len(got) != 3 {
		t.Errorf("got %v, want unknown, space, unknown", got)
	}
	checkSpmCuts(t, tokenizer, strings.Repeat("ﬁ☃☃ ☃é", 9))
}
