package dataplane_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"warmpath/dataplane"
	"warmpath/dataplane/chat"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/prompt"
	"warmpath/dataplane/tokenize"
)

// chatML is a template in the manner of Qwen's.
const chatML = `{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}{{ '<|im_start|>assistant\n' }}`

// exactly gives a router's model m the tiny tokenizer and a template.
func (r *router) exactly() *prompt.Model { return r.exactlyWith(chatML, nil) }

// exactlyWith is exactly with another template, and options that change may
// change.
func (r *router) exactlyWith(source string, change func(*prompt.Options)) *prompt.Model {
	r.t.Helper()
	data, err := os.ReadFile("tokenize/testdata/tiny.json")
	if err != nil {
		r.t.Fatal(err)
	}
	tok, err := tokenize.Load(data)
	if err != nil {
		r.t.Fatal(err)
	}
	template, err := chat.Compile(source, chat.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	dialect, err := chat.NewDialect(chat.DialectOptions{Template: template})
	if err != nil {
		r.t.Fatal(err)
	}
	o := prompt.Options{Name: "m", Tokenizer: tok, Fingerprint: data, Dialect: dialect, UnitTokens: 16, Memo: prompt.NewMemo(64 << 20)}
	if change != nil {
		change(&o)
	}
	m := prompt.NewModel(o)
	r.d.ApplyExact(dataplane.NewExactModels([]*prompt.Model{m}))
	return m
}

// proved are nodes whose plain prompts are known, without round trips.
func proved(_ int, n *fleet.Node) {
	n.RoundTripSeconds, n.Exact, n.BlockTokens = fleet.Gauge{}, 1, 16
}

// count is how many tokens a body's prompt has.
func count(t testing.TB, m *prompt.Model, body string) int {
	t.Helper()
	ids, v, err := prompt.IDs(m, prompt.FormChat, []byte(body))
	if err != nil || v.Level != chat.LevelExact {
		t.Fatalf("%v %v", v, err)
	}
	return len(ids)
}

// usage answers like an engine that has counted so many tokens.
func usage(tokens int) string {
	return ok(fmt.Sprintf(`{"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d}}`, tokens, tokens+1))
}

// counting answers each request with the model's own count, plus off.
func counting(t testing.TB, m **prompt.Model, off int) func(*conn) {
	return func(c *conn) {
		for {
			r, more := c.request()
			if !more {
				return
			}
			c.send(usage(count(t, *m, r.body) + off))
		}
	}
}

// TestExactTurns: prompts are known by their tokens; what a node holds is
// counted in whole blocks, and never the last token.
func TestExactTurns(t *testing.T) {
	var m *prompt.Model
	r := start(t, setup{node: proved}, startNode(t, "a", counting(t, &m, 0)), startNode(t, "b", counting(t, &m, 0)))
	m = r.exactly()
	c := r.dial()
	ask := func(id, body string) dataplane.Record {
		c.send(post(id, body))
		if got := c.answer("POST"); got.StatusCode != 200 {
			t.Fatalf("got %d %s", got.StatusCode, got.body)
		}
		return r.record(id)
	}
	first, second := prompt1("same"), prompt1("same", "an answer")
	one := ask("one", first)
	tokens := count(t, m, first)
	if one.Exactness != dataplane.ExactTokens || one.PromptTokens != tokens || one.EnginePrompt != int64(tokens) || one.Inexact != "" {
		t.Errorf("the first: %+v, want %d tokens exactly", one, tokens)
	}
	eventually(t, "the index to know", func() bool {
		rec, err := r.d.Explain("/v1/chat/completions", []byte(first))
		return err == nil && rec.Reason == policy.ReasonPrefix
	})
	again := ask("again", first)
	if want := (tokens - 1) / 16 * 16; again.Node != one.Node || again.Candidates[0].MatchedTokens != want {
		t.Errorf("the same prompt again: %d matched at %s, want %d at %s", again.Candidates[0].MatchedTokens, again.Node, want, one.Node)
	}
	two := ask("two", second)
	// All that the first prompt had, but for the generation prompt at its end.
	if got := two.Candidates[0].MatchedTokens; two.Node != one.Node || got < tokens-40 || got > tokens || got%16 != 0 {
		t.Errorf("the next turn: %d matched at %s; the first had %d at %s", got, two.Node, tokens, one.Node)
	}
	if totals := r.d.Totals(); totals.UsageChecked != 3 || totals.UsageWrong != 0 {
		t.Errorf("%d counts compared, %d wrong; want 3 and 0", totals.UsageChecked, totals.UsageWrong)
	}
	r.settled()
}

// TestAppliedWhileIdentified: what a loop sent on before a worker had looked for a
// prompt counts for it, also if the indexer takes the note between the look and
// the decision.
func TestAppliedWhileIdentified(t *testing.T) {
	r := start(t, setup{node: proved, deaf: true}, startNode(t, "a", answers(ok("{}"))), startNode(t, "b", answers(ok("{}"))))
	r.exactlyWith(chatML, func(o *prompt.Options) { o.Slow = true })
	c := r.dial()
	c.send(post("one", prompt1("same")))
	if got := c.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("got %d %s", got.StatusCode, got.body)
	}
	one := r.record("one")
	rings, _ := r.d.Notes()
	writer, matched := r.index.Writer(), [2]int{}
	for i, meanwhile := range []func(){
		func() {}, // the note is pending
		func() {
			for took := true; took; {
				_, took = rings[0].Take(nil, func(n dataplane.Note) { apply(writer, n) })
			}
		},
	} {
		rec, err := r.d.ExplainBeside("/v1/chat/completions", []byte(prompt1("same", fmt.Sprint("answer ", i))), meanwhile)
		if err != nil || rec.Exactness != dataplane.ExactTokens || rec.Node != one.Node || rec.Reason != policy.ReasonPrefix {
			t.Fatalf("%d: to %s for %v, identified by %v: %v; want %s by its tokens", i, rec.Node, rec.Reason, rec.Exactness, err, one.Node)
		}
		matched[i] = rec.Candidates[0].MatchedTokens
	}
	if !r.d.Told() || matched[0] == 0 || matched[1] != matched[0] {
		t.Errorf("%d tokens match while the note is pending, %d when it is applied meanwhile", matched[0], matched[1])
	}
	r.settled()
}

// prompt1 is a conversation with several turns.
func prompt1(kind string, more ...string) string { return prompt2(kind, 8000, more...) }

func prompt2(kind string, bytes int, more ...string) string {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	messages := []message{{"user", strings.Repeat(kind+" words. ", bytes/(len(kind)+8))}}
	for _, text := range more {
		messages = append(messages, message{"assistant", text}, message{"user", "go on"})
	}
	b, _ := json.Marshal(map[string]any{"model": "m", "messages": messages})
	return string(b)
}

// TestWrongCountDemotes: one answer that has counted otherwise takes the class
// from all requests after it, and the control plane hears of the prompt.
func TestWrongCountDemotes(t *testing.T) {
	var m *prompt.Model
	r := start(t, setup{node: proved}, startNode(t, "a", counting(t, &m, 1)))
	m = r.exactly()
	c := r.dial()
	for i, want := range []dataplane.Exactness{dataplane.ExactTokens, dataplane.ExactText} {
		id := fmt.Sprint("r", i)
		c.send(post(id, prompt1("same")))
		c.answer("POST")
		if rec := r.record(id); rec.Exactness != want {
			t.Errorf("request %d was identified by %v (%s), want %v", i, rec.Exactness, rec.Inexact, want)
		}
	}
	d := <-r.d.Disagreements()
	if d.Model != "m" || d.Node != "a" || d.Class != prompt.ClassPlain || d.Engine != d.Ours+1 || string(d.Body) != prompt1("same") {
		t.Errorf("disagreement %+v", d)
	}
	m.Promote(prompt.ClassPlain)
	c.send(post("after", prompt1("same")))
	c.answer("POST")
	if rec := r.record("after"); rec.Exactness != dataplane.ExactTokens {
		t.Errorf("after the class was proved again: %v", rec.Exactness)
	}
	r.settled()
}

// TestUnproved: a class that is proved at no node is routed by text, and says
// why; one that is proved at one node counts there alone.
func TestUnproved(t *testing.T) {
	nodes := []*node{startNode(t, "a", answers(ok("{}"))), startNode(t, "b", answers(ok("{}")))}
	r := start(t, setup{node: func(slot int, n *fleet.Node) {
		proved(slot, n)
		n.Exact = uint32(slot)
	}}, nodes...)
	r.exactly()
	body := prompt1("same")
	rec, err := r.d.Explain("/v1/chat/completions", []byte(body))
	if err != nil || rec.Exactness != dataplane.ExactTokens {
		t.Fatalf("%v %v", rec.Exactness, err)
	}
	tools := strings.Replace(body, `"model"`, `"tools":[{"type":"function","function":{"name":"f"}}],"model"`, 1)
	if rec, _ = r.d.Explain("/v1/chat/completions", []byte(tools)); rec.Exactness != dataplane.ExactText || !strings.Contains(rec.Inexact, "no node is proved") {
		t.Errorf("with tools: %v, %q", rec.Exactness, rec.Inexact)
	}
	if rec, _ = r.d.Explain("/v1/embeddings", []byte(`{"model":"m","input":"text that is long enough"}`)); rec.Exactness > dataplane.ExactText {
		t.Errorf("another route: %v", rec.Exactness)
	}
}

// TestWrongCountOfUnproved: a node at which a class is not proved may count as it
// likes; only what is proved can be wrong.
func TestWrongCountOfUnproved(t *testing.T) {
	var m *prompt.Model
	nodes := []*node{startNode(t, "a", counting(t, &m, 1)), startNode(t, "b", counting(t, &m, 0))}
	r := start(t, setup{node: func(slot int, n *fleet.Node) {
		proved(slot, n)
		n.Exact = uint32(slot)
	}}, nodes...)
	m = r.exactly()
	c := r.dial()
	seen := map[string]bool{}
	for i := range 20 {
		id := fmt.Sprint("r", i)
		c.send(post(id, prompt1(fmt.Sprint("kind", i))))
		c.answer("POST")
		rec := r.record(id)
		if rec.Exactness != dataplane.ExactTokens {
			t.Fatalf("request %d was identified by %v (%s)", i, rec.Exactness, rec.Inexact)
		}
		seen[rec.Node] = true
	}
	if totals := r.d.Totals(); len(seen) != 2 || totals.UsageWrong != 0 || totals.UsageChecked == 0 {
		t.Errorf("nodes %v were asked, %d counts compared, %d wrong", seen, totals.UsageChecked, totals.UsageWrong)
	}
	r.settled()
}

// TestLongPromptsLeaveTheLoop: what is too long for a turn goes to a worker and
// comes back, whole; clients that leave meanwhile take nothing with them.
func TestLongPromptsLeaveTheLoop(t *testing.T) {
	var m *prompt.Model
	r := start(t, setup{node: proved}, startNode(t, "a", counting(t, &m, 0)))
	m = r.exactly()
	body := prompt2("long", 1<<20)
	for i := range 4 {
		gone := r.dial()
		gone.send(post(fmt.Sprint("gone", i), prompt2(fmt.Sprint("other", i), 1<<20)))
		_ = gone.Close()
	}
	c := r.dial()
	c.send(post("long", body))
	if got := c.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("got %d %s", got.StatusCode, got.body)
	}
	if rec := r.record("long"); rec.Exactness != dataplane.ExactTokens {
		t.Errorf("a long prompt: %v %s", rec.Exactness, rec.Inexact)
	}
	eventually(t, "its length to be checked", func() bool { return r.d.Totals().UsageChecked >= 1 })
	if wrong := r.d.Totals().UsageWrong; wrong != 0 {
		t.Errorf("%d counts were wrong", wrong)
	}
	c.send(post("again", body))
	c.answer("POST")
	if rec := r.record("again"); rec.PromptTokens != count(t, m, body) {
		t.Errorf("again: %d tokens, want %d", rec.PromptTokens, count(t, m, body))
	}
	r.settled()
}

// TestRanks: the rank that holds a prompt is asked for it, in the engine's own
// way.
func TestRanks(t *testing.T) {
	for engine, field := range map[string]string{"vllm": "header", "sglang": "body"} {
		t.Run(engine, func(t *testing.T) {
			n := startNode(t, "a", answers(ok("{}")))
			r := start(t, setup{node: func(slot int, n *fleet.Node) {
				proved(slot, n)
				n.Engine, n.Ranks, n.Trust = engine, 2, make([]fleet.Trust, 2)
			}}, n)
			r.exactly()
			r.nodes = append(r.nodes, nil)
			r.publish(r.nodes...)
			r.nodes = r.nodes[:1]
			c := r.dial()
			seen := map[string]bool{}
			for i := range 8 {
				for range 2 {
					c.send(post(fmt.Sprint("r", i), prompt1(fmt.Sprint("kind", i))))
					if got := c.answer("POST"); got.StatusCode != 200 {
						t.Fatalf("got %d %s", got.StatusCode, got.body)
					}
				}
				requests := n.requests()
				var ranks [2]string
				for k, s := range requests[len(requests)-2:] {
					var whole struct {
						Rank json.Number `json:"routed_dp_rank"`
					}
					if err := json.Unmarshal([]byte(s.body), &whole); err != nil {
						t.Fatalf("the body is no JSON: %v", err)
					}
					ranks[k] = s.Header.Get("X-Data-Parallel-Rank")
					if field == "body" {
						ranks[k] = whole.Rank.String()
					}
				}
				if ranks[0] == "" || ranks[0] != ranks[1] {
					t.Errorf("prompt %d was sent to rank %q, then to %q", i, ranks[0], ranks[1])
				}
				seen[ranks[0]] = true
			}
			if len(seen) != 2 {
				t.Errorf("ranks %v were asked, want both", seen)
			}
			r.settled()
		})
	}
}

// TestExactPathAllocs: from head to forward, with prompts that were seen
// before, nothing is allocated.
func TestExactPathAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, size := range []int{4 << 10, 64 << 10} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			r := start(t, setup{node: proved, alone: true}, startNode(t, "a", quietNode(strings.Replace(quietAnswer, `"prompt_tokens":1000,`, `"prompt_tokenz":1000,`, 1))))
			r.exactly()
			a := newAsker(r, size, false)
			wholePathAllocs(t, r, a)
			if rec := r.d.Records(1); rec[0].Exactness != dataplane.ExactTokens {
				t.Errorf("the prompt was identified by %v: %s", rec[0].Exactness, rec[0].Inexact)
			}
			r.settled()
		})
	}
}

// TestFirstOfSeveralPrompts: the count of an engine for several prompts
// contradicts nothing, and what is not known of their length is estimated.
func TestFirstOfSeveralPrompts(t *testing.T) {
	var m *prompt.Model
	r := start(t, setup{node: proved}, startNode(t, "a", answers(usage(300))))
	m = r.exactly()
	c := r.dial()
	texts := `{"model":"m","prompt":["` + strings.Repeat("one ", 100) + `","` + strings.Repeat("two ", 100) + `"]}`
	ids := `{"model":"m","prompt":[[` + strings.Repeat("7,", 99) + `7]]}`
	for id, want := range map[string]struct {
		body  string
		exact dataplane.Exactness
		least int
	}{"texts": {texts, dataplane.ExactPrefix, 200}, "ids": {ids, dataplane.ExactText, 100}} {
		c.send(strings.Replace(post(id, want.body), "/v1/chat/completions", "/v1/completions", 1))
		if got := c.answer("POST"); got.StatusCode != 200 {
			t.Fatalf("got %d %s", got.StatusCode, got.body)
		}
		if rec := r.record(id); rec.Exactness != want.exact || rec.PromptTokens < want.least || rec.Inexact == "" {
			t.Errorf("%s: %s with %d tokens (%s)", id, rec.Exactness, rec.PromptTokens, rec.Inexact)
		}
	}
	if m.Demoted(prompt.ClassPlain) || r.d.Totals().UsageChecked != 0 {
		t.Error("a count of several prompts was taken for one's")
	}
}
