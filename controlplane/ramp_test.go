package controlplane_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	ct "warmpath/controlplane/controltest"
	"warmpath/controlplane/state"
)

// asked is a prompt of about a thousand tokens that begins like no other topic's; each
// turn of it goes on from the last.
func asked(topic string, turn int, stream bool) []byte {
	text := fmt.Sprintf(`{"model":"m","stream":%v,"messages":[`, stream)
	for i := range turn {
		text += fmt.Sprintf(`{"role":"user","content":"%s %d %s"},{"role":"assistant","content":"well"},`, topic, i, strings.Repeat("warm path ", 400))
	}
	return []byte(text + `{"role":"user","content":"and then"}]}`)
}

// A node that joins a fleet that works proves itself by its answers and fills its
// cache, and then takes its full share.
func TestNodeRamps(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	r := ct.Start(t, fmt.Sprintf("node_urls_allowed: [127.0.0.0/8]\npolicy: {name: least_requests}\nnodes: [{name: a, url: %q}]\n", a.URL()))
	r.WaitServed(t, "a", "m")
	for i := range 20 {
		r.Ask(t, asked(fmt.Sprint("old ", i), 1, false), fmt.Sprint("a", i))
	}
	answered := r.Control.NowNs()
	ct.Eventually(t, "what a has answered and holds is counted", func() bool {
		s := r.Control.State()
		return s.NowNs > answered+3e8 && s.Find("a").Cached.Value > 10000 && r.Node("a").Warmth.Known
	})
	if n := r.Node("a"); n.Filling || n.Proof.Known {
		t.Errorf("the first node ramps: %v, %v", n.Filling, n.Proof)
	}
	if _, err := r.Control.Nodes().Add(state.Spec{Name: "b", URL: b.URL()}); err != nil {
		t.Fatal(err)
	}
	r.WaitServed(t, "b", "m")
	ct.Eventually(t, "b ramps", func() bool {
		n := r.Node("b")
		return n.Filling && n.Warmth.Known && n.Warmth.Value == 0 && n.Proof.Known && n.Proof.Value == 0
	})
	asks := 0
	ct.Eventually(t, "b has ramped", func() bool {
		asks++
		r.Ask(t, asked(fmt.Sprint("new ", asks), 1, false), fmt.Sprint("b", asks))
		n := r.Node("b")
		return !n.Filling && !n.Proof.Known && n.Warmth.Value > 0.9
	})
	var told []string
	for _, c := range r.Control.State().History("b") {
		told = append(told, c.To)
	}
	if got := strings.Join(told, " "); got != "joining ready ramping ramping ramped ramped" {
		t.Errorf("history: %s", got)
	}
}

// slowly is an engine whose streams end when they are let go.
func slowly(t *testing.T) (url string, letGo func()) {
	t.Helper()
	gate := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm"}]}`)
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"stream":true`)) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"model":"m","choices":[{"message":{"content":"hi"}}]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"first\"}}]}\n\n")
		w.(http.Flusher).Flush()
		select {
		case <-gate:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{\"content\":\"last\"}}]}\n\ndata: [DONE]\n\n")
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	letGo = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(letGo) // before the server waits for its streams
	return s.URL, letGo
}

// A node that drains ends the answer that runs. The next turn of that conversation goes
// elsewhere; one that has said nothing meanwhile finds its node again after undrain.
func TestDrainAtTurnBorders(t *testing.T) {
	urlA, letA := slowly(t)
	urlB, letB := slowly(t)
	r := ct.Start(t, fmt.Sprintf("nodes: [{name: a, url: %q}, {name: b, url: %q}]\n", urlA, urlB))
	r.WaitServed(t, "a", "m")
	r.WaitServed(t, "b", "m")
	_, home := r.Ask(t, asked("talk", 1, false), "talk-1")
	quiet := "" // another conversation of the same node
	for i := 0; quiet == ""; i++ {
		if _, node := r.Ask(t, asked(fmt.Sprint("quiet ", i), 1, false), fmt.Sprint("quiet-", i)); node == home {
			quiet = fmt.Sprint("quiet ", i)
		}
	}
	resp, err := http.Post("http://"+r.Data.Addr().String()+"/v1/chat/completions", "application/json", bytes.NewReader(asked("talk", 2, true)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream := bufio.NewReader(resp.Body)
	if line, err := stream.ReadString('\n'); err != nil || !strings.Contains(line, "first") || resp.Header.Get("X-Routed-To") != home {
		t.Fatalf("%q from %s, error %v", line, resp.Header.Get("X-Routed-To"), err)
	}
	r.Control.Send(state.DrainAsked{NowNs: r.Control.NowNs(), Node: home})
	r.WaitState(t, home, "draining")
	if status, node := r.Ask(t, asked("talk", 3, false), "talk-3"); status != 200 || node == home {
		t.Errorf("the next turn: status %d from %q, which drains", status, node)
	}
	if strings.Contains(r.Log.String(), "node is drained") {
		t.Error("it is drained while an answer runs")
	}
	letA()
	letB()
	rest, err := io.ReadAll(stream)
	if err != nil || !strings.Contains(string(rest), "last") || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("the answer that ran ends with %q, error %v", rest, err)
	}
	ct.Eventually(t, "it is drained", func() bool { return strings.Contains(r.Log.String(), `msg="node is drained" node=`+home) })
	r.Control.Send(state.UndrainAsked{NowNs: r.Control.NowNs(), Node: home})
	r.WaitState(t, home, "ready")
	if status, node := r.Ask(t, asked(quiet, 2, false), "quiet-again"); status != 200 || node != home {
		t.Errorf("a conversation that waited: status %d from %q, not from its node %q", status, node, home)
	}
}
