package tokenize

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// model loads the tokenizer of a real model, which scripts/models.sh fetches.
func model(t testing.TB, name string) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", ".cache", "models", name, "tokenizer.json"))
	if err != nil {
		t.Skip("left out: no tokenizer of " + name + "; scripts/models.sh fetches it")
	}
	tokenizer, err := Load(data)
	if err != nil {
		t.Fatal(err)
	}
	return tokenizer
}

// sample returns up to 32 KB of text of a kind that is at hand.
func sample(t testing.TB, pattern string) []byte {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no text in %s", pattern)
	}
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	text := []byte(all.String()[:min(all.Len(), 32<<10)])
	for !utf8.Valid(text) {
		text = text[:len(text)-1]
	}
	return text
}

// BenchmarkAppend measures with all words known (warm), with the cache of
// words empty (cold), and one endless word.
func BenchmarkAppend(b *testing.B) {
	for _, name := range []string{"qwen3", "llama3_2", "deepseek_v3", "gptoss", "mistral_nemo"} {
		b.Run(name, func(b *testing.B) {
			t := model(b, name)
			kinds := []struct {
				name string
				text []byte
			}{
				{"english", sample(b, "../../*.md")},
				{"code", sample(b, "../*/*.go")},
				{"chinese", sample(b, "testdata/chinese.txt")},
			}
			for _, kind := range kinds {
				b.Run(kind.name+"/warm", func(b *testing.B) { benchAppend(b, t, kind.text, false) })
				b.Run(kind.name+"/cold", func(b *testing.B) { benchAppend(b, t, kind.text, true) })
			}
			b.Run("letter", func(b *testing.B) { benchAppend(b, t, []byte(strings.Repeat("a", 32<<10)), false) })
		})
	}
}

func benchAppend(b *testing.B, t *Tokenizer, text []byte, forget bool) {
	var s Scratch
	ids := t.Append(nil, text, &s)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if forget {
			b.StopTimer()
			t.encoder.(*byteLevel).cache = newWordCache()
			b.StartTimer()
		}
		ids = t.Append(ids[:0], text, &s)
	}
}
