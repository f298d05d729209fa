package tokenize

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// spmTwin does what the reference does in the plainest way: strings, one pass
// after another over whole pieces, no parts, no memory. It knows no flags of
// added tokens.
type spmTwin struct {
	added   []string
	prepend bool
	scheme  string // of Metaspace, "" without one
	split   bool
	model   bpeModel
	ranks   map[[2]string]int
}

func newSpmTwin(t testing.TB, data []byte) *spmTwin {
	t.Helper()
	var f struct {
		Added        []addedRecord `json:"added_tokens"`
		Normalizer   string        `json:"normalizer"`
		PreTokenizer *struct {
			Scheme string `json:"prepend_scheme"`
			Split  bool   `json:"split"`
		} `json:"pre_tokenizer"`
		Model bpeModel `json:"model"`
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		t.Fatal(err)
	}
	whole["normalizer"], _ = json.Marshal(string(whole["normalizer"]))
	data, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	w := &spmTwin{model: f.Model, ranks: map[[2]string]int{}, prepend: strings.Contains(f.Normalizer, "Prepend")}
	for _, a := range f.Added {
		w.added = append(w.added, a.Content)
	}
	if f.PreTokenizer != nil {
		w.scheme, w.split = f.PreTokenizer.Scheme, f.PreTokenizer.Split
	}
	for rank, pair := range f.Model.Merges {
		w.ranks[pair] = rank
	}
	return w
}

func (w *spmTwin) encode(text string) (ids []uint32) {
	start := 0 // of the piece
	for pos := 0; pos <= len(text); {
		best := ""
		for _, token := range w.added {
			if len(token) > len(best) && strings.HasPrefix(text[pos:], token) {
				best = token
			}
		}
		if best == "" && pos < len(text) {
			pos++
			continue
		}
		if pos > start {
			ids = append(ids, w.piece(text[start:pos], start == 0)...)
		}
		if best != "" {
			ids = append(ids, w.model.Vocab[best])
		}
		if pos += len(best); pos == len(text) {
			break
		}
		start = pos
	}
	return ids
}

func (w *spmTwin) piece(text string, first bool) (ids []uint32) {
	text = strings.ReplaceAll(text, " ", "▁")
	if w.prepend || !strings.HasPrefix(text, "▁") && (w.scheme == "always" || w.scheme == "first" && first) {
		text = "▁" + text
	}
	tokens := []string{text}
	if w.split {
		tokens = strings.SplitAfter(text, "▁") // "a▁" "b": the ▁ belongs to what follows
		for i := len(tokens) - 1; i > 0; i-- {
			if cut, ok := strings.CutSuffix(tokens[i-1], "▁"); ok {
				tokens[i-1], tokens[i] = cut, "▁"+tokens[i]
			}
		}
	}
	for _, token := range tokens {
		if id, ok := w.model.Vocab[token]; ok && w.model.IgnoreMerges {
			ids = append(ids, id)
		} else if token != "" {
			ids = append(ids, w.merged(w.symbols(token))...)
		}
	}
	return ids
}

func (w *spmTwin) symbols(token string) (symbols []string) {
	unknown := 0
	for _, r := range token {
		if _, ok := w.model.Vocab[string(r)]; ok {
			for ; unknown > 0; unknown-- {
				symbols = append(symbols, *w.model.UnkToken)
			}
			symbols = append(symbols, string(r))
			continue
		}
		var bytes []string
		for _, b := range []byte(string(r)) {
			if entry := fmt.Sprintf("<0x%02X>", b); w.model.ByteFallback && w.model.Vocab[entry] != 0 {
				bytes = append(bytes, entry)
			}
		}
		switch {
		case len(bytes) == len(string(r)):
			symbols = append(symbols, bytes...)
		case unknown > 0 && w.model.FuseUnk:
		case unknown > 0:
			symbols = append(symbols, *w.model.UnkToken)
		default:
			unknown = 1
		}
	}
	for ; unknown > 0; unknown-- {
		symbols = append(symbols, *w.model.UnkToken)
	}
	return symbols
}

func (w *spmTwin) merged(symbols []string) (ids []uint32) {
	for {
		best, at := len(w.ranks), -1
		for i := 1; i < len(symbols); i++ {
			if rank, ok := w.ranks[[2]string{symbols[i-1], symbols[i]}]; ok && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			break
		}
		symbols[at-1] += symbols[at]
		symbols = slices.Delete(symbols, at, at+1)
	}
	for _, symbol := range symbols {
		ids = append(ids, w.model.Vocab[symbol])
	}
	return ids
}

// randomAlphabet is what random vocabularies and the texts for them are made of.
var randomAlphabet = []string{"a", "b", "c", "1", ".", "&", "'", "▁", "▁", "\n", "é", "中", "☃", "\u0301"}

// randomSpm is a tokenizer of a few entries and of settings drawn at random.
func randomSpm(random *rand.Rand) []byte {
	vocab := map[string]uint32{}
	put := func(entry string) {
		if _, ok := vocab[entry]; !ok {
			vocab[entry] = uint32(len(vocab))
		}
	}
	put("<unk>")
	put("<s>")
	if random.IntN(3) > 0 {
		for b := range 256 {
			if random.IntN(200) > 0 || b == 0 || random.IntN(2) == 0 {
				put(fmt.Sprintf("<0x%02X>", b))
			}
		}
	}
	var parts []string
	for _, c := range randomAlphabet {
		if random.IntN(6) > 0 && !slices.Contains(parts, c) {
			parts = append(parts, c)
			put(c)
		}
	}
	merges := [][2]string{}
	seen := map[[2]string]bool{}
	for range random.IntN(40) {
		pair := [2]string{parts[random.IntN(len(parts))], parts[random.IntN(len(parts))]}
		joined := pair[0] + pair[1]
		if len(joined) > 24 || seen[pair] {
			continue
		}
		seen[pair] = true
		merges, parts = append(merges, pair), append(parts, joined)
		put(joined)
	}
	put("ab▁c") // perhaps made by no merge
	put("▁ca")
	put("a&b")
	added := []addedRecord{{ID: 1, Content: "<s>", Special: true}}
	for _, content := range []string{"\n", "▁▁", "a b"} {
		if random.IntN(4) == 0 {
			put(content)
			added = append(added, addedRecord{ID: vocab[content], Content: content})
		}
	}
	replace := `{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}`
	normalizer, preTokenizer := replace, "null"
	switch random.IntN(4) {
	case 0:
		normalizer = `{"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, ` + replace + `]}`
	case 1:
		normalizer = "null"
		preTokenizer = fmt.Sprintf(`{"type": "Metaspace", "replacement": "▁", "prepend_scheme": %q, "split": %v}`,
			[]string{"always", "first", "never"}[random.IntN(3)], random.IntN(2) == 0)
	}
	data, err := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": added,
		"normalizer": json.RawMessage(normalizer), "pre_tokenizer": json.RawMessage(preTokenizer),
		"model": map[string]any{
			"type": "BPE", "unk_token": "<unk>", "fuse_unk": random.IntN(2) == 0, "byte_fallback": random.IntN(3) > 0,
			"ignore_merges": random.IntN(4) == 0, "vocab": vocab, "merges": merges,
		},
	})
	if err != nil {
		panic(err)
	}
	return data
}

func randomSpmText(random *rand.Rand) string {
	var b strings.Builder
	for range random.IntN(24) {
		switch random.IntN(12) {
		case 0:
			b.WriteString("<s>")
		case 1:
			b.WriteString(strings.Repeat(randomAlphabet[random.IntN(len(randomAlphabet))], 1+random.IntN(20)))
		case 2, 3, 4:
			b.WriteByte(' ')
		default:
			b.WriteString(randomAlphabet[random.IntN(len(randomAlphabet))])
		}
	}
	return b.String()
}

// randomSeeds is how many random tokenizers a test looks at.
func randomSeeds() uint64 {
	if raceEnabled {
		return 30 // it takes ten times as long
	}
	return 300
}

func TestSentencePieceTwin(t *testing.T) {
	for seed := range randomSeeds() {
		random := rand.New(rand.NewPCG(seed, 5))
		data := randomSpm(random)
		tokenizer, twin := mustLoad(t, data), newSpmTwin(t, data)
		var s Scratch
		for range 60 {
			text := randomSpmText(random)
			if got, want := tokenizer.Append(nil, []byte(text), &s), twin.encode(text); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %q gives\n%v, want\n%v\n%s", seed, text, got, want, data)
			}
		}
	}
}

// TestSentencePieceTwinOnGoldens holds the twin itself against the reference.
func TestSentencePieceTwinOnGoldens(t *testing.T) {
	texts, variants := spmGoldens(t)
	known := 0
	for _, v := range variants {
		if strings.HasPrefix(v.Name, "flags") || strings.HasPrefix(v.Name, "normalized") || strings.HasPrefix(v.Name, "older") {
			continue
		}
		twin := newSpmTwin(t, spmFile(t, v.Patch))
		for i, text := range texts {
			if got := twin.encode(text); !slices.Equal(got, v.IDs[i]) {
				t.Errorf("%s: %q gives\n%v, want\n%v", v.Name, text, got, v.IDs[i])
			}
		}
		known++
	}
	if known < 15 {
		t.Errorf("only %d variants", known)
	}
}

// TestSentencePieceLengths goes over the bounds between short segments, those
// that are remembered, and those that are merged with a heap.
func TestSentencePieceLengths(t *testing.T) {
	_, variants := spmGoldens(t)
	compareLengths(t, spmFile(t, variants[0].Patch))
	// Here a space is the three bytes of ▁: a segment has more ids than bytes.
	compareLengths(t, spmFile(t, patchOf(t, `{"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
		"model": {"merges": [], "without": ["▁", "<0xFF>", "<0xEE>"]}}`)))
}

func compareLengths(t *testing.T, data []byte) {
	t.Helper()
	tokenizer, twin := mustLoad(t, data), newSpmTwin(t, data)
	var s Scratch
	for _, unit := range []string{"e", "▁", " ", "en", "&", "\x00", "中"} {
		for _, n := range []int{1, 7, 8, 9, 14, 15, 16, 17, 31, 62, 63, 64, 65, 85, 86, 127, 128, 129, 254, 255, 256, 257, 258, 600} {
			for range 2 {
				text := strings.Repeat(unit, n)
				if got, want := tokenizer.Append(nil, []byte(text), &s), twin.encode(text); !slices.Equal(got, want) {
					t.Fatalf("%d times %q gives\n%v, want\n%v", n, unit, got, want)
				}
			}
		}
	}
}

func FuzzSentencePiece(f *testing.F) {
	for seed := range uint64(12) {
		f.Add(seed, randomSpmText(rand.New(rand.NewPCG(seed, 6))))
	}
	f.Add(uint64(3), "ab▁c ab c\n\n&1.é中☃\xff")
	f.Fuzz(func(t *testing.T, seed uint64, text string) {
		if len(text) > 2000 {
			return
		}
		data := randomSpm(rand.New(rand.NewPCG(seed%4096, 5)))
		tokenizer, twin := mustLoad(t, data), newSpmTwin(t, data)
		var s Scratch
		valid := string(appendLossy(nil, []byte(text)))
		if got, want := tokenizer.Append(nil, []byte(text), &s), twin.encode(valid); !slices.Equal(got, want) {
			t.Fatalf("%q gives\n%v, want\n%v\n%s", text, got, want, data)
		}
		checkSpmCuts(t, tokenizer, valid)
	})
}
