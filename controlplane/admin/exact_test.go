package admin_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"warmpath/controlplane/admin"
	ct "warmpath/controlplane/controltest"
)

// exactly is a surface before two nodes that serve m, whose tokens are known:
// those of "good" are as the router makes them, "mute" does not say; it has two
// ranks. The model "plain" has no tokenizer.
func exactly(t *testing.T) (*surface, *ct.Tokens) {
	t.Helper()
	tokens := ct.TinyTokens(t, "../..", "m")
	good, mute, plain := ct.StartExact(t, "m", tokens), ct.StartEngine(t, "m"), ct.StartEngine(t, "plain")
	s := serve(t, "", fmt.Sprintf("models: [{name: m, tokenizer: %q, default: true}]\nnodes: [{name: good, url: %q}, {name: plain, url: %q}, "+
		"{name: mute, url: %q, kv_events: {endpoint: \"tcp://127.0.0.1:1\", ranks: 2}}]\n", tokens.Path, good.URL(), plain.URL(), mute.URL()))
	for node, model := range map[string]string{"good": "m", "mute": "m", "plain": "plain"} {
		s.WaitServed(t, node, model)
	}
	ct.Eventually(t, "prompts are proved", func() bool { return s.Node("good").Exact&1 != 0 })
	return s, tokens
}

// The prompt of a request is shown as its engine sees it, without sending it.
func TestTokens(t *testing.T) {
	s, tokens := exactly(t)
	chat := string(ct.Chat("m", 40))
	ids := tokens.Chat([]byte(chat))
	for _, c := range []struct {
		name, query, body string
		want              admin.TokensView
		reason            string // a part of it
	}{
		{
			name: "a chat", body: chat,
			want: admin.TokensView{Text: "<|im_start|>user\n" + strings.Repeat("warm path ", 5) + "<|im_end|>\n<|im_start|>assistant\n", IDs: ids, Exactness: "exact", Class: "plain"},
		},
		{name: "the default model", body: strings.Replace(chat, `"model":"m",`, "", 1), want: admin.TokensView{
			Text: "<|im_start|>user\n" + strings.Repeat("warm path ", 5) + "<|im_end|>\n<|im_start|>assistant\n", IDs: ids, Exactness: "exact", Class: "plain",
		}},
		{
			name: "a completion of ids", query: "?path=/v1/completions", body: `{"model":"m","prompt":[5,6,7]}`,
			want: admin.TokensView{IDs: []uint32{5, 6, 7}, Exactness: "exact", Class: "plain"},
		},
		{
			name: "a class that nobody has proved", body: strings.Replace(chat, `"model"`, `"tools":[{"type":"function","function":{"name":"f"}}],"model"`, 1),
			want: admin.TokensView{Text: "<|im_start|>user\n" + strings.Repeat("warm path ", 5) + "<|im_end|>\n<|im_start|>assistant\n", IDs: ids, Exactness: "exact", Class: "tools"},
		},
		{name: "a kind that cannot be asked", query: "?path=/v1/messages", body: chat, want: admin.TokensView{IDs: []uint32{}, Exactness: "text", Class: "plain"}, reason: "cannot be asked"},
		{name: "a model without", body: string(ct.Chat("plain", 40)), want: admin.TokensView{IDs: []uint32{}, Exactness: "text", Class: "plain"}, reason: `"plain" has no tokenizer`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got admin.TokensView
			status, text := s.call("POST", "/api/tokens"+c.query, c.body)
			s.decode(c.name, status, 200, text, &got)
			if got.Text != c.want.Text || !slices.Equal(got.IDs, c.want.IDs) || got.Exactness != c.want.Exactness || got.Class != c.want.Class ||
				(c.reason == "") != (got.Reason == "") || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("%s", text)
			}
			if !strings.Contains(text, `"ids":[`) {
				t.Errorf("no list of ids: %s", text)
			}
		})
	}
	s.refused("POST", "/api/tokens", `{"model":"no","messages":[]}`, 404, "model_not_found", "no")
	s.refused("POST", "/api/tokens", `{"model":"m","messages":`, 400, "invalid_json", "")
	s.refused("POST", "/api/tokens?path=/v1/models", chat, 404, "not_found", "")
	s.refused("POST", "/api/tokens?path=/nowhere", chat, 404, "not_found", "")
	s.refused("GET", "/api/tokens", "", 404, "not_found", "/api/tokens")
}

// A node shows how far its events can be relied on, by rank, and of which
// requests it is proved to make the router's tokens.
func TestNodesExactly(t *testing.T) {
	s, _ := exactly(t)
	views := map[string]admin.NodeView{}
	var nodes []admin.NodeView
	s.get("/api/nodes", &nodes)
	for _, n := range nodes {
		views[n.Name] = n
	}
	for name, want := range map[string]struct {
		trust []string
		exact bool
	}{"good": {[]string{"none"}, true}, "mute": {[]string{"cold", "cold"}, false}, "plain": {[]string{"none"}, false}} {
		n := views[name]
		if !slices.Equal(n.Trust, want.trust) || slices.Contains(n.Exact, "plain") != want.exact || n.Exact == nil {
			t.Errorf("%s: trust %q, exact %q; want %q, plain requests %v", name, n.Trust, n.Exact, want.trust, want.exact)
		}
	}
	if _, text := s.call("GET", "/api/nodes", ""); !strings.Contains(text, `"exact":[]`) {
		t.Errorf("no class is not an empty list: %s", text)
	}
}

// A decision by tokens counts them, and says why where it is not one.
func TestDecisionsExactly(t *testing.T) {
	s, tokens := exactly(t)
	body := ct.Chat("m", 8000)
	explain := func(body []byte) (d admin.DecisionView) {
		t.Helper()
		status, text := s.call("POST", "/api/explain", string(body))
		s.decode("/api/explain", status, 200, text, &d)
		return d
	}
	if d := explain(body); d.Exactness != "exact" || d.Inexact != "" || d.PromptTokens != len(tokens.Chat(body)) {
		t.Errorf("%+v", d)
	}
	if d := explain(ct.Chat("plain", 8000)); d.Exactness != "text" || d.Inexact != "" {
		t.Errorf("a model without a tokenizer: %+v", d)
	}
	options := strings.Replace(string(body), `"model"`, `"chat_template":"x","model"`, 1)
	if d := explain([]byte(options)); d.Exactness != "text" || d.Inexact == "" {
		t.Errorf("a request with a template of its own: %+v", d)
	}
	if status, _ := s.call("POST", "/api/nodes/mute/drain", ""); status != 202 { // only "good" is left
		t.Error(status)
	}
	s.WaitState(t, "mute", "draining")
	s.Ask(t, body, "first")
	slot := s.Node("good").Slot
	ct.Eventually(t, "the prompt is in the index", func() bool { return s.Index.SlotUnits(slot) > 0 })
	d := explain(body)
	if matched := d.Candidates[0].MatchedTokens; matched != (len(tokens.Chat(body))-1)/16*16 || d.Reason == "prefix" && strings.Contains(d.Why, "about") {
		t.Errorf("%+v", d)
	}
	var v admin.IndexView
	if s.get("/api/index", &v); v.Nodes["good"] != s.Index.SlotUnits(slot) || v.Nodes["mute"] != 0 {
		t.Errorf("%+v", v)
	}
}
