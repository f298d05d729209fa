//go:build hf && cgo

package hf_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// splits fails the test unless the oracle gives the same ids for a text and
// for its parts one after another.
func (p *pair) splits(t *testing.T, parts []string) {
	t.Helper()
	if p.isSum(t, parts) {
		return
	}
	for i := range parts[1:] {
		if left, right := parts[i], parts[i+1]; !p.isSum(t, parts[i:i+2]) {
			t.Fatalf("%s: no cut between %q and %q", p.name, left[max(0, len(left)-100):], right[:min(100, len(right))])
		}
	}
	t.Fatalf("%s: %.400q is not the sum of its parts", p.name, parts)
}

func (p *pair) isSum(t *testing.T, parts []string) bool {
	t.Helper()
	whole := encode(t, p.oracle, strings.Join(parts, ""), false)
	var sum []uint32
	for _, part := range parts {
		sum = append(sum, encode(t, p.oracle, part, false)...)
	}
	return slices.Equal(whole, sum)
}

// atSolid cuts a text at both sides of each solid added token.
func (p *pair) atSolid(text string) (parts []string) {
	last := 0
	for from := 0; ; {
		start, end, id, ok := p.ours.FindAdded([]byte(text), from)
		if !ok {
			return append(parts, text[last:])
		}
		if p.ours.Solid(id) {
			parts = append(parts, text[last:start], text[start:end])
			last = end
		}
		from = end
	}
}

// withoutAdded are the parts of a text between all its added tokens.
func (p *pair) withoutAdded(text string) (parts []string) {
	last := 0
	for {
		start, end, _, ok := p.ours.FindAdded([]byte(text), last)
		if !ok {
			return append(parts, text[last:])
		}
		parts = append(parts, text[last:start])
		last = end
	}
}

// atCuts cuts a text at each context-free cut that is gap bytes or more behind
// the one before.
func (p *pair) atCuts(text string, gap int) (parts []string) {
	for len(text) > gap {
		cut := p.ours.NextCut([]byte(text), gap)
		if cut < 0 {
			break
		}
		parts = append(parts, text[:cut])
		text = text[cut:]
	}
	return append(parts, text)
}

// testSolid holds solid added tokens against their promise: what stands around
// them does not matter.
func (p *pair) testSolid(t *testing.T) {
	random, cuts := newStrings(11, p.added), 0
	for range 1000 {
		parts := p.atSolid(random.dense())
		cuts += len(parts) / 2
		p.splits(t, parts)
	}
	if cuts == 0 {
		t.Error("no added token of this vocabulary is solid")
	}
	t.Logf("%s: %d times a solid token, ids on its sides identical alone", p.name, cuts)
}

// testCuts splits natural and adversarial text at all cuts, and at those that
// chunks of 512 bytes use.
func (p *pair) testCuts(t *testing.T, all []corpus) {
	cuts, size := 0, 0
	check := func(text string, gap int) {
		for _, segment := range p.withoutAdded(text) {
			parts := p.atCuts(segment, gap)
			cuts, size = cuts+len(parts)-1, size+len(segment)
			p.splits(t, parts)
		}
	}
	random := newStrings(13, p.added)
	for range 1000 {
		check(random.next(), 1)
	}
	for document := range some(all, 10) {
		check(document[:runeStart(document, 4096)], 1)
		check(document[:runeStart(document, 16384)], 512)
	}
	t.Logf("%s: %d cuts in %d bytes, ids on both sides identical alone", p.name, cuts, size)
	if p.isByteLevel() && cuts < size/100 {
		t.Error("fewer than one cut in 100 bytes: too few to test")
	}
}

// testEscapedCuts does the same in the raw content of JSON strings, in several
// manners of escaping.
func (p *pair) testEscapedCuts(t *testing.T, all []corpus) {
	random := rand.New(rand.NewPCG(17, 17))
	cuts, size := 0, 0
	check := func(text string) {
		for _, segment := range p.withoutAdded(text) {
			raw := escaped(random, segment)
			parts := p.atEscapedCuts(raw)
			cuts, size = cuts+len(parts)-1, size+len(raw)
			for i := range parts {
				parts[i] = unescaped(t, parts[i])
			}
			if whole := strings.Join(parts, ""); whole != segment {
				t.Fatalf("%q was cut inside an escape: %q", raw, parts)
			}
			p.splits(t, parts)
		}
	}
	texts := newStrings(17, p.added)
	for range 1000 {
		check(texts.next())
	}
	for document := range some(all, 10) {
		check(document[:runeStart(document, 4096)])
	}
	t.Logf("%s: %d cuts in %d bytes of escaped text, ids on both sides identical alone", p.name, cuts, size)
	if p.isByteLevel() && cuts < size/200 {
		t.Error("fewer than one cut in 200 bytes: too few to test")
	}
}

func (p *pair) atEscapedCuts(raw string) (parts []string) {
	for len(raw) > 1 {
		cut := p.ours.NextCutEscaped([]byte(raw), 1)
		if cut < 0 {
			break
		}
		parts, raw = append(parts, raw[:cut]), raw[cut:]
	}
	return append(parts, raw)
}

// isByteLevel says whether cuts must abound: the other vocabularies merge
// across more of them.
func (p *pair) isByteLevel() bool {
	return !slices.Contains([]string{"llama2", "gemma2", "gemma3"}, p.name)
}

// some visits n documents of each corpus, from all over it.
func some(all []corpus, n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, corpus := range all {
			for i := range min(n, len(corpus.documents)) {
				if !yield(corpus.documents[i*len(corpus.documents)/n]) {
					return
				}
			}
		}
	}
}

// runeStart is the largest start of a character at or before most.
func runeStart(s string, most int) int {
	if len(s) <= most {
		return len(s)
	}
	for most > 0 && s[most]&0xC0 == 0x80 {
		most--
	}
	return most
}

// escaped writes text as the content of a JSON string as Python, Go, or nobody
// in their right mind would.
func escaped(random *rand.Rand, text string) string {
	var b strings.Builder
	manner := random.IntN(3)
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteString("\\" + string(r))
		case r == '\n' && manner < 2:
			b.WriteString(`\n`)
		case r == '/' && manner == 2:
			b.WriteString(`\/`)
		case r < 0x20, r > 0x7E && manner == 0, manner == 2 && random.IntN(8) == 0:
			if hi, lo := utf16.EncodeRune(r); hi != '\uFFFD' {
				fmt.Fprintf(&b, `\u%04x\u%04X`, hi, lo)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unescaped(t testing.TB, raw string) (text string) {
	t.Helper()
	if err := json.Unmarshal([]byte(`"`+raw+`"`), &text); err != nil {
		t.Fatalf("%q is no content of a JSON string: %v", raw, err)
	}
	return text
}
