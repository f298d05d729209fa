package tokenize

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// goldens are texts and what the reference implementation makes of them, with
// variants of the tokenizer in testdata/tiny.json. scripts/
// train_tiny_tokenizer.py writes both files.
type goldens struct {
	Texts    []string  `json:"texts"`
	Variants []variant `json:"variants"`
}

type variant struct {
	Name  string         `json:"name"`
	Parts map[string]any `json:"parts"`
	IDs   [][]uint32     `json:"ids"`
}

var readGoldens = sync.OnceValues(func() (*goldens, error) {
	data, err := os.ReadFile("testdata/tiny_goldens.json")
	if err != nil {
		return nil, err
	}
	var g goldens
	return &g, json.Unmarshal(data, &g)
})

// tinyFile returns tiny.json with some of its parts replaced; ignore_merges is
// the model's.
func tinyFile(t testing.TB, parts map[string]any) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/tiny.json")
	if err != nil {
		t.Fatal(err)
	}
	var f map[string]any
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	maps.Copy(f, parts)
	if whole, ok := f["ignore_merges"]; ok {
		f["model"].(map[string]any)["ignore_merges"] = whole
		delete(f, "ignore_merges")
	}
	if data, err = json.Marshal(f); err != nil {
		t.Fatal(err)
	}
	return data
}

func mustLoad(t testing.TB, data []byte) *Tokenizer {
	t.Helper()
	tokenizer, err := Load(data)
	if err != nil {
		t.Fatal(err)
	}
	return tokenizer
}

// tiny loads a variant of the tiny tokenizer.
func tiny(t testing.TB, name string) *Tokenizer {
	t.Helper()
	g, err := readGoldens()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range g.Variants {
		if v.Name == name {
			return mustLoad(t, tinyFile(t, v.Parts))
		}
	}
	t.Fatalf("no variant %q", name)
	return nil
}

// eachVariant runs a test for every variant and its texts.
func eachVariant(t *testing.T, test func(t *testing.T, tokenizer *Tokenizer, texts []string, ids [][]uint32)) {
	g, err := readGoldens()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range g.Variants {
		t.Run(v.Name, func(t *testing.T) { test(t, tiny(t, v.Name), g.Texts, v.IDs) })
	}
}

func TestGoldens(t *testing.T) {
	eachVariant(t, func(t *testing.T, tokenizer *Tokenizer, texts []string, ids [][]uint32) {
		var s Scratch
		for round := range 2 { // the second time with all words known
			for i, text := range texts {
				if got := tokenizer.Append(nil, []byte(text), &s); !slices.Equal(got, ids[i]) {
					t.Errorf("round %d: %q gives\n%v, want\n%v", round, text, got, ids[i])
				}
			}
		}
	})
}

func TestDecodeGivesTheTextBack(t *testing.T) {
	eachVariant(t, func(t *testing.T, tokenizer *Tokenizer, texts []string, _ [][]uint32) {
		if tokenizer.normalizer != nil || t.Name() == "TestDecodeGivesTheTextBack/gpt2_with_prefix" {
			return // changes texts
		}
		var s Scratch
		for _, text := range texts {
			if got := tokenizer.Decode(tokenizer.Append(nil, []byte(text), &s)); got != text {
				t.Errorf("got %q, want %q", got, text)
			}
		}
	})
}

func TestDecodeForeignIDs(t *testing.T) {
	tokenizer := tiny(t, "qwen")
	if got := tokenizer.Decode([]uint32{1 << 30, uint32(tokenizer.VocabSize())}); got != "" {
		t.Errorf("ids that do not exist give %q", got)
	}
	half := tokenizer.Append(nil, []byte("語"), &Scratch{})
	if got := tokenizer.Decode(half[:1]); got != "\uFFFD" {
		t.Errorf("a part of a character gives %q", got)
	}
}

// TestLegacyMerges writes the merges as strings, as older files do.
func TestLegacyMerges(t *testing.T) {
	var f map[string]any
	if err := json.Unmarshal(tinyFile(t, nil), &f); err != nil {
		t.Fatal(err)
	}
	m := f["model"].(map[string]any)
	lines := []any{"#version: 0.2"}
	for _, pair := range m["merges"].([]any) {
		lines = append(lines, pair.([]any)[0].(string)+" "+pair.([]any)[1].(string))
	}
	m["merges"] = lines
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	old, now := mustLoad(t, data), tiny(t, "qwen")
	g, _ := readGoldens()
	var s Scratch
	for _, text := range g.Texts {
		if a, b := old.Append(nil, []byte(text), &s), now.Append(nil, []byte(text), &s); !slices.Equal(a, b) {
			t.Errorf("%q gives %v with merges as strings, %v as pairs", text, a, b)
		}
	}
}

func TestWrap(t *testing.T) {
	before, after := tiny(t, "llama3").Wrap()
	if want := []uint32{2256}; !slices.Equal(before, want) || len(after) != 0 {
		t.Errorf("got %v and %v, want %v and nothing", before, after, want)
	}
	if before, after = tiny(t, "qwen").Wrap(); len(before)+len(after) != 0 {
		t.Errorf("got %v and %v, want nothing", before, after)
	}
}

// TestInvalidText compares with the text as Rust and Python repair it.
func TestInvalidText(t *testing.T) {
	tokenizer := tiny(t, "qwen")
	var s Scratch
	for _, c := range []struct{ text, repaired string }{
		{"a\xffb", "a�b"},
		{"\xe4\xb8", "�"},
		{"\xe4\xb8a\xe4", "�a�"},
		{"\xf0\x9f\x98", "�"},
		{"\xf0\x9f\x98\x80\xf0\x9f", "😀�"},
		{"\xe0\x80\x80", "���"},
		{"\xed\xa0\x80", "���"},
		{"\xf4\x90\x80\x80", "����"},
		{"\xf0\x80\x80", "���"},
		{"\xc1\xbf\xf5", "���"},
		{"<|im_end|>\x80", "<|im_end|>�"},
		{"e\xcc\x81\xcc", "e\u0301�"},
	} {
		if got := string(appendLossy(nil, []byte(c.text))); got != c.repaired {
			t.Errorf("%q is repaired to %q, want %q", c.text, got, c.repaired)
		}
		got, want := tokenizer.Append(nil, []byte(c.text), &s), tokenizer.Append(nil, []byte(c.repaired), &s)
		if !slices.Equal(got, want) {
			t.Errorf("%q gives %v, want %v", c.text, got, want)
		}
	}
}

func TestInspect(t *testing.T) {
	for _, c := range []struct {
		text          string
		valid, normal bool
	}{
		{"", true, true},
		{strings.Repeat("plain", 7), true, true},
		{"plain text, then é", true, true},
		{"plain text, then e\u0301", true, false},
		{"\u0958", true, false},
		{"1234567\xff", false, false},
		{"12345678\xff", false, false},
		{"�", true, true},
	} {
		if valid, normal := inspect([]byte(c.text)); valid != c.valid || normal != c.normal {
			t.Errorf("%q: got %v, %v", c.text, valid, normal)
		}
		if utf8.ValidString(c.text) != c.valid {
			t.Errorf("%q: the table is wrong", c.text)
		}
	}
}
