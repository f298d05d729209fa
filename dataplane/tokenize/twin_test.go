package tokenize

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// twin is the tiny tokenizer without normalizer and added tokens, written for
// reading: Go's regular expressions, and the definition of merging.
type twin struct {
	vocab map[string]uint32
	ranks map[[2]string]int
	words *regexp.Regexp
}

func newTwin(t testing.TB) *twin {
	data, err := os.ReadFile("testdata/tiny.json")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Model struct {
			Vocab  map[string]uint32
			Merges [][2]string
		}
	}
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	w := &twin{vocab: f.Model.Vocab, ranks: map[[2]string]int{}}
	for rank, pair := range f.Model.Merges {
		w.ranks[pair] = rank
	}
	// All of qwenPattern but its last two branches, of which one looks ahead.
	pattern, _, _ := strings.Cut(qwenPattern, `|\s+(?!\S)`)
	const blanks = `\t\n\v\f\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}`
	pattern = strings.ReplaceAll(pattern, `[^\s`, `[^`+blanks)
	pattern = strings.ReplaceAll(pattern, `\s`, `[`+blanks+`]`)
	w.words = regexp.MustCompile(`^(?:` + pattern + `)`)
	return w
}

// next returns the length of the first pre-token.
func (w *twin) next(text string) int {
	if found := w.words.FindString(text); found != "" {
		return len(found)
	}
	rest := strings.TrimLeftFunc(text, unicode.IsSpace)
	run := text[:len(text)-len(rest)]
	if _, last := utf8.DecodeLastRuneInString(run); rest != "" && len(run) > last {
		return len(run) - last // it leaves the last one to what follows
	}
	return len(run)
}

func (w *twin) encode(text string) (ids []uint32) {
	for text != "" {
		n := w.next(text)
		var symbols []string
		for _, b := range []byte(text[:n]) {
			symbols = append(symbols, string(byteRunes[b]))
		}
		for {
			best, at := len(w.ranks), -1
			for i := range len(symbols) - 1 {
				if rank, ok := w.ranks[[2]string{symbols[i], symbols[i+1]}]; ok && rank < best {
					best, at = rank, i
				}
			}
			if at < 0 {
				break
			}
			symbols = slices.Replace(symbols, at, at+2, symbols[at]+symbols[at+1])
		}
		for _, s := range symbols {
			ids = append(ids, w.vocab[s])
		}
		text = text[n:]
	}
	return ids
}

// knownToBoth reports whether Go's Unicode tables class the text as the
// reference does.
func knownToBoth(text string) bool {
	for _, r := range text {
		class := classOf(r)
		if unicode.IsLetter(r) != (class&letter != 0) || unicode.IsNumber(r) != (class&number != 0) {
			return false
		}
	}
	return utf8.ValidString(text)
}

func FuzzAppendAgainstTwin(f *testing.F) {
	g, err := readGoldens()
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range g.Texts {
		f.Add(text)
	}
	w := newTwin(f)
	tokenizer := mustLoad(f, tinyFile(f, map[string]any{"normalizer": nil, "added_tokens": []any{}}))
	var s Scratch
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2000 || !knownToBoth(text) {
			return
		}
		want := w.encode(text)
		if got := tokenizer.Append(nil, []byte(text), &s); !slices.Equal(got, want) {
			t.Errorf("%q gives %v, want %v", text, got, want)
		}
	})
}

// TestClassesAgainstGo: what Go's older Unicode knows, the reference knows too.
func TestClassesAgainstGo(t *testing.T) {
	newer := 0
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r >= 0xD800 && r < 0xE000 {
			continue
		}
		class := classOf(r)
		if (class&space != 0) != unicode.IsSpace(r) {
			t.Errorf("%U: white space is %v", r, class&space != 0)
		}
		if !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co) {
			if class&classMask != 0 {
				newer++
			}
			continue
		}
		for _, c := range []struct {
			class uint8
			table *unicode.RangeTable
		}{{letter, unicode.L}, {mark, unicode.M}, {number, unicode.N}, {symbol, unicode.P}} {
			if unicode.Is(c.table, r) && class&c.class == 0 {
				t.Errorf("%U is not of class %#x", r, c.class)
			}
		}
		if unicode.IsUpper(r) && class&upper == 0 || unicode.IsLower(r) && unicode.Is(unicode.Ll, r) && class&lower == 0 {
			t.Errorf("%U has class %#x", r, class)
		}
	}
	if newer < 5000 {
		t.Errorf("%d code points are newer than Go's tables; they are the reason for ours", newer)
	}
}
