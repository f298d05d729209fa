//go:build hf && cgo

package hf_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	daulet "github.com/daulet/tokenizers"

	"warmpath/dataplane/tokenize/hf"
)

// modelFile is the tokenizer.json of a model that make models fetches.
func modelFile(name string) string {
	return filepath.Join("..", "..", "..", ".cache", "models", name, "tokenizer.json")
}

// loadFile skips the test when the model was not fetched.
func loadFile(t testing.TB, name string) *hf.Tokenizer {
	t.Helper()
	oracle, err := hf.LoadFile(modelFile(name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("no model %s: make models fetches it", name)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = oracle.Close() })
	return oracle
}

func encode(t testing.TB, oracle *hf.Tokenizer, text string, addSpecial bool) []uint32 {
	t.Helper()
	ids, err := oracle.Encode(nil, []byte(text), addSpecial)
	if err != nil {
		t.Fatalf("%.60q: %v", text, err)
	}
	return ids
}

// TestSameAsDaulet compares the entry points of shim.rs with those of the
// module it is built into, where the module can be right.
func TestSameAsDaulet(t *testing.T) {
	oracle := loadFile(t, "llama3_1")
	theirs, err := daulet.FromFile(modelFile("llama3_1"))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	for _, text := range []string{
		"one", " two  three\n\nfour", "五 <|eot_id|>六", strings.Repeat("I'll go. ", 4000), "e\u0301 \u00a0 \u0085", "👩‍👩‍👧",
	} {
		for _, special := range []bool{false, true} {
			want, _, err := theirs.EncodeErr(text, special)
			if err != nil {
				t.Fatal(err)
			}
			if got := encode(t, oracle, text, special); !slices.Equal(got, want) {
				t.Errorf("%.40q, special %v: ids %v, daulet's %v", text, special, got, want)
			}
			decoded, err := oracle.Decode(want)
			if want := theirs.Decode(want, false); err != nil || decoded != want {
				t.Errorf("%.40q, special %v: decoded to %.60q, %v; daulet's %.60q", text, special, decoded, err, want)
			}
		}
	}
}

// TestNulIsText holds against what the module itself does: it stops at a NUL.
func TestNulIsText(t *testing.T) {
	oracle := loadFile(t, "llama3_1")
	text := "before\x00after"
	ids := encode(t, oracle, text, false)
	if back, err := oracle.Decode(ids); err != nil || back != text {
		t.Errorf("ids %v decode to %q, %v", ids, back, err)
	}
}

func TestEncodeAppends(t *testing.T) {
	oracle := loadFile(t, "llama3_1")
	empty, err := oracle.Encode([]uint32{7}, nil, false)
	if err != nil || !slices.Equal(empty, []uint32{7}) {
		t.Errorf("no text: %v, %v", empty, err)
	}
	bos, err := oracle.Encode(nil, nil, true)
	if err != nil || !slices.Equal(bos, []uint32{128000}) {
		t.Errorf("no text, with special tokens: %v, %v", bos, err)
	}
	ids, err := oracle.Encode([]uint32{7}, []byte("a"), false)
	if err != nil || !slices.Equal(ids, []uint32{7, 64}) {
		t.Errorf("a behind 7: %v, %v", ids, err)
	}
	if text, err := oracle.Decode(nil); text != "" || err != nil {
		t.Errorf("no ids decode to %q, %v", text, err)
	}
}

func TestErrors(t *testing.T) {
	oracle := loadFile(t, "llama3_1")
	if ids, err := oracle.Encode([]uint32{7}, []byte("a\xff"), false); !errors.Is(err, hf.ErrNotUTF8) || !slices.Equal(ids, []uint32{7}) {
		t.Errorf("invalid UTF-8: %v, %v", ids, err)
	}
	for _, broken := range []string{"", "{", `{"model":{"type":"None"}}`} {
		if _, err := hf.Load([]byte(broken)); err == nil || !strings.HasPrefix(err.Error(), "hf: cannot load tokenizer.json: ") {
			t.Errorf("%q loads with %v", broken, err)
		}
	}
	if _, err := hf.LoadFile("nowhere.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
	// A normaliser that drops everything, so that a text has no ids.
	lossy, err := hf.Load([]byte(`{"normalizer":{"type":"Replace","pattern":{"Regex":"."},"content":""},
		"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lossy.Encode(nil, []byte("aaa"), false); !errors.Is(err, hf.ErrNoIDs) {
		t.Errorf("a text without ids: %v", err)
	}
	for range 2 {
		if err := lossy.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := lossy.Encode(nil, []byte("a"), false); !errors.Is(err, hf.ErrClosed) {
		t.Errorf("encode after close: %v", err)
	}
	if _, err := lossy.Decode([]uint32{0}); !errors.Is(err, hf.ErrClosed) {
		t.Errorf("decode after close: %v", err)
	}
}

// TestConcurrentUse has goroutines encode and decode while one closes: each
// call gives the whole answer or ErrClosed.
func TestConcurrentUse(t *testing.T) {
	oracle := loadFile(t, "llama3_1")
	texts := []string{"the quick brown fox", strings.Repeat("zwei drei ", 300), "ein\x00s", "二三四"}
	var want [][]uint32
	for _, text := range texts {
		want = append(want, encode(t, oracle, text, false))
	}
	var running sync.WaitGroup
	for worker := range 4 {
		running.Go(func() {
			for i := range 200 {
				n := (worker + i) % len(texts)
				ids, err := oracle.Encode(nil, []byte(texts[n]), false)
				if errors.Is(err, hf.ErrClosed) {
					return
				}
				if err != nil || !slices.Equal(ids, want[n]) {
					t.Errorf("text %d: %v, %v", n, ids, err)
				}
				if back, err := oracle.Decode(ids); !errors.Is(err, hf.ErrClosed) && (err != nil || back != texts[n]) {
					t.Errorf("text %d comes back as %q, %v", n, back, err)
				}
				if worker == 0 && i == 150 {
					_ = oracle.Close()
				}
			}
		})
	}
	running.Wait()
}
