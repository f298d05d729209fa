package dataplane_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prompt"
)

// TestLongAnswersHoldNoPrompt: once an answer has begun to go out, what is left
// of its prompt is the length and, within a bound, the body; both are enough to
// judge the engine's count at the end.
func TestLongAnswersHoldNoPrompt(t *testing.T) {
	const streams, bytes = 400, 100 << 10
	tokens, end := 0, make(chan struct{})
	r := start(t, setup{node: proved}, startNode(t, "a", func(c *conn) {
		for {
			if _, more := c.request(); !more {
				return
			}
			c.send(streamHead, chunk("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n"))
			<-end
			c.send(chunk(fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":1}}\n\n", tokens)), "0\r\n\r\n")
		}
	}))
	m := r.exactly()
	body := strings.Replace(prompt2("same", bytes), `"model"`, `"stream":true,"model"`, 1)
	answers := make([]io.Reader, streams)
	for i := range answers {
		c := r.dial()
		c.send(post(fmt.Sprint("s", i), body))
		answers[i] = c.stream(t)
		if _, err := io.ReadFull(answers[i], make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the prompts to be let go", func() bool { return r.d.Totals().Identifying == 0 })
	if held := r.d.Totals().EvidenceBytes; held < 16<<20 || held > 32<<20 {
		t.Errorf("%d bytes of bodies are held", held)
	}
	tokens = count(t, m, body)
	close(end)
	for _, a := range answers {
		if rest, err := io.ReadAll(a); err != nil || !strings.Contains(string(rest), "prompt_tokens") {
			t.Fatalf("%q: %v", rest, err)
		}
	}
	if totals := r.d.Totals(); totals.UsageChecked != streams || totals.UsageWrong != 0 || totals.EvidenceBytes != 0 {
		t.Errorf("%d counts compared, %d wrong, %d bytes left", totals.UsageChecked, totals.UsageWrong, totals.EvidenceBytes)
	}
	r.settled()
}

// words are text of so many bytes that no other seed makes, so that it takes a
// worker to identify it.
func words(seed, bytes int) string {
	var b strings.Builder
	for i := seed; b.Len() < bytes; i++ {
		fmt.Fprintf(&b, "x%dy%dz ", i*7919, i*104729)
	}
	return b.String()
}

// TestLateFirstEvents: a stream has begun long before its first event, and a
// worker counts its prompt meanwhile. What the event says of the prompt is still
// known then, and nothing is left afterwards.
func TestLateFirstEvents(t *testing.T) {
	for name, c := range map[string]struct {
		trust  fleet.Trust
		hold   bool
		before string
	}{
		"reports, head not held":         {fleet.TrustLive, false, ""},
		"reports, comments until let go": {fleet.TrustLive, true, strings.Repeat(": keep-alive\n\n", 12000)},
		"reports nothing":                {fleet.TrustNone, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			gate := make(chan struct{})
			r := start(t, setup{
				set: func(s *dataplane.Settings) { s.HoldHead = c.hold },
				node: func(slot int, n *fleet.Node) {
					proved(slot, n)
					n.Ranks, n.Trust = 1, []fleet.Trust{c.trust}
				},
			}, startNode(t, "a", func(n *conn) {
				for {
					if _, more := n.request(); !more {
						return
					}
					n.send(streamHead)
					if c.before != "" {
						n.send(chunk(c.before))
					}
					<-gate
					n.send(chunk(event("a")), "0\r\n\r\n")
				}
			}))
			r.exactly()
			client := r.dial()
			client.send(post("s", strings.Replace(prompt2("same", 1<<10, words(1, 900<<10)), `"model"`, `"stream":true,"model"`, 1)))
			answer := client.stream(t) // it has begun
			eventually(t, "the worker to be done", func() bool { return r.d.Totals().WithWorkers == 0 })
			close(gate)
			if _, err := io.ReadAll(answer); err != nil {
				t.Fatal(err)
			}
			r.settled()
			if totals := r.d.Totals(); totals.EvidenceBytes != 0 || totals.Identifying != 0 {
				t.Errorf("left: %d bytes of bodies, %d prompts", totals.EvidenceBytes, totals.Identifying)
			}
		})
	}
}

// TestIdentitiesAreFreedOnce: what a worker brings back may turn out to be not
// exact, and be dropped at once.
func TestIdentitiesAreFreedOnce(t *testing.T) {
	r := start(t, setup{node: proved}, startNode(t, "a", answers(ok("{}"))))
	r.exactly()
	tools := strings.Replace(prompt2("long", 600<<10), `"model"`, `"tools":[{"type":"function","function":{"name":"f"}}],"model"`, 1)
	c := r.dial()
	for i := range 3 {
		c.send(post(fmt.Sprint("r", i), tools))
		c.answer("POST")
		if rec := r.record(fmt.Sprint("r", i)); rec.Exactness != dataplane.ExactText {
			t.Fatalf("%v", rec.Exactness)
		}
	}
	r.settled()
	if n := r.d.Totals().Identifying; n != 0 {
		t.Errorf("%d prompts are held", n)
	}
}

// TestLentBodies: a body that a worker still reads is not written over by the
// next request, though its own went by text and was answered. The race detector
// sees it if it is.
func TestLentBodies(t *testing.T) {
	r := start(t, setup{set: func(s *dataplane.Settings) { s.IdentifyNs = 1 }, node: proved}, startNode(t, "a", answers(ok("{}"))))
	r.exactly()
	for i := range 12 {
		one, other := r.dial(), r.dial()
		one.send(post(fmt.Sprint("r", i), prompt2("a", 100, words(i*1_000_000, 500<<10))))
		one.answer("POST")
		other.send(post(fmt.Sprint("q", i), strings.Repeat(" ", 400<<10)+prompt2("b", 1000)))
		other.answer("POST")
		_, _ = one.Close(), other.Close()
	}
	r.settled()
}

// TestABodyIsAWorkersWhileItReads: a body that is not held for another try may
// still be with a worker; its memory is nobody else's until then.
func TestABodyIsAWorkersWhileItReads(t *testing.T) {
	var m *prompt.Model
	first, second := make(chan struct{}), make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		for {
			s, more := c.request()
			if !more {
				return
			}
			if s.Header.Get("X-Request-Id") == "one" {
				close(first)
				<-second
			} else {
				close(second)
			}
			c.send(usage(count(t, m, s.body)))
		}
	})
	r := start(t, setup{node: proved, set: func(s *dataplane.Settings) { s.RetryBodyBytes = 100_000 }}, a)
	m = r.exactly()
	one, two := r.dial(), r.dial()
	var cold strings.Builder // words that no memo knows
	for i := uint64(1); cold.Len() < 700_000; i++ {
		fmt.Fprintf(&cold, "%x ", i*0x9E3779B97F4A7C15>>20)
	}
	user := func(text string) string { return `{"model":"m","messages":[{"role":"user","content":"` + text + `"}]}` }
	two.alive()
	one.send(post("one", user(cold.String())))
	<-first
	two.send(post("two", user(strings.Repeat("zz qq ", 115_000))))
	one.answer("POST")
	two.answer("POST")
	r.record("one")
	if n := r.d.Totals().UsageWrong; n != 0 {
		t.Errorf("%d prompts were counted wrongly", n)
	}
	r.settled()
}
