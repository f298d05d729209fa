package tokenize

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// spmVariant is a setting of testdata/spm.json and the ids that the reference
// implementation gives with it. scripts/train_tiny_sentencepiece.py writes
// both files.
type spmVariant struct {
	Name  string         `json:"name"`
	Patch map[string]any `json:"patch"`
	IDs   [][]uint32     `json:"ids"`
}

// spmGoldens returns the texts and the variants.
func spmGoldens(t testing.TB) (texts []string, variants []spmVariant) {
	t.Helper()
	data, err := os.ReadFile("testdata/spm_goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Texts    []string     `json:"texts"`
		Variants []spmVariant `json:"variants"`
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g.Texts, g.Variants
}

// spmFile returns testdata/spm.json with some of its parts replaced, of the
// model some fields, and without some entries of the vocabulary.
func spmFile(t testing.TB, patch map[string]any) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/spm.json")
	if err != nil {
		t.Fatal(err)
	}
	var f map[string]any
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	model := f["model"].(map[string]any)
	maps.Copy(f, patch)
	if changes, ok := patch["model"].(map[string]any); ok {
		maps.Copy(model, changes)
		f["model"] = model
	}
	if without, ok := model["without"].([]any); ok {
		delete(model, "without")
		for _, entry := range without {
			delete(model["vocab"].(map[string]any), entry.(string))
		}
	}
	if data, err = json.Marshal(f); err != nil {
		t.Fatal(err)
	}
	return data
}

// patchOf reads a patch.
func patchOf(t testing.TB, text string) (patch map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &patch); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return patch
}

// spm loads a variant.
func spm(t testing.TB, name string) *Tokenizer {
	t.Helper()
	_, variants := spmGoldens(t)
	for _, v := range variants {
		if v.Name == name {
			return mustLoad(t, spmFile(t, v.Patch))
		}
	}
	t.Fatalf("no variant %q", name)
	return nil
}

func TestSentencePieceGoldens(t *testing.T) {
	texts, variants := spmGoldens(t)
	for _, v := range variants {
		t.Run(v.Name, func(t *testing.T) {
			tokenizer := mustLoad(t, spmFile(t, v.Patch))
			var s Scratch
			for round := range 2 { // the second time with all segments known
				for i, text := range texts {
					if got := tokenizer.Append(nil, []byte(text), &s); !slices.Equal(got, v.IDs[i]) {
						t.Errorf("round %d: %q gives\n%v, want\n%v", round, text, got, v.IDs[i])
					}
				}
			}
		})
	}
}

func TestSentencePieceRefusals(t *testing.T) {
	for _, c := range []struct{ patch, what, why string }{
		{`{"normalizer": null}`, "normalizer", "neither it nor the pre_tokenizer writes ▁"},
		{`{"normalizer": {"type": "Prepend", "prepend": "▁"}}`, "normalizer", "neither it nor"},
		{`{"normalizer": {"type": "Prepend", "prepend": "▁"}, "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}}`, "normalizer", "together with Replace"},
		{`{"normalizer": {"type": "Prepend", "prepend": "_"}}`, "normalizer", "Prepend is understood only as"},
		{`{"normalizer": {"type": "Replace", "pattern": {"Regex": " +"}, "content": "▁"}}`, "normalizer", "Replace is understood only as"},
		{`{"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "_"}}`, "normalizer", "Replace is understood only as"},
		{`{"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}]}}`, "normalizer.normalizers[0]", "NFKC is understood only as"},
		{`{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA=="}}`, "normalizer", "unknown field"},
		{`{"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Prepend", "prepend": "▁"}]}}`, "normalizer.normalizers[1]", "once"},
		{`{"pre_tokenizer": {"type": "Whitespace"}}`, "pre_tokenizer", "Whitespace is understood only as"},
		{`{"pre_tokenizer": {"type": "Metaspace", "replacement": "_"}}`, "pre_tokenizer", "Metaspace is understood only as"},
		{`{"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "last"}}`, "pre_tokenizer.prepend_scheme", `"last" is none of`},
		{`{"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": false}}`, "pre_tokenizer.add_prefix_space", "prepend_scheme is always"},
		{`{"pre_tokenizer": {"type": "Metaspace", "replacement": "▁"}}`, "pre_tokenizer.prepend_scheme", "the normalizer Prepend does so too"},
		{`{"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁"}]}}`, "pre_tokenizer.pretokenizers[0]", "WhitespaceSplit is understood only as"},
		{`{"normalizer": null, "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Removed", "invert": false}}`, "pre_tokenizer", "Split is understood only as"},
		{`{"model": {"type": "Unigram"}}`, "model.type", "is not BPE"},
		{`{"model": {"dropout": 0.1}}`, "model.dropout", "random"},
		{`{"model": {"byte_fallback": false, "unk_token": null}}`, "model.unk_token", "would be left out"},
		{`{"model": {"byte_fallback": false, "unk_token": "<none>"}}`, "model.unk_token", `"<none>" is not in the vocabulary`},
		{`{"model": {"merges": [["<0x41>", "a"]]}}`, "model.merges[0]", `"<0x41>" is part of a merge`},
		{`{"model": {"merges": [["", "a"]]}}`, "model.merges[0]", `"" is part of a merge`},
		{`{"model": {"merges": [["a", "<unk>"]]}}`, "model.merges[0]", `"<unk>" is part of a merge`},
	} {
		_, err := Load(spmFile(t, patchOf(t, c.patch)))
		var unsupported *Unsupported
		if !errors.As(err, &unsupported) {
			t.Errorf("%s gives %v, want an *Unsupported", c.patch, err)
			continue
		}
		if unsupported.What != c.what || !strings.Contains(unsupported.Why, c.why) {
			t.Errorf("%s gives %v, want %s: …%s…", c.patch, err, c.what, c.why)
		}
	}
}

func TestSentencePieceDecode(t *testing.T) {
	texts, _ := spmGoldens(t)
	tokenizer := spm(t, "gemma")
	var s Scratch
	for _, text := range texts {
		want := strings.ReplaceAll(text, string(metaspace), " ") // what is lost
		got := strings.ReplaceAll(tokenizer.Decode(tokenizer.Append(nil, []byte(text), &s)), string(metaspace), " ")
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := spm(t, "llama").Decode([]uint32{1, 3 + 0xE4, 3 + 0xBD, 3 + 0xA0}); got != "<s>你" {
		t.Errorf("bytes of a character give %q", got)
	}
}

// TestSentencePieceInvalidText compares with the repaired text.
func TestSentencePieceInvalidText(t *testing.T) {
	tokenizer := spm(t, "llama")
	var s Scratch
	for _, text := range []string{"a\xffb", "\xe2\x96", "the\xe2\x96 the", "\xed\xa0\x80", "\x00\xf0\x9f\x98", "<s>\x80 </s>"} {
		got := tokenizer.Append(nil, []byte(text), &s)
		if want := tokenizer.Append(nil, appendLossy(nil, []byte(text)), &s); !slices.Equal(got, want) {
			t.Errorf("%q gives %v, want %v", text, got, want)
		}
	}
}
