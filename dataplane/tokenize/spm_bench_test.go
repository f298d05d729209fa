package tokenize

import (
	"strings"
	"testing"
)

func TestSentencePieceAllocsNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("left out: the race detector allocates")
	}
	for _, name := range []string{"llama", "gemma", "first", "unknown", "some bytes", "whole pieces", "whole words", "normalized, prepended"} {
		tokenizer := spm(t, name)
		var s Scratch
		for kind, text := range map[string]string{
			"plain":         strings.Repeat("The server has 12 nodes; it doesn't sleep.\n", 20),
			"chinese":       "分词的结果必须与引擎完全一致，近似的办法只会让缓存白白落空。",
			"invalid":       "a\xffb ▁ c",
			"long segments": strings.Repeat("en", 900) + " " + strings.Repeat(" ", 300) + strings.Repeat("&", 40),
			"added tokens":  "<s>user\n\nwho?</s> word  <n> of the",
		} {
			raw := []byte(text)
			ids := make([]uint32, 0, 4096)
			tokenizer.Append(ids, raw, &s)
			if n := testing.AllocsPerRun(20, func() { tokenizer.Append(ids, raw, &s) }); n != 0 {
				t.Errorf("%s, %s: %v allocations", name, kind, n)
			}
			n := testing.AllocsPerRun(20, func() {
				tokenizer.NextCut(raw, 1)
				tokenizer.NextCutEscaped(raw, 1)
			})
			if n != 0 {
				t.Errorf("%s, %s: %v allocations to find a cut", name, kind, n)
			}
		}
	}
}

// BenchmarkSentencePiece is BenchmarkAppend for this family.
func BenchmarkSentencePiece(b *testing.B) {
	for _, name := range []string{"llama2", "gemma2", "gemma3"} {
		b.Run(name, func(b *testing.B) {
			t := model(b, name)
			for _, kind := range []struct {
				name string
				text []byte
			}{
				{"english", sample(b, "../../*.md")},
				{"code", sample(b, "../*/*.go")},
				{"chinese", sample(b, "testdata/chinese.txt")},
				{"letter", []byte(strings.Repeat("a", 32<<10))},
			} {
				b.Run(kind.name+"/warm", func(b *testing.B) { benchSentencePiece(b, t, kind.text, false) })
				b.Run(kind.name+"/cold", func(b *testing.B) { benchSentencePiece(b, t, kind.text, true) })
			}
		})
	}
}

// benchSentencePiece measures with all segments known, or forgets them before
// each round.
func benchSentencePiece(b *testing.B, t *Tokenizer, text []byte, forget bool) {
	var s Scratch
	ids := t.Append(nil, text, &s)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if forget {
			b.StopTimer()
			t.encoder.(*sentencePiece).cache = newWordCache()
			b.StartTimer()
		}
		ids = t.Append(ids[:0], text, &s)
	}
}
