package prefix

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"warmpath/dataplane/scan"
)

func chainOf(t testing.TB, body string) []Hash {
	var c TextChain
	c.Reset(1, []byte("m"), nil)
	return slices.Clone(c.Append([]byte(body), scanned(t, body)))
}

// twin writes the whole prompt down and hashes it a unit at a time.
func twin(seed uint64, model, salt, body []byte, r *scan.Result) (chain []Hash) {
	var text []byte
	parts := func(list []scan.Part) {
		for _, p := range list {
			text = append(text, map[scan.PartKind]byte{scan.PartText: 4, scan.PartOther: 5}[p.Kind])
			text = append(text, p.Span.Of(body)...)
		}
	}
	if r.Tools.Len() > 0 {
		text = append(append(text, 1), r.Tools.Of(body)...)
	}
	if r.System.Start < r.System.End {
		text = append(text, 2)
		parts(r.Parts[r.System.Start:r.System.End])
	}
	for _, m := range r.Messages {
		text = append(append(text, 3), m.Role.Of(body)...)
		before := len(text)
		list := r.Parts[m.Parts.Start:m.Parts.End]
		parts(list)
		if len(text) == before+len(list) {
			text = append(append(text[:before], 6), m.Span.Of(body)...)
		}
	}
	for _, p := range r.Parts[r.Prompt.Start:r.Prompt.End] {
		text = append(append(text, 7), p.Span.Of(body)...)
	}
	d := xxhash.NewWithSeed(seed)
	d.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(model))))
	d.Write(model)
	d.Write(salt)
	parent := d.Sum64()
	if len(r.Tokens) > 0 {
		if len(text) == 0 {
			parent = xxh3.HashSeed([]byte{8}, parent)
		} else {
			text = append(text, 8)
		}
		for _, id := range r.Tokens {
			text = binary.LittleEndian.AppendUint32(text, id)
		}
	}
	for len(chain) < 352 {
		unit := 4096
		switch {
		case len(chain) < 64:
			unit = 256
		case len(chain) < 112:
			unit = 1024
		}
		if len(text) < unit {
			break
		}
		parent = xxh3.HashSeed(binary.LittleEndian.AppendUint64(nil, xxh3.Hash(text[:unit])), parent)
		chain = append(chain, Hash(parent))
		text = text[unit:]
	}
	return chain
}

// someMessage draws a message as raw JSON.
func someMessage(t *rapid.T) string {
	text := func() string {
		unit := rapid.SampledFrom([]string{"a", `\n`, "é", "hello ", ""}).Draw(t, "text")
		return `"` + strings.Repeat(unit, rapid.IntRange(0, 700).Draw(t, "times")) + `"`
	}
	role := rapid.SampledFrom([]string{"system", "user", "assistant", "tool"}).Draw(t, "role")
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":%s},{"type":"image_url","x":%s}]}`, role, text(), text())
	case 1:
		return fmt.Sprintf(`{"role":%q,"content":null,"tool_calls":[{"function":%s}]}`, role, text())
	}
	return fmt.Sprintf(`{"role":%q,"content":%s}`, role, text())
}

// Turn n+1 extends turn n's chain, and both are what the twin makes of them.
func TestTurnsExtend(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		head := `{"messages":[`
		if rapid.Bool().Draw(rt, "tools") {
			head = `{"tools":[{"type":"function","function":{"name":"f"}}],"messages":[`
		}
		messages := someMessage(rt)
		var before []Hash
		for range rapid.IntRange(1, 6).Draw(rt, "turns") {
			body := head + messages + `]}`
			r := scanned(t, body)
			var c TextChain
			c.Reset(5, []byte("model"), []byte("salt"))
			chain := c.Append([]byte(body), r)
			if want := twin(5, []byte("model"), []byte("salt"), []byte(body), r); !slices.Equal(chain, want) {
				rt.Fatalf("%s: got %x, want %x", body, chain, want)
			}
			if len(chain) < len(before) || !slices.Equal(chain[:len(before)], before) {
				rt.Fatalf("%s does not extend the turn before", body)
			}
			before = slices.Clone(chain)
			messages += "," + someMessage(rt)
		}
	})
}

func TestStructuresDiffer(t *testing.T) {
	long := strings.Repeat("x", 600)
	seen := map[Hash]string{}
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"` + long + `"}]}`,
		`{"messages":[{"role":"system","content":"` + long + `"}]}`,
		`{"messages":[{"role":"user","content":"xx"},{"role":"user","content":"` + long + `"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"text","text":"` + long + `"}]}]}`,
		`{"messages":[{"role":"user","content":[{"type":"image","text":"` + long + `"}]}]}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":["` + long + `"]}]}`,
		`{"messages":[{"role":"assistant","content":"","tool_calls":["y` + long + `"]}]}`,
		`{"system":"` + long + `","messages":[]}`,
		`{"tools":["` + long + `"]}`,
		`{"prompt":"` + long + `"}`,
		`{"prompt":["x","` + long + `"]}`,
		`{"prompt":[` + strings.Repeat("0,", 127) + `0]}`,
	} {
		chain := chainOf(t, body)
		if len(chain) < 2 {
			t.Fatalf("%s: %d units", body, len(chain))
		}
		if other, ok := seen[chain[1]]; ok {
			t.Errorf("%s\nis taken for\n%s", body, other)
		}
		seen[chain[1]] = body
	}
}

func TestStartsDiffer(t *testing.T) {
	body := `{"prompt":"` + strings.Repeat("x", 600) + `"}`
	r := scanned(t, body)
	seen := map[Hash]bool{}
	var c TextChain
	for _, s := range []struct {
		seed        uint64
		model, salt string
	}{{1, "ab", ""}, {2, "ab", ""}, {1, "a", "b"}, {1, "", "ab"}, {1, "ab", "c"}, {1, "abc", ""}} {
		c.Reset(s.seed, []byte(s.model), []byte(s.salt))
		seen[c.Append([]byte(body), r)[0]] = true
	}
	if len(seen) != 6 {
		t.Errorf("6 starts make %d chains", len(seen))
	}
}

func TestChainBound(t *testing.T) {
	for extra, want := range map[int]int{-5000: 350, -2000: 351, 0: 352, 5000: 352} {
		text := strings.Repeat("x", 1<<20+extra)
		body := `{"messages":[{"role":"user","content":"` + text + `"},{"role":"user","content":"more"}]}`
		if n := len(chainOf(t, body)); n != want {
			t.Errorf("%d units, want %d", n, want)
		}
	}
	ids := `{"prompt":[` + strings.Repeat("7,", 1<<18+200) + `7]}`
	if n := len(chainOf(t, ids)); n != 352 {
		t.Errorf("%d units of token ids", n)
	}
}

func TestTokenUnits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	res := &scan.Result{}
	for range 1000 {
		res.Tokens = append(res.Tokens, r.Uint32N(150_000))
	}
	var c TextChain
	c.Reset(1, nil, nil)
	if chain, want := c.Append(nil, res), twin(1, nil, nil, nil, res); len(chain) != 1000/TextUnitTokens || !slices.Equal(chain, want) {
		t.Errorf("got %x, want %x", chain, want)
	}
}

func TestChainAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	body := longChat(65536, true)
	r, raw, model := scanned(t, body), []byte(body), []byte("m")
	var c TextChain
	if n := testing.AllocsPerRun(100, func() {
		c.Reset(1, model, nil)
		c.Append(raw, r)
	}); n != 0 {
		t.Errorf("a chain allocates %v times", n)
	}
}

func benchmarkChain(b *testing.B, body string) {
	r, raw, model := scanned(b, body), []byte(body), []byte("m")
	var c TextChain
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		c.Reset(1, model, nil)
		c.Append(raw, r)
	}
}

func BenchmarkTextChainChat64K(b *testing.B) { benchmarkChain(b, longChat(65536, true)) }

func BenchmarkTextChainPrompt64K(b *testing.B) {
	benchmarkChain(b, `{"prompt":"`+strings.Repeat("x", 65536)+`"}`)
}

// BenchmarkUnit compares ways to hash a unit and its parent, at each length of a
// unit: as it is done, seeded by the parent, and xxhash64 seeded by it.
func BenchmarkUnit(b *testing.B) {
	for _, weight := range []int{1, mediumWeight, longWeight} {
		unit := make([]byte, weight*TextUnitBytes)
		measure := func(name string, next func(parent uint64) uint64) {
			b.Run(fmt.Sprintf("%s/%d", name, len(unit)), func(b *testing.B) {
				b.SetBytes(int64(len(unit)))
				h := uint64(1)
				for b.Loop() {
					h = next(h)
				}
			})
		}
		var c TextChain
		c.Reset(1, nil, nil)
		measure("chain", func(uint64) uint64 { c.hashes = c.hashes[:0]; c.emit(unit); return c.parent })
		measure("seeded", func(parent uint64) uint64 { return xxh3.HashSeed(unit, parent) })
		var d xxhash.Digest
		measure("xxhash64", func(parent uint64) uint64 { d.ResetWithSeed(parent); d.Write(unit); return d.Sum64() })
	}
}

// TestWeights: what is said of n units is the sum of what is said of each.
func TestWeights(t *testing.T) {
	weight := 0
	for n := range MaxTextUnits + 1 {
		if TextWeight(n) != weight || TextTokens(n) != weight*TextUnitTokens {
			t.Fatalf("%d units weigh %d and hold %d tokens, want %d and %d", n, TextWeight(n), TextTokens(n), weight, weight*TextUnitTokens)
		}
		if TextUnits(TextTokens(n)) != n || n < MaxTextUnits && TextUnits(TextTokens(n)+1) != n+1 {
			t.Fatalf("%d tokens are %d units, want %d; one more %d", TextTokens(n), TextUnits(TextTokens(n)), n, TextUnits(TextTokens(n)+1))
		}
		weight += TextUnitWeight(n)
	}
	if TextUnits(-1) != 0 {
		t.Error("units of no tokens")
	}
}
