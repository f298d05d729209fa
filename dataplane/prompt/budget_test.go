package prompt

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/scan"
)

const turnNs = 200_000 // of a loop of the data plane

// long are bodies that are too much for one turn.
func long() map[string][]byte {
	r := rand.New(rand.NewPCG(9, 10))
	var calls []map[string]any
	for i := range 2000 {
		calls = append(calls, map[string]any{"id": fmt.Sprint("call", i), "type": "function", "function": map[string]any{"name": "f", "arguments": `{"a": [1, 2, {"b": "c"}]}`}})
	}
	tools, _ := json.Marshal(map[string]any{"model": "m", "messages": []any{map[string]any{"role": "assistant", "content": "c", "tool_calls": calls}}})
	return map[string][]byte{
		"text":          body([]message{{"user", randomText(r, 1<<20)}}, false),
		"escaped text":  body([]message{{"user", randomText(r, 1<<20)}}, true),
		"one letter":    body([]message{{"user", strings.Repeat("a", 1<<20)}}, false),
		"line feeds":    body([]message{{"user", strings.Repeat("\n", 1<<20)}}, false),
		"many messages": body(conversation(r, 10_000, 100), false),
		"many calls":    tools,
	}
}

// TestTurnIsShort: what a loop does for a prompt in one turn stays within the
// estimate that a turn has, whatever the prompt is.
func TestTurnIsShort(t *testing.T) {
	m := testModel(t, loadTokenizer(t, tiny), 0)
	for name, b := range long() {
		t.Run(name, func(t *testing.T) {
			var w Walk
			w.Start(m, 7)
			f := found(t, b)
			spent := 0
			if LeastCost(b, f) <= turnNs {
				v := w.Begin(FormChat, b, f, turnNs)
				spent = v.CostNs
				for v.Level != chat.LevelText && spent < turnNs && !w.Complete() {
					spent += w.Next(turnNs-spent, 64)
				}
			}
			if spent > turnNs*3/2 {
				t.Errorf("a turn costs %d ns", spent)
			}
			if w.Complete() {
				t.Error("the prompt was no work at all: the test tests nothing")
			}
		})
	}
}

// TestBeginAgain: what was given up for want of time is done when there is
// time, and gives what it would have given at once.
func TestBeginAgain(t *testing.T) {
	m := testModel(t, loadTokenizer(t, tiny), 16<<20)
	b := body(conversation(rand.New(rand.NewPCG(11, 12)), 300, 100), false)
	f := found(t, b)
	var at, again Walk
	walkAll(t, &at, m, b, WholeBudget, 64)
	again.Start(m, 7)
	tries := 0
	for budget := 1; ; budget *= 2 {
		v := again.Begin(FormChat, b, f, budget)
		if !v.Unfinished {
			if v.Level != chat.LevelExact || v.Reason != "" {
				t.Fatalf("%s %s", v.Level, v.Reason)
			}
			break
		}
		tries++
		if v.Level != chat.LevelText || v.CostNs > budget+costRenderNs+2*costStepNs {
			t.Fatalf("with %d ns: %+v", budget, v)
		}
	}
	again.Next(WholeBudget, 1<<30)
	if tries < 10 || !slices.Equal(at.Units(), again.Units()) || at.Count() != again.Count() {
		t.Errorf("after %d tries: %d tokens, want %d", tries, again.Count(), at.Count())
	}
}

// TestEnd: a walk lets go of what it borrowed, and says how much memory it keeps.
func TestEnd(t *testing.T) {
	m := testModel(t, loadTokenizer(t, tiny), 16<<20)
	var w Walk
	walkAll(t, &w, m, body([]message{{"user", "short"}}, false), WholeBudget, 64)
	if kept := w.End(); kept < w.Machine.Held() || kept > 1<<20 || w.Machine.Held() == 0 {
		t.Errorf("a short prompt: %d bytes", kept)
	}
	for _, s := range w.Rope.Segments[:cap(w.Rope.Segments)] {
		if s.Bytes != nil {
			t.Fatal("the rope holds on to the body")
		}
	}
	walkAll(t, &w, m, long()["many messages"], WholeBudget, 64)
	if kept := w.End(); kept < 4<<20 {
		t.Errorf("a long prompt: %d bytes", kept)
	}
}

// TestLeastCost counts ids, messages, text and all else.
func TestLeastCost(t *testing.T) {
	ids := []byte(`{"prompt":[` + strings.Repeat("1,", 1<<20) + `1]}`)
	var s scan.Scanner
	if _, err := s.Scan(ids, true); err != nil {
		t.Fatal(err)
	}
	if LeastCost(ids, s.Result()) <= turnNs {
		t.Error("a million ids are no work")
	}
	for name, b := range map[string][]byte{
		"short":          body([]message{{"user", "short"}}, false),
		"a long message": body([]message{{"user", strings.Repeat("words ", 50_000)}}, false),
	} {
		if n := LeastCost(b, found(t, b)); n > turnNs {
			t.Errorf("%s: %d ns is left to others", name, n)
		}
	}
}
