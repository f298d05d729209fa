package controlplane_test

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ct "warmpath/controlplane/controltest"
	"warmpath/dataplane"
	"warmpath/dataplane/policy"
)

// reporting is a router that takes reports of two engines, whose prompts it
// knows by their tokens.
type reporting struct {
	*ct.Router
	t       *testing.T
	tokens  *ct.Tokens
	engines map[string]*ct.Engine
	file    string // of the nodes' tokens
}

func tokenOf(worker string) string { return "token-of-worker-" + worker }

// startReporting starts it. more is further text of the configuration, perNode
// that of each node.
func startReporting(t *testing.T, more, perNode string) *reporting {
	t.Helper()
	r := &reporting{t: t, tokens: ct.TinyTokens(t, "..", "m"), engines: map[string]*ct.Engine{}, file: filepath.Join(t.TempDir(), "tokens")}
	r.writeTokens("a: " + tokenOf("a") + "\nb: " + tokenOf("b") + "\n")
	for _, name := range []string{"a", "b"} {
		r.engines[name] = ct.StartExact(t, "m", r.tokens)
	}
	r.Router = ct.Start(t, r.config(more, perNode))
	for name := range r.engines {
		r.WaitServed(t, name, "m")
		ct.Eventually(t, name+" is proved", func() bool { n := r.Node(name); return n.Exact&1 != 0 && n.BlockTokens == 16 })
	}
	return r
}

func (r *reporting) config(more, perNode string) string {
	text := more + fmt.Sprintf("models: [{name: m, tokenizer: %q}]\nreports: {listen: \"127.0.0.1:0\", tokens_file: %q}\nnodes:\n", r.tokens.Path, r.file)
	for _, name := range []string{"a", "b"} {
		text += fmt.Sprintf("  - {name: %s, url: %q%s}\n", name, r.engines[name].URL(), perNode)
	}
	return text
}

func (r *reporting) writeTokens(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

type object = map[string]any

// answer is what a report was answered.
type answer struct {
	Seq        uint64
	Want       string
	WantBlocks []string `json:"want_blocks"`
	Error      struct{ Code, Message string }
}

// post sends one report as anyone's program would.
func (r *reporting) post(worker, token, route string, body object) (status int, a answer) {
	r.t.Helper()
	body["worker_id"] = worker
	data, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://"+r.Control.ReportsAddr()+"/internal/"+route, bytes.NewReader(data))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(said, &a)
	}
	if err != nil {
		r.t.Fatalf("%s %s: %v in %q", route, resp.Status, err, said)
	}
	return resp.StatusCode, a
}

// report is a post of the worker itself that is taken.
func (r *reporting) report(worker, route string, body object) answer {
	r.t.Helper()
	status, a := r.post(worker, tokenOf(worker), route, body)
	if status != http.StatusOK {
		r.t.Fatalf("%s of %s: %d %+v", route, worker, status, a.Error)
	}
	return a
}

func (r *reporting) waitTrust(worker, trust string) {
	r.t.Helper()
	ct.Eventually(r.t, worker+" is "+trust, func() bool { return r.Node(worker).Trust[0].String() == trust })
}

// explain says where a chat would go.
func (r *reporting) explain(body []byte) dataplane.Record {
	r.t.Helper()
	rec, err := r.Data.Explain("/v1/chat/completions", body)
	if err != nil {
		r.t.Fatal(err)
	}
	return rec
}

// question is a chat that begins as all others do, in its first 64 tokens and
// beyond, and ends in its own way.
func question(text string) []byte {
	body, _ := json.Marshal(object{"model": "m", "max_tokens": 4, "prefix_len": 64, "messages": []object{
		{"role": "system", "content": strings.Repeat("Answer from the handbook, and from nothing else. ", 12)},
		{"role": "user", "content": text},
	}})
	return body
}

// blocks are a chat's full blocks of 16 tokens, as an engine reports them.
func (r *reporting) blocks(body []byte) (blocks []object, hashes []string) {
	r.t.Helper()
	ids := r.tokens.Chat(body)
	parent := any(nil)
	sum := sha256.New()
	for ; len(ids) >= 16; ids = ids[16:] {
		_, _ = fmt.Fprint(sum, ids[:16])
		hash := hex.EncodeToString(sum.Sum(nil)[:8])
		blocks = append(blocks, object{"hash": hash, "parent": parent, "token_ids": ids[:16], "block_tokens": 16})
		hashes, parent = append(hashes, hash), hash
	}
	if len(blocks) < 5 {
		r.t.Fatalf("a chat of %d blocks", len(blocks))
	}
	return blocks, hashes
}

// TestFourStates: cold start, stickiness, eviction and recovery with a reporter
// that says nothing but which prefixes its engine has lost, or still has.
func TestFourStates(t *testing.T) {
	r := startReporting(t, "policy: {name: sticky_least_loaded}\n", ", hash_scheme: sha256_prefix, prefix_tokens: 64")
	n := 0
	same := "" // asked again and again, if set
	ask := func(state, want string, sticks bool) (node string) {
		t.Helper()
		n++
		id := fmt.Sprint("question-", n)
		status, node := r.Ask(t, question(cmp.Or(same, id)), id)
		rec, ok := r.Data.RecordOf(id)
		if status != http.StatusOK || !ok || want != "" && node != want || (rec.Reason == policy.ReasonPrefix) != sticks || rec.Exactness != dataplane.ExactTokens {
			t.Errorf("%s: question %d went to %q (status %d, %v, %v %s), want %q", state, n, node, status, rec.Reason, rec.Exactness, rec.Inexact, want)
		}
		return node
	}
	// The name of a prefix, as its reporter makes it: Python's str(tuple(ids[:64])).
	text := strings.ReplaceAll(fmt.Sprint(r.tokens.Chat(question("any"))[:64]), " ", ", ")
	sum := sha256.Sum256([]byte("(" + strings.Trim(text, "[]") + ")"))
	name := hex.EncodeToString(sum[:])
	busy := func(node string, more int64) { r.Node(node).Load.Requests.Add(more) }

	// Cold start: what nobody has asked for means nothing, and is no error.
	r.report("a", "sync", object{"active_hashes": []string{name}})
	home := ask("cold start", "", false)
	other := map[string]string{"a": "b", "b": "a"}[home]
	// Stickiness: although the other node is idle.
	busy(home, 10)
	for range 5 {
		ask("stickiness", home, true)
	}
	// Eviction: free to go where there is least to do, and to stick there.
	r.report(home, "eviction", object{"evicted_hashes": []string{name}})
	ask("eviction", other, false)
	busy(other, 100)
	for range 3 {
		ask("after eviction", other, true)
	}
	// Recovery: the first node has it again, and is chosen for its lower load; then
	// it is the only one.
	r.report(home, "sync", object{"active_hashes": []string{name}})
	ask("recovery", home, true)
	busy(home, 1000)
	ask("two holders", other, true)
	r.report(other, "sync", object{"active_hashes": []string{}})
	ask("one holder again", home, true)
	// The very same prompt is lost, and sent there again at once: it is held again.
	same = "Once more."
	for range 6 { // each event loop has sent it
		ask("before it is lost", home, true)
	}
	r.report(home, "eviction", object{"evicted_hashes": []string{name}})
	busy(home, -2000)
	ask("lost", home, false)
	busy(home, 2000)
	ask("sent again", home, true)
	if got := r.Node(home).Trust[0].String(); got != "none" {
		t.Errorf("trust in what such a node reports is %q; there is no stream", got)
	}
}

// TestReportedPrefix: a prompt goes where it was reported, an eviction moves it,
// and whoever has missed a report is told all again.
func TestReportedPrefix(t *testing.T) {
	r := startReporting(t, "", "")
	body := question("Where is it held?")
	blocks, hashes := r.blocks(body)
	held := func(where string) {
		t.Helper()
		rec := r.explain(body)
		if where == "" {
			if rec.Reason == policy.ReasonPrefix {
				t.Errorf("goes to %s by its prefix", rec.Node)
			}
			return
		}
		if rec.Node != where || rec.Reason != policy.ReasonPrefix || rec.Candidates[0].MatchedTokens < 16*(len(blocks)-1) {
			t.Errorf("goes to %s (%v, %d tokens matched), want %s", rec.Node, rec.Reason, rec.Candidates[0].MatchedTokens, where)
		}
	}
	held("")
	for _, worker := range []string{"b", "a"} { // one by one, so that both are tried
		other := map[string]string{"a": "b", "b": "a"}[worker]
		r.report(worker, "stored", object{"epoch": "first", "seq": 1, "blocks": blocks})
		held(worker)
		r.waitTrust(worker, "live")
		r.report(worker, "eviction", object{"epoch": "first", "seq": 2, "evicted_hashes": hashes})
		held("")
		r.report(other, "stored", object{"epoch": "of-" + worker, "seq": 1, "blocks": blocks})
		held(other)
		r.report(other, "stored", object{"epoch": "then-" + worker, "seq": 1, "blocks": []object{}}) // its engine has restarted
		held("")
	}
	// A report is missing: the stream is not believed in full until all was told.
	if a := r.report("a", "stored", object{"epoch": "last", "seq": 1, "blocks": []object{}}); a.Want != "" {
		t.Errorf("an empty cache: %+v", a)
	}
	if a := r.report("a", "stored", object{"epoch": "last", "seq": 3, "blocks": []object{}}); a.Want != "full" {
		t.Errorf("a gap: %+v", a)
	}
	r.waitTrust("a", "gapped")
	a := r.report("a", "sync", object{"epoch": "last", "seq": 4, "full": true, "active_hashes": hashes})
	if !slices.Equal(a.WantBlocks, hashes) {
		t.Errorf("a full sync of unknown blocks: %+v", a)
	}
	r.report("a", "sync", object{"epoch": "last", "seq": 5, "blocks": blocks})
	r.waitTrust("a", "live")
	held("a")
}
