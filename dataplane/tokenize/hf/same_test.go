//go:build hf && cgo

package hf_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	daulet "github.com/daulet/tokenizers"

	"warmpath/dataplane/tokenize"
	"warmpath/dataplane/tokenize/hf"
)

// pair is one vocabulary in both implementations.
type pair struct {
	name    string
	added   []string // contents of its added tokens
	oracle  *hf.Tokenizer
	ours    *tokenize.Tokenizer
	scratch tokenize.Scratch
	ids     [2][]uint32 // reused
}

// loadPair loads a tokenizer.json into both.
func loadPair(t testing.TB, name string, data []byte) (*pair, error) {
	t.Helper()
	p := &pair{name: name}
	var err error
	if p.ours, err = tokenize.Load(data); err != nil {
		return nil, err
	}
	if p.oracle, err = hf.Load(data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.oracle.Close() })
	var file struct {
		Added []struct {
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, a := range file.Added {
		p.added = append(p.added, a.Content)
	}
	return p, nil
}

// encode gives the ids of both; the slices are good until the next call.
func (p *pair) encode(t testing.TB, text string) (ours, theirs []uint32) {
	t.Helper()
	p.ids[0] = p.ours.Append(p.ids[0][:0], []byte(text), &p.scratch)
	var err error
	if p.ids[1], err = p.oracle.Encode(p.ids[1][:0], []byte(text), false); err != nil {
		t.Fatalf("%s: oracle on %.200q: %v", p.name, text, err)
	}
	return p.ids[0], p.ids[1]
}

func (p *pair) same(t testing.TB, text string) bool {
	t.Helper()
	ours, theirs := p.encode(t, text)
	return slices.Equal(ours, theirs)
}

// shortest drops parts of a text for as long as the two still differ in it.
func (p *pair) shortest(t testing.TB, text string) string {
	t.Helper()
	runes := []rune(text)
	for size := len(runes) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(runes); {
			if shorter := slices.Delete(slices.Clone(runes), at, at+size); !p.same(t, string(shorter)) {
				runes = shorter
			} else {
				at += size
			}
		}
	}
	return string(runes)
}

// tally counts what was compared, and reports the first few differences in
// their shortest form.
type tally struct{ texts, bytes, ids, differ int }

func (c *tally) compare(t *testing.T, p *pair, text string) {
	t.Helper()
	ours, theirs := p.encode(t, text)
	c.texts++
	c.bytes += len(text)
	c.ids += len(theirs)
	if slices.Equal(ours, theirs) {
		return
	}
	const reported = 5
	if c.differ++; c.differ <= reported {
		short := p.shortest(t, text)
		ours, theirs = p.encode(t, short)
		t.Errorf("%s: %+q (%q) has ids %v, want %v", p.name, short, short, ours, theirs)
	}
}

func modelNames(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(modelFile("*"))
	if err != nil || len(files) == 0 {
		t.Skipf("no models: make models fetches them (%v)", err)
	}
	for i, name := range files {
		files[i] = filepath.Base(filepath.Dir(name))
	}
	return files
}

// patterns are the vocabularies that stand for one way of pre-tokenising and
// normalising each; the others share theirs with one of them.
var patterns = []string{"qwen3", "llama3_1", "deepseek_v3", "gptoss", "mistral_nemo", "gemma3", "llama2"}

// TestModels compares each model that was fetched. Package tokenize may refuse
// a file, but none of these.
func TestModels(t *testing.T) {
	all := corpora(t)
	for _, name := range modelNames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(modelFile(name))
			if err != nil {
				t.Fatal(err)
			}
			p, err := loadPair(t, name, data)
			if err != nil {
				t.Fatal(err)
			}
			t.Run("wrap", p.testWrap)
			t.Run("text", func(t *testing.T) { p.testText(t, all) })
			t.Run("strings", p.testStrings)
			if slices.Contains(patterns, name) {
				t.Run("invalid", p.testInvalid)
				t.Run("code points", p.testEveryCodePoint)
			}
			t.Run("solid", p.testSolid)
			t.Run("cuts", func(t *testing.T) { p.testCuts(t, all) })
			t.Run("escaped cuts", func(t *testing.T) { p.testEscapedCuts(t, all) })
		})
	}
}

// testText compares ids on natural text: each document, and the first 100 KB
// of a corpus in one piece.
func (p *pair) testText(t *testing.T, all []corpus) {
	var c tally
	for _, corpus := range all {
		var whole []byte
		for _, document := range corpus.documents {
			c.compare(t, p, document)
			if len(whole) < 100_000 {
				whole = append(whole, document...)
			}
		}
		c.compare(t, p, string(whole))
	}
	if c.bytes < 1_800_000 {
		t.Errorf("only %d bytes of text", c.bytes)
	}
	c.summary(t, p.name, "texts")
}

// testStrings compares ids on adversarial strings.
func (p *pair) testStrings(t *testing.T) {
	var c tally
	random := newStrings(7, p.added)
	for range 16_000 {
		c.compare(t, p, random.next())
	}
	c.summary(t, p.name, "strings")
}

// testEveryCodePoint compares ids around every code point: those of its
// class, its decomposition and its bytes.
func (p *pair) testEveryCodePoint(t *testing.T) {
	var c tally
	for text := range everyPoint {
		c.compare(t, p, text)
	}
	c.summary(t, p.name, "rows of 64 code points")
}

func (c *tally) summary(t *testing.T, model, kind string) {
	t.Helper()
	t.Logf("%s: %d %s, %d bytes, %d ids, %d differ", model, c.texts, kind, c.bytes, c.ids, c.differ)
}

// testInvalid compares ids of text that is no UTF-8 with those of daulet,
// which replaces what is invalid as Rust and Python do.
func (p *pair) testInvalid(t *testing.T) {
	theirs, err := daulet.FromFile(modelFile(p.name))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	invalid := []byte{0x80, 0xBF, 0xC0, 0xC3, 0xE2, 0xED, 0xF0, 0xF4, 0xFF}
	random := newStrings(31, p.added)
	for range 1000 {
		text := []byte(strings.ReplaceAll(random.next(), "\x00", "")) // daulet stops at it
		for range min(len(text), 1+len(text)/16) {
			text[random.random.IntN(len(text))] = invalid[random.random.IntN(len(invalid))]
		}
		want, _, err := theirs.EncodeErr(string(text), false)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.ours.Append(nil, text, &p.scratch); !slices.Equal(got, want) {
			t.Fatalf("%q has ids %v, want %v", text, got, want)
		}
	}
}

// testWrap compares what stands around a text with special tokens.
func (p *pair) testWrap(t *testing.T) {
	before, after := p.ours.Wrap()
	for _, text := range []string{"Hello there", " 中文\n\n", "x"} {
		want := encode(t, p.oracle, text, true)
		got := p.ours.Append(slices.Clone(before), []byte(text), &p.scratch)
		if got = append(got, after...); !slices.Equal(got, want) {
			t.Errorf("%q: ids %v, want %v", text, got, want)
		}
	}
}
