package tokenize

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestFindAdded(t *testing.T) {
	for _, c := range []struct {
		variant, text string
		found         []string
	}{
		{"qwen", "no token", nil},
		{"qwen", "<|im_start|>user<|im_end|>\n<|im_end<think>", []string{"<|im_start|>", "<|im_end|>", "<think>"}},
		{"lstrip", "a \n<|a|> sword", []string{" \n<|a|>", "word"}},
		{"lstrip", "<|im_end|>  word", []string{"<|im_end|>", "  word"}},
		{"rstrip", "<|a|> \n word\u3000x", []string{"<|a|> \n ", "word\u3000"}},
		{"single word", "word words sword a-word", []string{"word", "word"}},
		{"nested", "<|im_end|><|a|>|><|x   \n\n\n", []string{"<|im_end|>", "<|a|>", "|>", "<|", "  ", "\n\n"}},
		{"two sets", "<|a|>im_<|im_end|>word", []string{"|>", "im_", "<|im_end|>", "word"}},
		{"normalized", "éx]", nil}, // stands in normalised text
	} {
		tokenizer := tiny(t, c.variant)
		var found []string
		text := []byte(c.text)
		for from := 0; ; {
			start, end, id, ok := tokenizer.FindAdded(text, from)
			if !ok {
				break
			}
			if content := tokenizer.Decode([]uint32{id}); !strings.Contains(string(text[start:end]), content) {
				t.Errorf("%s: %q is found as %q", c.variant, text[start:end], content)
			}
			found = append(found, string(text[start:end]))
			from = end
		}
		if !slices.Equal(found, c.found) {
			t.Errorf("%s: found %q in %q, want %q", c.variant, found, c.text, c.found)
		}
	}
}

// TestFindAddedIsWhatAppendDoes puts the ids of a text together from what
// FindAdded finds in it.
func TestFindAddedIsWhatAppendDoes(t *testing.T) {
	eachVariant(t, func(t *testing.T, tokenizer *Tokenizer, texts []string, want [][]uint32) {
		var s Scratch
		for i, text := range texts {
			var ids []uint32
			rest := []byte(text)
			for from := 0; ; {
				start, end, id, ok := tokenizer.FindAdded(rest, from)
				if !ok {
					ids = tokenizer.Append(ids, rest[from:], &s)
					break
				}
				ids = append(tokenizer.Append(ids, rest[from:start], &s), id)
				from = end
			}
			if !slices.Equal(ids, want[i]) {
				t.Errorf("%q: got %v, want %v", text, ids, want[i])
			}
		}
	})
}

func TestSolid(t *testing.T) {
	for _, c := range []struct {
		variant string
		solid   string // of "<|endoftext|>", … in the order of their ids
	}{
		{"qwen", "<|endoftext|> <|im_start|> <|im_end|> <think> </think>"},
		{"lstrip", "<|endoftext|> <|im_start|> <|im_end|> <think> </think>"},
		{"rstrip", "<|endoftext|> <|im_start|> <|im_end|> <think> </think>"},
		{"single word", "<|endoftext|> <|im_start|> <|im_end|> <think> </think>"},
		{"nested", "<|endoftext|> <|im_start|> <|im_end|> <think> </think> <|a|>"},  // "<|" is a prefix, "|" inside
		{"two sets", "word <|endoftext|> <|im_start|> <|im_end|> <think> </think>"}, // "|>" takes the end of "<|a|>"
		{"normalized", "<|endoftext|> <|im_start|> <|im_end|> <think> </think>"},
	} {
		tokenizer := tiny(t, c.variant)
		var solid []string
		for id := range uint32(tokenizer.VocabSize()) {
			if tokenizer.Solid(id) {
				solid = append(solid, tokenizer.Decode([]uint32{id}))
			}
		}
		if got := strings.Join(solid, " "); got != c.solid {
			t.Errorf("%s: solid are %s, want %s", c.variant, got, c.solid)
		}
	}
}

// TestSolidSidesAreCuts surrounds solid tokens by anything.
func TestSolidSidesAreCuts(t *testing.T) {
	eachVariant(t, func(t *testing.T, tokenizer *Tokenizer, texts []string, _ [][]uint32) {
		random := rand.New(rand.NewPCG(3, 4))
		var s Scratch
		for id := range uint32(tokenizer.VocabSize()) {
			if !tokenizer.Solid(id) {
				continue
			}
			content := tokenizer.Decode([]uint32{id})
			for range 100 {
				left, right := randomText(random, texts), randomText(random, texts)
				whole := tokenizer.Append(nil, []byte(left+content+right), &s)
				parts := append(tokenizer.Append(nil, []byte(left), &s), id)
				if parts = tokenizer.Append(parts, []byte(right), &s); !slices.Equal(parts, whole) {
					t.Errorf("%q, %q, %q: got %v, want %v", left, content, right, parts, whole)
				}
			}
		}
	})
}

// TestTrieAgainstScan compares with trying every string at every place.
func TestTrieAgainstScan(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	letters := func(n, kinds int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('a' + random.IntN(kinds))
		}
		return string(b)
	}
	for kinds := 1; kinds <= 12; kinds++ { // more first bytes than skip looks for one by one
		var set []string
		for range 40 {
			if s := letters(1+random.IntN(5), kinds); !slices.Contains(set, s) && s[0]%3 != 0 {
				set = append(set, s)
			}
		}
		tree := newTrie(set)
		text := letters(3000, kinds)
		for pos := range text {
			longest := int32(-1)
			for i, s := range set {
				if strings.HasPrefix(text[pos:], s) && (longest < 0 || len(s) > len(set[longest])) {
					longest = int32(i)
				}
			}
			end, value := tree.longest([]byte(text), pos)
			if value != longest || value >= 0 && end != pos+len(set[value]) {
				t.Fatalf("%d kinds at %d: got %d, want %d", kinds, pos, value, longest)
			}
			next := pos
			for next < len(text) && !slices.ContainsFunc(set, func(s string) bool { return s[0] == text[next] }) {
				next++
			}
			if got := tree.skip([]byte(text), pos); got != next {
				t.Fatalf("%d kinds: skip(%d) = %d, want %d", kinds, pos, got, next)
			}
		}
	}
}

// TestTrieSkipWindows has the only candidate at the edges of the windows.
func TestTrieSkipWindows(t *testing.T) {
	tree := newTrie([]string{"<a", "[b"})
	for _, at := range []int{skipWindow - 1, skipWindow, skipWindow + 1, 3*skipWindow - 1} {
		for _, first := range "<[" {
			text := []byte(strings.Repeat(" ", at) + string(first) + strings.Repeat(" ", 10))
			if got := tree.skip(text, 0); got != at {
				t.Errorf("%c at %d: got %d", first, at, got)
			}
		}
	}
}

// TestManyAddedTokens has as many as real models have, with shared prefixes.
func TestManyAddedTokens(t *testing.T) {
	var set []string
	for i := range 6000 {
		set = append(set, fmt.Sprintf("<unused%d>", i))
	}
	tree := newTrie(set)
	text := []byte("<unused5999><unused6000><unused7")
	if end, value := tree.longest(text, 0); end != 12 || value != 5999 {
		t.Errorf("got %d, %d", end, value)
	}
	if _, value := tree.longest(text, 12); value != -1 {
		t.Errorf("found %q", set[value])
	}
	if _, value := tree.longest(text, 24); value != -1 {
		t.Errorf("found %q at the end of the text", set[value])
	}
}
