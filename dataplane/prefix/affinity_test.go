package prefix

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"warmpath/dataplane/scan"
)

func scanned(t testing.TB, body string) *scan.Result {
	t.Helper()
	s := &scan.Scanner{}
	if done, err := s.Scan([]byte(body), true); err != nil || !done {
		t.Fatalf("scan %q: done %v: %v", body, done, err)
	}
	return s.Result()
}

// TestGolden compares keys with those of an independent implementation. They
// are part of the contract between replicas: there is no -rewrite.
func TestGolden(t *testing.T) {
	file, err := os.ReadFile("testdata/keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	var scratch Scratch
	for block := range strings.SplitSeq(string(file), "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		name := lines[0]
		for len(lines) > 0 && strings.HasPrefix(lines[0], "#") {
			lines = lines[1:]
		}
		if len(lines) == 0 || lines[0] == "" {
			continue
		}
		model, body := strings.TrimPrefix(lines[0], "keys "), lines[1]
		r := scanned(t, body)
		got := fmt.Sprintf("affinity %016x\nsystem %016x",
			AffinityKey(&scratch, []byte(model), []byte(body), r), SystemKey(&scratch, []byte(model), []byte(body), r))
		if want := strings.Join(lines[3:], "\n"); got != want {
			t.Errorf("%s\ngot\n%s\nwant\n%s", name, got, want)
		}
		cases++
	}
	if cases < 20 {
		t.Errorf("%d golden values, want at least 20", cases)
	}
}

// FuzzUnescape compares the decoder with encoding/json.
func FuzzUnescape(f *testing.F) {
	for _, s := range []string{`a`, `\n\u00e9`, `\ud83d\ude00`, `\ud83d`, `\ude00\ud83d\ud83d\ude00`, `é\/\\`, `\ud83d\n`, `\uD83D\u0041`} {
		f.Add(s, 3)
	}
	f.Fuzz(func(t *testing.T, raw string, limit int) {
		var want string
		if json.Unmarshal([]byte(`"`+raw+`"`), &want) != nil || strings.ToValidUTF8(raw, "") != raw {
			t.Skip()
		}
		got, rest, _ := unescape(make([]byte, 0, 4*len(raw)+4), []byte(raw), len(raw)+1)
		if string(got) != want || len(rest) != 0 {
			t.Fatalf("%q: got %q, want %q", raw, got, want)
		}
		if limit < 0 {
			return
		}
		runes := []rune(want)
		got, _, left := unescape(make([]byte, 0, 4*len(raw)+4), []byte(raw), limit)
		if n := min(limit, len(runes)); string(got) != string(runes[:n]) || left != limit-n {
			t.Fatalf("%q cut at %d: got %q, %d left", raw, limit, got, left)
		}
		if plainIs([]byte(raw), "system") != (want == "system") {
			t.Fatalf("%q: plainIs is wrong", raw)
		}
	})
}

// What scan would have refused must not break the decoder.
func TestUnescapeOfBrokenText(t *testing.T) {
	for _, raw := range []string{`\`, `\u`, `\u12`, `\uzzzz`, `\ud83d\`, `\ud83d\u`, `\ud83d\uzz11`, "\xff\xfe"} {
		_, rest, _ := unescape(make([]byte, 0, 64), []byte(raw), 64)
		if len(rest) != 0 {
			t.Errorf("%q: %q left", raw, rest)
		}
	}
}

func TestSmallKeys(t *testing.T) {
	if SessionKey(nil) != 0 || SessionKey([]byte("a")) == 0 || SessionKey([]byte("a")) == SessionKey([]byte("b")) {
		t.Error("SessionKey")
	}
	if Seed("a") == Seed("b") || Seed("") != 0xEF46DB3751D8E999 {
		t.Error("Seed")
	}
	if nonZero(0) == 0 || nonZero(7) != 7 {
		t.Error("nonZero")
	}
}

// longChat is a conversation of about so many bytes, with escapes or without.
func longChat(bytes int, escaped bool) string {
	text := strings.Repeat("the quick brown fox jumps over a lazy dog; ", 24)
	if escaped {
		text = strings.ReplaceAll(text, "; ", `;\n`)
	}
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[{"role":"system","content":"` + text + `"}`)
	for i := 0; b.Len() < bytes; i++ {
		fmt.Fprintf(&b, `,{"role":"user","content":"%d %s"},{"role":"assistant","content":"%s"}`, i, text, text)
	}
	b.WriteString(`]}`)
	return b.String()
}

func TestKeyAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	body := longChat(8192, true)
	r, raw, model := scanned(t, body), []byte(body), []byte("m")
	var scratch Scratch
	if n := testing.AllocsPerRun(100, func() {
		AffinityKey(&scratch, model, raw, r)
		SystemKey(&scratch, model, raw, r)
		SessionKey(raw[:9])
	}); n != 0 {
		t.Errorf("keys allocate %v times", n)
	}
}

func BenchmarkAffinityKey(b *testing.B) {
	body := longChat(65536, true)
	r, raw, model := scanned(b, body), []byte(body), []byte("m")
	var scratch Scratch
	b.ReportAllocs()
	for b.Loop() {
		AffinityKey(&scratch, model, raw, r)
	}
}

func BenchmarkSystemKey64K(b *testing.B) {
	body := `{"messages":[{"role":"system","content":"` + strings.Repeat(`all work and no play\n`, 3000) + `"}]}`
	r, raw, model := scanned(b, body), []byte(body), []byte("m")
	var scratch Scratch
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		SystemKey(&scratch, model, raw, r)
	}
}

// TestKeysOfOpenTexts: a key does not depend on how much of a text has come.
func TestKeysOfOpenTexts(t *testing.T) {
	const system = `{"model":"m","messages":[{"role":"system","content":"be brief"}`
	user := `,{"role":"user","content":"` + strings.Repeat("é and so on ", 2000)
	var whole scan.Scanner
	body := []byte(system + user + `"}]}`)
	if _, err := whole.Scan(body, true); err != nil {
		t.Fatal(err)
	}
	var s Scratch
	want := AffinityKey(&s, []byte("m"), body, whole.Result())
	alone := []byte(system + `]}`)
	var first scan.Scanner
	if _, err := first.Scan(alone, true); err != nil {
		t.Fatal(err)
	}
	early := AffinityKey(&s, []byte("m"), alone, first.Result())
	for _, cut := range []int{len(system) + 30, len(system) + 600, len(system) + 5000, len(system) + 7000, len(body) - 10} {
		var part scan.Scanner
		if _, err := part.Scan(body[:cut], false); err != nil {
			t.Fatal(err)
		}
		got := AffinityKey(&s, []byte("m"), body[:cut], part.Result())
		if cut-len(system) < keyTextEscaped && got != early || cut-len(system) > keyTextEscaped+50 && got != want {
			t.Errorf("with %d bytes of its user's message the key is %x; whole it is %x, without it %x", cut-len(system), got, want, early)
		}
	}
	open := []byte(`{"messages":[{"role":"system","content":"be br`)
	var part scan.Scanner
	if _, err := part.Scan(open, false); err != nil {
		t.Fatal(err)
	}
	if key := SystemKey(&s, nil, open, part.Result()); key != 0 {
		t.Errorf("half of a system message has the key %x", key)
	}
}
