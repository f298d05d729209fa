package tokenize

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNextCut(t *testing.T) {
	qwen, gpt2, prefix, single := tiny(t, "qwen"), tiny(t, "gpt2"), tiny(t, "gpt2 with prefix"), tiny(t, "single word")
	for _, c := range []struct {
		tokenizer *Tokenizer
		text      string
		cuts      []int
	}{
		{qwen, "the server starts", []int{3, 10}},
		{qwen, "the  server", nil},              // the second space goes with the word
		{qwen, "in 2026 we", []int{7}},          // before a number it does not
		{qwen, "a\nb\n\n2\n c\n.", []int{2, 5}}, // before what is no letter, the newline may go on
		{qwen, "f(x), y.", []int{1, 3, 7}},
		{qwen, "don't can’t", []int{5}},
		{qwen, "a_b a|b im_end", []int{1, 3, 5, 7}}, // but not after the m, as in an added token
		{qwen, "im_end think> d|", []int{6}},
		{qwen, "中文，再 b", []int{6, 12}},
		{qwen, "a\u0301 b a\u0301.", []int{5}},
		{qwen, "\u0958. \u0958 a", nil}, // its normal form ends in a mark
		{qwen, "a\xff b\xc3", nil},
		{gpt2, "a\nb c.", []int{3, 5}},
		{prefix, "a\nb c.", []int{3}},
		{single, "a. b c\nd", []int{4, 7}},
		{qwen, "", nil},
		{qwen, " a", nil},
		{qwen, "a ", nil},
	} {
		var cuts []int
		for at := c.tokenizer.NextCut([]byte(c.text), 0); at >= 0; at = c.tokenizer.NextCut([]byte(c.text), at+1) {
			cuts = append(cuts, at)
		}
		if !slices.Equal(cuts, c.cuts) {
			t.Errorf("%q is cut at %v, want %v", c.text, cuts, c.cuts)
		}
	}
	if at := qwen.NextCut([]byte("the server"), 3); at != 3 {
		t.Errorf("a cut at from itself: got %d", at)
	}
	if at := qwen.NextCut([]byte("the server"), 99); at != -1 {
		t.Errorf("from past the end: got %d", at)
	}
}

func TestNextCutEscaped(t *testing.T) {
	tokenizer := tiny(t, "qwen")
	for _, c := range []struct {
		raw  string
		cuts []int
	}{
		{`the server`, []int{3}},
		{`a\nb`, []int{3}},
		{`a\\nb`, nil},          // a backslash, an n
		{`a\\\nb`, []int{5}},    // a backslash, a newline
		{`a\\\\nb c`, []int{7}}, // two backslashes
		{`a\n.`, nil},           // a symbol after a newline
		{`a\n\n1`, []int{5}},    //
		{`\u0061 b.`, []int{8}}, // the space is beside an escape
		{`\u0041b c`, []int{7}}, // b is not
		{`\u000ab`, nil},        // a newline, but not judged
		{`x\u003cb`, nil},       // inside, beside
		{`a "`, nil},            // no JSON, but no harm
		{`a\" b.`, []int{5}},    //
		{`d\ta b`, []int{4}},    //
		{`\ud83d\ude00a.`, []int{13}},
		{`\u0041bcdefgh.`, []int{13}},
	} {
		var cuts []int
		for at := tokenizer.NextCutEscaped([]byte(c.raw), 0); at >= 0; at = tokenizer.NextCutEscaped([]byte(c.raw), at+1) {
			cuts = append(cuts, at)
		}
		if !slices.Equal(cuts, c.cuts) {
			t.Errorf("%s is cut at %v, want %v", c.raw, cuts, c.cuts)
		}
	}
}

// TestCutsAreCuts divides the texts of the goldens, and random ones, at every
// cut by itself and at all of them.
func TestCutsAreCuts(t *testing.T) {
	eachVariant(t, func(t *testing.T, tokenizer *Tokenizer, texts []string, _ [][]uint32) {
		random := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			texts = append(texts, randomText(random, texts))
		}
		cuts := 0
		for _, text := range texts {
			cuts += checkCuts(t, tokenizer, []byte(text))
			checkEscapedCuts(t, tokenizer, text, random)
		}
		if none := tokenizer.cuts.classes == 0; none != (cuts == 0) {
			t.Errorf("%d cuts with classes %b", cuts, tokenizer.cuts.classes)
		}
	})
}

// randomText joins parts of texts, with some of what cuts are about between.
func randomText(random *rand.Rand, texts []string) string {
	var b strings.Builder
	for range 1 + random.IntN(12) {
		from := []rune(texts[random.IntN(len(texts))])
		if at := random.IntN(len(from) + 1); at < len(from) {
			b.WriteString(string(from[at:min(at+1+random.IntN(4), len(from))]))
		}
		b.WriteString([]string{"", " ", "\n", ".", "_", "|", "'", "a", "I", " b", "1"}[random.IntN(11)])
	}
	return b.String()
}

// checkCuts returns how many cuts it found.
func checkCuts(t *testing.T, tokenizer *Tokenizer, text []byte) (cuts int) {
	t.Helper()
	var s Scratch
	whole := tokenizer.Append(nil, text, &s)
	var parts []uint32
	done := 0
	for at := tokenizer.NextCut(text, 1); at >= 0; at = tokenizer.NextCut(text, at+1) {
		two := tokenizer.Append(tokenizer.Append(nil, text[:at], &s), text[at:], &s)
		if !slices.Equal(two, whole) {
			t.Errorf("%q | %q: got %v, want %v", text[:at], text[at:], two, whole)
		}
		parts = tokenizer.Append(parts, text[done:at], &s)
		done = at
		cuts++
	}
	if parts = tokenizer.Append(parts, text[done:], &s); !slices.Equal(parts, whole) {
		t.Errorf("%q in all its parts: got %v, want %v", text, parts, whole)
	}
	return cuts
}

// checkEscapedCuts does the same to the content of a JSON string in which
// some characters are escaped that need not be.
func checkEscapedCuts(t *testing.T, tokenizer *Tokenizer, text string, random *rand.Rand) {
	t.Helper()
	raw := escape(text, random)
	decode := func(raw []byte) []byte {
		var s string
		if err := json.Unmarshal(slices.Concat([]byte{'"'}, raw, []byte{'"'}), &s); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		return []byte(s)
	}
	var s Scratch
	whole := tokenizer.Append(nil, decode(raw), &s)
	for at := tokenizer.NextCutEscaped(raw, 1); at >= 0; at = tokenizer.NextCutEscaped(raw, at+1) {
		two := tokenizer.Append(tokenizer.Append(nil, decode(raw[:at]), &s), decode(raw[at:]), &s)
		if !slices.Equal(two, whole) {
			t.Errorf("%s | %s: got %v, want %v", raw[:at], raw[at:], two, whole)
		}
	}
}

func escape(text string, random *rand.Rand) (raw []byte) {
	for _, r := range text {
		switch {
		case r == '\n' && random.IntN(4) > 0:
			raw = append(raw, `\n`...)
		case r == '"' || r == '\\':
			raw = append(raw, '\\', byte(r))
		case r < ' ' || r < 0x10000 && random.IntN(12) == 0:
			raw = fmt.Appendf(raw, `\u%04x`, r)
		default:
			raw = utf8.AppendRune(raw, r)
		}
	}
	return raw
}
