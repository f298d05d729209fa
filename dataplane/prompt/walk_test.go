package prompt

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/prefix"
	"warmpath/dataplane/tokenize"
)

// loadTokenizer reads a tokenizer.json.
func loadTokenizer(t testing.TB, path string) *tokenize.Tokenizer {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("no %s: make models fetches it", filepath.Base(filepath.Dir(path)))
	}
	tok, err := tokenize.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// tiny is the tokenizer of ours that is committed.
const tiny = "../tokenize/testdata/tiny.json"

// chatML is a template in the manner of Qwen's.
const chatML = `{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}`

func testModel(t testing.TB, tok *tokenize.Tokenizer, memoBytes int64) *Model {
	t.Helper()
	template, err := chat.Compile(chatML, chat.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dialect, err := chat.NewDialect(chat.DialectOptions{Template: template})
	if err != nil {
		t.Fatal(err)
	}
	return NewModel(Options{Name: "m", Tokenizer: tok, Fingerprint: []byte("f"), Dialect: dialect, UnitTokens: 16, Memo: NewMemo(memoBytes)})
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// body is a chat request. ascii escapes everything that is not ASCII.
func body(messages []message, ascii bool) []byte {
	b, err := json.Marshal(map[string]any{"model": "m", "messages": messages})
	if err != nil {
		panic(err)
	}
	if !ascii {
		return b
	}
	var out strings.Builder
	for _, r := range string(b) {
		switch {
		case r < 0x80:
			out.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&out, "\\u%04x", r)
		default:
			fmt.Fprintf(&out, "\\u%04x\\u%04x", 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		}
	}
	return []byte(out.String())
}

var pieces = []string{
	"the ", "quick", " brown\n", "\n\n", "fox's", " 12345", "漢字。", "，你好", "é", "e\u0301", "🙂‍↔️", "\t", "  ", "{\"a\": 1}", "<|im_end|>",
	"<|im_", "start|>", "\\n", "//", "\"q\"", "I'LL", " don't", "word ", "Über", "\u00a0", "\x7f", "x", "\r\n", "=", "[1, 2]",
}

func randomText(r *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(pieces[r.IntN(len(pieces))])
		if r.IntN(3) == 0 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func conversation(r *rand.Rand, turns, bytes int) []message {
	m := []message{{"system", randomText(r, r.IntN(bytes+1))}}
	for i := range turns {
		m = append(m, message{[]string{"user", "assistant"}[i%2], randomText(r, r.IntN(bytes+1))})
	}
	return m
}

// text renders a conversation the obvious way.
func text(messages []message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString("<|im_start|>" + m.Role + "\n" + m.Content + "<|im_end|>\n")
	}
	return b.String() + "<|im_start|>assistant\n"
}

// unitsOf makes units of ids the obvious way.
func unitsOf(root prefix.Hash, ids []uint32) (units []prefix.Hash) {
	for ; len(ids) >= 16; ids = ids[16:] {
		root = prefix.NextUnit(root, ids[:16], nil)
		units = append(units, root)
	}
	return units
}

// walkAll walks a body to its end in steps of a budget.
func walkAll(t testing.TB, w *Walk, m *Model, body []byte, budgetNs, someUnits int) {
	t.Helper()
	w.Start(m, 7)
	if v := w.Begin(FormChat, body, found(t, body), WholeBudget); v.Level != chat.LevelExact {
		t.Fatalf("the prompt is %s: %s", v.Level, v.Reason)
	}
	for budget := budgetNs; !w.Complete(); budget += budgetNs + budget/4 { // a chunk waits for a budget that it fits
		w.Next(budget, someUnits)
	}
}

func tokenizers(t *testing.T, test func(t *testing.T, tok *tokenize.Tokenizer)) {
	for _, path := range []string{
		tiny, "../../.cache/models/qwen3/tokenizer.json", "../../.cache/models/llama3_2/tokenizer.json", "../../.cache/models/gemma3/tokenizer.json",
		"../../.cache/models/llama2/tokenizer.json", "../../.cache/models/deepseek_v3/tokenizer.json",
	} {
		if raceEnabled && path != tiny {
			continue // real vocabularies take the detector minutes to load, and share no memory that tiny does not
		}
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) { test(t, loadTokenizer(t, path)) })
	}
}

// TestWalkIsWhole: what a walk makes, chunk by chunk, from memos and without,
// is what the whole text gives.
func TestWalkIsWhole(t *testing.T) {
	tokenizers(t, func(t *testing.T, tok *tokenize.Tokenizer) {
		m, r := testModel(t, tok, 4<<20), rand.New(rand.NewPCG(1, 2))
		var w Walk
		var s tokenize.Scratch
		for i := range 56 {
			messages := conversation(r, 1+r.IntN(6), 20<<(i%7))
			for turn := 2; turn <= len(messages); turn += 2 { // a conversation that goes on
				ids := tok.Append(nil, []byte(text(messages[:turn])), &s)
				walkAll(t, &w, m, body(messages[:turn], i%3 == 0), 1+r.IntN(100_000), 1+r.IntN(100))
				if w.Count() != len(ids) || w.Estimate() != len(ids) {
					t.Fatalf("conversation %d, turn %d: %d tokens counted, want %d", i, turn, w.Count(), len(ids))
				}
				if want := unitsOf(7, ids); !slices.Equal(w.Units(), want) {
					t.Fatalf("conversation %d, turn %d: units differ from those of the whole text", i, turn)
				}
				if got := w.AppendIDs(nil); !slices.Equal(got, ids) {
					t.Fatalf("conversation %d, turn %d: ids differ from those of the whole text", i, turn)
				}
			}
		}
	})
}

// TestWalkRemembers: the next turn of a conversation looks at no chunk of the
// turn before, and another conversation with the same documents at none of
// theirs.
func TestWalkRemembers(t *testing.T) {
	tok := loadTokenizer(t, tiny)
	m, r := testModel(t, tok, 16<<20), rand.New(rand.NewPCG(3, 4))
	document := randomText(r, 40_000)
	messages := []message{{"system", document}, {"user", "first question"}}
	var w Walk
	walkAll(t, &w, m, body(messages, false), 1<<40, 1<<30)
	cold := w.misses
	if cold < 40 {
		t.Fatalf("%d chunks are new in a document of 40,000 bytes", cold)
	}
	messages = append(messages, message{"assistant", "an answer"}, message{"user", "second question"})
	walkAll(t, &w, m, body(messages, false), 1<<40, 1<<30)
	if !slices.Contains([]int64{0, 1, 2, 3}, w.misses) || w.hits > 3 {
		t.Errorf("the next turn looked up %d chunks and made %d", w.hits, w.misses)
	}
	walkAll(t, &w, m, body([]message{{"user", "other"}, {"user", document}}, false), 1<<40, 1<<30)
	if w.misses > 4 || w.hits < cold-4 {
		t.Errorf("the document elsewhere: %d chunks were made, %d remembered, of %d", w.misses, w.hits, cold)
	}
}

// TestWalkOfOtherRoots: a memo's prefixes belong to one chain.
func TestWalkOfOtherRoots(t *testing.T) {
	m := testModel(t, loadTokenizer(t, tiny), 16<<20)
	b := body([]message{{"system", strings.Repeat("one two three. ", 100)}, {"user", "q"}}, false)
	var w Walk
	walkAll(t, &w, m, b, 1<<40, 1<<30)
	first := slices.Clone(w.Units())
	w.Start(m, 8)
	w.Begin(FormChat, b, found(t, b), WholeBudget)
	w.Next(1<<40, 1<<30)
	if len(first) == 0 || len(w.Units()) != len(first) || w.Units()[0] == first[0] {
		t.Error("chains with other roots share units")
	}
}

// TestWalkBudget: a step costs no more than it may by more than one chunk, and
// asks for no more units than wanted by more than one chunk's.
func TestWalkBudget(t *testing.T) {
	m, r := testModel(t, loadTokenizer(t, tiny), 16<<20), rand.New(rand.NewPCG(5, 6))
	b := body([]message{{"user", randomText(r, 100_000)}}, false)
	var w Walk
	w.Start(m, 7)
	w.Begin(FormChat, b, found(t, b), WholeBudget)
	const chunkNs = 2 * contentChunkBytes * costColdByteNs
	for !w.Complete() {
		before := len(w.Units())
		if spent := w.Next(50_000, 64); spent > 50_000+chunkNs {
			t.Fatalf("a step of 50,000 ns cost %d", spent)
		}
		if made := len(w.Units()) - before; made > 64+2*contentChunkBytes/16 {
			t.Fatalf("a step of 64 units made %d", made)
		}
	}
}

func TestWarmWalkAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	m, r := testModel(t, loadTokenizer(t, tiny), 64<<20), rand.New(rand.NewPCG(7, 8))
	b := body(conversation(r, 20, 4000), false)
	var w Walk
	f := found(t, b)
	walk := func() {
		w.Start(m, 7)
		w.Begin(FormChat, b, f, WholeBudget)
		for !w.Complete() {
			w.Next(1<<40, 64)
		}
	}
	walk()
	if n := testing.AllocsPerRun(50, walk); n != 0 {
		t.Errorf("%v allocations for a prompt that was seen before, want 0", n)
	}
}
