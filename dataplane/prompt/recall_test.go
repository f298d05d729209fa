package prompt

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"warmpath/dataplane/chat"
)

// recallOrWalk takes a request from memory or walks it, and says which.
func recallOrWalk(t testing.TB, w *Walk, m *Model, body []byte) (v Verdict, recalled bool) {
	t.Helper()
	w.Start(m, 7)
	if v, recalled = w.Recall(FormChat, body, found(t, body)); !recalled {
		v = w.Begin(FormChat, body, found(t, body), WholeBudget)
		for !w.Complete() {
			w.Next(WholeBudget, 1<<30)
		}
	}
	return v, recalled
}

// TestRecall: what is remembered of a request is what walking it gives.
func TestRecall(t *testing.T) {
	m, r := testModel(t, loadTokenizer(t, tiny), 16<<20), rand.New(rand.NewPCG(9, 10))
	var walked, again, plain Walk
	for i := range 50 {
		b := body(conversation(r, 1+r.IntN(6), 30<<(i%7)), i%3 == 0)
		want, first := recallOrWalk(t, &walked, m, b)
		got, second := recallOrWalk(t, &again, m, bytes.Clone(b))
		if first || !second {
			t.Fatalf("request %d is recalled: %v, then %v", i, first, second)
		}
		if got.Level != chat.LevelExact || got.Level != want.Level || got.Class != want.Class || got.Reason != want.Reason {
			t.Fatalf("request %d is %+v, walking says %+v", i, got, want)
		}
		if !again.Complete() || again.Count() != walked.Count() || again.Estimate() != walked.Count() || !slices.Equal(again.Units(), walked.Units()) {
			t.Fatalf("request %d: %d tokens and %d units are recalled of %d and %d", i, again.Count(), len(again.Units()), walked.Count(), len(walked.Units()))
		}
		walkAll(t, &plain, m, b, WholeBudget, 1<<30) // by way of the memo of prefixes, which lies in the same memory
		if !slices.Equal(plain.Units(), walked.Units()) {
			t.Fatalf("request %d: its units have changed", i)
		}
		if !again.Recalled() || walked.Recalled() {
			t.Fatalf("request %d: both say that they were recalled, or none", i)
		}
	}
}

// TestRecallOfOthers: another byte, root, form or model, or a template that
// writes the time, makes it another request.
func TestRecallOfOthers(t *testing.T) {
	tok := loadTokenizer(t, tiny)
	m := testModel(t, tok, 16<<20)
	b := body([]message{{"user", "the same words again and again, long enough for some units of sixteen tokens each"}}, false)
	var w Walk
	if _, recalled := recallOrWalk(t, &w, m, b); recalled {
		t.Fatal("what never came is recalled")
	}
	other := bytes.Replace(b, []byte("same"), []byte("Same"), 1)
	for name, recall := range map[string]func() bool{
		"another byte": func() bool { w.Start(m, 7); _, ok := w.Recall(FormChat, other, found(t, other)); return ok },
		"another root": func() bool { w.Start(m, 8); _, ok := w.Recall(FormChat, b, found(t, b)); return ok },
		"another form": func() bool { w.Start(m, 7); _, ok := w.Recall(FormCompletion, b, found(t, b)); return ok },
		"another model": func() bool {
			o := m.Options
			w.Start(NewModel(o), 7)
			_, ok := w.Recall(FormChat, b, found(t, b))
			return ok
		},
		"a clock": func() bool {
			o := m.Options
			o.Clock = func() chat.Clock { return chat.Clock{} }
			timed := NewModel(o)
			recallOrWalk(t, &w, timed, b)
			w.Start(timed, 7)
			_, ok := w.Recall(FormChat, b, found(t, b))
			return ok
		},
	} {
		if recall() {
			t.Errorf("with %s it is recalled", name)
		}
	}
	w.Start(m, 7)
	if _, ok := w.Recall(FormChat, b, found(t, b)); !ok {
		t.Error("the request itself is not recalled any more")
	}
}

// TestRecallOnlyWhole: what was not walked to its end, or cannot be, is not
// remembered.
func TestRecallOnlyWhole(t *testing.T) {
	m, r := testModel(t, loadTokenizer(t, tiny), 16<<20), rand.New(rand.NewPCG(11, 12))
	b := body([]message{{"user", randomText(r, 50_000)}}, false)
	var w Walk
	for range 2 {
		w.Start(m, 7)
		if _, ok := w.Recall(FormChat, b, found(t, b)); ok {
			t.Fatal("half of a prompt is recalled as the whole")
		}
		w.Begin(FormChat, b, found(t, b), WholeBudget)
		if w.Next(WholeBudget, 64); w.Complete() {
			t.Fatal("the whole prompt was walked in one step")
		}
	}
}

func TestRecallOfMedia(t *testing.T) {
	m := testModel(t, loadTokenizer(t, tiny), 16<<20)
	b := []byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"what is it?"},{"type":"image_url","image_url":{"url":"data:,"}}]}]}`)
	var w Walk
	for range 2 {
		w.Start(m, 7)
		if _, ok := w.Recall(FormChat, b, found(t, b)); ok {
			t.Fatal("a prompt with an image is recalled as the whole")
		}
		w.Begin(FormChat, b, found(t, b), WholeBudget)
		for !w.Complete() && len(w.cutter.chunks) > 0 {
			w.Next(WholeBudget, 1<<30)
		}
	}
	if n := m.Memo.Stats()[2]; n.Misses != 0 || n.Stored != 0 {
		t.Errorf("it is looked up or kept: %+v", n)
	}
}

func TestRecallAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	m, r := testModel(t, loadTokenizer(t, tiny), 64<<20), rand.New(rand.NewPCG(13, 14))
	b := body(conversation(r, 20, 4000), false)
	var w Walk
	recallOrWalk(t, &w, m, b)
	f := found(t, b)
	if n := testing.AllocsPerRun(50, func() {
		w.Start(m, 7)
		if _, ok := w.Recall(FormChat, b, f); !ok {
			t.Error("it is not recalled")
		}
	}); n != 0 {
		t.Errorf("%v allocations to recall a request, want 0", n)
	}
}
