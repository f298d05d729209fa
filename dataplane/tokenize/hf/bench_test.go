//go:build hf && cgo

package hf_test

import (
	"os"
	"strings"
	"testing"
	"time"

	daulet "github.com/daulet/tokenizers"

	"warmpath/dataplane/tokenize"
	"warmpath/dataplane/tokenize/hf"
)

// BenchmarkPair sets package tokenize (ours), this package (hf) and the Go
// module underneath (daulet) side by side: text that all have seen before,
// text that none has seen (first), long prompts, and what is worst for merging.
func BenchmarkPair(b *testing.B) {
	english := strings.Join(prompts(b), "\n\n")
	if english == "" {
		english = strings.Join(goFiles(b), "\n")
	}
	for _, name := range []string{"qwen3", "llama3_1", "gptoss", "gemma3"} {
		data, err := os.ReadFile(modelFile(name))
		if err != nil {
			b.Logf("no model %s: make models fetches it", name)
			continue
		}
		b.Run(name, func(b *testing.B) {
			p, err := loadPair(b, name, data)
			if err != nil {
				b.Skip(err)
			}
			theirs, err := daulet.FromBytes(data)
			if err != nil {
				b.Fatal(err)
			}
			defer theirs.Close()
			b.Run("4KB", func(b *testing.B) { p.bench(b, theirs, english[:4<<10]) })
			b.Run("32KB", func(b *testing.B) { p.bench(b, theirs, english[:32<<10]) })
			b.Run("32KB-first", func(b *testing.B) { benchFirst(b, data, english[:32<<10]) })
			b.Run("128k-tokens", func(b *testing.B) { p.bench(b, theirs, p.ofTokens(b, english, 128<<10)) })
			b.Run("32KB-one-letter", func(b *testing.B) { p.bench(b, theirs, strings.Repeat("a", 32<<10)) })
		})
	}
}

// ofTokens is the start of a text, as long as some number of ids.
func (p *pair) ofTokens(b *testing.B, text string, tokens int) string {
	ids := encode(b, p.oracle, strings.ToValidUTF8(text[:1<<20], ""), false)
	if len(ids) < tokens {
		return text[:1<<20]
	}
	start, err := p.oracle.Decode(ids[:tokens])
	if err != nil {
		b.Fatal(err)
	}
	return start
}

func (p *pair) bench(b *testing.B, theirs *daulet.Tokenizer, text string) {
	text = strings.ToValidUTF8(text, "")
	raw := []byte(text)
	var ids []uint32
	measure := func(name string, encode func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			encode()
			for b.Loop() {
				encode()
			}
		})
	}
	measure("ours", func() { ids = p.ours.Append(ids[:0], raw, &p.scratch) })
	measure("hf", func() {
		var err error
		if ids, err = p.oracle.Encode(ids[:0], raw, false); err != nil {
			b.Fatal(err)
		}
	})
	measure("daulet", func() {
		if _, _, err := theirs.EncodeErr(text, false); err != nil {
			b.Fatal(err)
		}
	})
}

// benchFirst measures the first text that a tokenizer sees after it is loaded:
// the best of three, because loading takes far longer than the text.
func benchFirst(b *testing.B, data []byte, text string) {
	text = strings.ToValidUTF8(text, "")
	measure := func(name string, first func() time.Duration) {
		b.Run(name, func(b *testing.B) {
			best := first()
			for range 2 {
				best = min(best, first())
			}
			for b.Loop() { // nothing: the figure stands
			}
			b.ReportMetric(float64(best.Nanoseconds()), "ns/op")
			b.ReportMetric(float64(len(text))/best.Seconds()/1e6, "MB/s")
		})
	}
	measure("ours", func() time.Duration {
		ours, err := tokenize.Load(data)
		if err != nil {
			b.Fatal(err)
		}
		var scratch tokenize.Scratch
		begin := time.Now()
		ours.Append(nil, []byte(text), &scratch)
		return time.Since(begin)
	})
	measure("hf", func() time.Duration {
		oracle, err := hf.Load(data)
		if err != nil {
			b.Fatal(err)
		}
		defer oracle.Close()
		begin := time.Now()
		if _, err := oracle.Encode(nil, []byte(text), false); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	})
}
