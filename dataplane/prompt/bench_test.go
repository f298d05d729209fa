package prompt

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"warmpath/dataplane/scan"
)

// english is prose of so many bytes: the repository's own, repeated with
// differences so that no chunk comes twice.
func english(b *testing.B, bytes int) string {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		b.Fatal(err)
	}
	words := strings.Fields(string(readme))
	r := rand.New(rand.NewPCG(1, 1))
	var s strings.Builder
	for s.Len() < bytes {
		from := r.IntN(len(words) - 40)
		s.WriteString(strings.Join(words[from:from+20+r.IntN(20)], " "))
		s.WriteString(".\n")
	}
	return s.String()[:bytes]
}

// BenchmarkWalk goes from the body to the units of prompts of several lengths:
// seen whole before, or but for the last turn, or never with all words known.
func BenchmarkWalk(b *testing.B) {
	tok := loadTokenizer(b, "../../.cache/models/qwen3/tokenizer.json")
	for _, size := range []struct {
		name  string
		bytes int
	}{{"4KB", 4 << 10}, {"64KB", 64 << 10}, {"640KB", 640 << 10}} {
		text := english(b, size.bytes)
		messages := []message{{"system", text[:size.bytes/2]}, {"user", text[size.bytes/2:]}}
		request := body(messages, false)
		run := func(b *testing.B, m *Model, bodies ...[]byte) {
			var w Walk
			var s scan.Scanner
			b.SetBytes(int64(len(request)))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				one := bodies[i%len(bodies)]
				i++
				s.Reset()
				_, _ = s.Scan(one, true)
				w.Start(m, 7)
				w.Begin(FormChat, one, s.Result(), WholeBudget)
				for !w.Complete() {
					w.Next(1<<40, 64)
				}
			}
			b.ReportMetric(float64(w.Count()), "tokens")
		}
		b.Run(size.name+"/seen", func(b *testing.B) { run(b, testModel(b, tok, 256<<20), request) })
		b.Run(size.name+"/new", func(b *testing.B) { run(b, testModel(b, tok, 0), request) })
	}
}
