//go:build hf && cgo

package hf_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"warmpath/dataplane/tokenize"
)

// addedToken is an entry of added_tokens in a tokenizer.json.
type addedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// addedVariants are ways to spoil a vocabulary with added tokens, the known
// classes of bugs of those who cut text at special tokens.
var addedVariants = []struct {
	name   string
	tokens []addedToken
	// change is applied to the tokens that the file has.
	change func(*addedToken)
}{
	{name: "as shipped"},
	{name: "plain", tokens: []addedToken{{Content: "<|syn|>", Special: true}, {Content: "[not special]"}}},
	{name: "lstrip", tokens: []addedToken{{Content: "<|syn|>", Lstrip: true, Special: true}}},
	{name: "rstrip", tokens: []addedToken{{Content: "<|syn|>", Rstrip: true, Special: true}}},
	{name: "lstrip and rstrip", tokens: []addedToken{{Content: "<|syn|>", Lstrip: true, Rstrip: true, Special: true}}},
	{name: "rstrip on all", change: func(a *addedToken) { a.Rstrip = true }},
	{name: "lstrip beside rstrip", tokens: []addedToken{{Content: "<|l|>", Lstrip: true}, {Content: "<|r|>", Rstrip: true}}},
	{name: "single_word", tokens: []addedToken{{Content: "the", SingleWord: true}, {Content: "<|syn|>", SingleWord: true, Special: true}}},
	{name: "normalized", tokens: []addedToken{{Content: "<|syn|>", Normalized: true}, {Content: "e\u0301", Normalized: true}, {Content: "\u212b"}}},
	{name: "normalized on all", change: func(a *addedToken) { a.Normalized = true }},
	{name: "nested", tokens: []addedToken{{Content: "<|", Special: true}, {Content: "|>", Special: true}}},
	{name: "nested, wide", tokens: []addedToken{{Content: "〈|", Special: true}, {Content: "|〉", Special: true}, {Content: "〈|EOS|〉", Special: true}}},
	{name: "prefix of another", tokens: []addedToken{{Content: "<|a"}, {Content: "<|a|>", Special: true}, {Content: "<|a|><|b|>"}, {Content: "<|b|>"}}},
	{name: "overlapping", tokens: []addedToken{{Content: "ab>"}, {Content: "b><"}, {Content: "><a"}, {Content: "<ab"}}},
	{name: "blanks inside", tokens: []addedToken{{Content: " \n"}, {Content: "\n\n\n"}, {Content: "  "}, {Content: "a b", Special: true}}},
	{name: "a single byte", tokens: []addedToken{{Content: "x"}, {Content: "\x00"}, {Content: "\u00a0"}}},
	{name: "in the vocabulary", tokens: []addedToken{{Content: "the"}, {Content: "12"}, {Content: "!", Special: true}}},
}

// smallVocabulary reduces a BPE model to the merges that can be made of its
// first few thousand, and numbers what is left from 0, so that it loads in no
// time. Added tokens are found in the same way.
func smallVocabulary(t *testing.T, data []byte) []byte {
	t.Helper()
	const most = 3000
	var top, model map[string]json.RawMessage
	vocab := map[string]uint32{}
	var merges []json.RawMessage
	decode := func(data []byte, v any) {
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatal(err)
		}
	}
	decode(data, &top)
	decode(top["model"], &model)
	decode(model["vocab"], &vocab)
	decode(model["merges"], &merges)
	kept := map[string]bool{}
	for piece := range vocab {
		if utf8.RuneCountInString(piece) == 1 || strings.HasPrefix(piece, "<") && strings.HasSuffix(piece, ">") {
			kept[piece] = true
		}
	}
	var keptMerges []json.RawMessage
	for _, merge := range merges {
		left, right := mergeParts(t, merge)
		if kept[left] && kept[right] && len(keptMerges) < most {
			kept[left+right] = true
			keptMerges = append(keptMerges, merge)
		}
	}
	order := slices.SortedFunc(maps.Keys(kept), func(a, b string) int { return cmp.Compare(vocab[a], vocab[b]) })
	small := map[string]uint32{}
	for i, piece := range order {
		small[piece] = uint32(i)
	}
	model["vocab"], model["merges"] = marshal(t, small), marshal(t, keptMerges)
	top["model"] = marshal(t, model)
	top["post_processor"] = json.RawMessage("null") // it names ids
	return marshal(t, top)
}

// mergeParts reads both forms of a merge: "a b" and ["a","b"].
func mergeParts(t *testing.T, merge json.RawMessage) (left, right string) {
	t.Helper()
	var text string
	if json.Unmarshal(merge, &text) == nil {
		left, right, _ = strings.Cut(text, " ")
		return left, right
	}
	var parts [2]string
	if err := json.Unmarshal(merge, &parts); err != nil {
		t.Fatal(err)
	}
	return parts[0], parts[1]
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// spoiled is a tokenizer.json with a variant of its added tokens, numbered
// behind the vocabulary, and the contents that texts should hold.
func spoiled(t *testing.T, data []byte, tokens []addedToken, change func(*addedToken)) (file []byte, contents []string) {
	t.Helper()
	var top map[string]json.RawMessage
	var model struct {
		Vocab map[string]uint32 `json:"vocab"`
	}
	var added []addedToken
	if err := errors.Join(json.Unmarshal(data, &top), json.Unmarshal(top["model"], &model), json.Unmarshal(top["added_tokens"], &added)); err != nil {
		t.Fatal(err)
	}
	for i := range added {
		if change != nil {
			change(&added[i])
		}
	}
	for i := range added[:min(8, len(added))] {
		contents = append(contents, added[i].Content)
	}
	for i := range tokens { // more often than those that the file has
		contents = append(contents, tokens[i].Content, tokens[i].Content, tokens[i].Content)
	}
	added = append(added, tokens...)
	free := uint32(len(model.Vocab))
	for i := range added {
		if id, known := model.Vocab[added[i].Content]; known {
			added[i].ID = id
		} else {
			added[i].ID = free
			free++
		}
	}
	top["added_tokens"] = marshal(t, added)
	return marshal(t, top), contents
}

// TestAddedTokens compares ids for every variant: either they are the same
// for all texts, or the loader has refused.
func TestAddedTokens(t *testing.T) {
	for _, name := range patterns {
		data, err := os.ReadFile(modelFile(name))
		if err != nil {
			t.Logf("no model %s: make models fetches it", name)
			continue
		}
		small := smallVocabulary(t, data)
		var same, refused []string
		for _, v := range addedVariants {
			t.Run(name+"/"+v.name, func(t *testing.T) {
				file, contents := spoiled(t, small, v.tokens, v.change)
				p, err := loadPair(t, name+", "+v.name, file)
				if reason := new(tokenize.Unsupported); errors.As(err, &reason) {
					t.Logf("refused: %v", reason)
					refused = append(refused, v.name)
					return
				} else if err != nil {
					t.Fatal(err)
				}
				p.checkAdded(t, contents)
				same = append(same, v.name)
			})
		}
		t.Logf("%s: identical with added tokens %s; refused: %s", name, strings.Join(same, ", "), strings.Join(refused, ", "))
	}
}

func (p *pair) checkAdded(t *testing.T, contents []string) {
	t.Helper()
	var c tally
	random := newStrings(23, contents)
	solid := 0
	for range 500 {
		text := random.dense()
		c.compare(t, p, text)
		parts := p.atSolid(text)
		solid += len(parts) / 2
		p.splits(t, parts)
		for _, segment := range p.withoutAdded(text) {
			p.splits(t, p.atCuts(segment, 1))
		}
	}
	t.Logf("%s: %d strings, %d times a solid token", p.name, c.texts, solid)
}

// dense is a text of which half are added tokens, or parts of them.
func (g *stringsOf) dense() string {
	var b []byte
	for range 1 + g.random.IntN(12) {
		b = append(b, g.special()...)
		if kind := g.random.IntN(2 * len(pieces)); kind < len(pieces) {
			b = append(b, g.piece(kind)...)
		}
	}
	return string(b)
}

// TestSpoiledIsSpoiled makes sure that the variants are what they say.
func TestSpoiledIsSpoiled(t *testing.T) {
	data := []byte(`{"model":{"vocab":{"a":0,"the":1}},"added_tokens":[{"id":2,"content":"<s>","special":true}]}`)
	file, contents := spoiled(t, data, []addedToken{{Content: "the"}, {Content: "new", Rstrip: true}}, func(a *addedToken) { a.Lstrip = true })
	var got struct {
		Added []addedToken `json:"added_tokens"`
	}
	if err := json.Unmarshal(file, &got); err != nil {
		t.Fatal(err)
	}
	want := []addedToken{
		{ID: 2, Content: "<s>", Lstrip: true, Special: true},
		{ID: 1, Content: "the"},
		{ID: 3, Content: "new", Rstrip: true},
	}
	if !slices.Equal(got.Added, want) || !slices.Contains(contents, "new") {
		t.Errorf("%+v, texts of %q", got.Added, contents)
	}
}
