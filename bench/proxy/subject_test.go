package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"warmpath/bench/peers"
	"warmpath/bench/wrk"
)

// eventsOfStream is how many events the recorder sends.
const eventsOfStream = 3

var streamFlag = regexp.MustCompile(`"stream": ?true`)

// recorder is a node that keeps the last chat it was sent. Its streams go on
// only when goOn says so.
type recorder struct {
	goOn chan struct{}

	mu   sync.Mutex
	last []byte
}

func (n *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case r.URL.Path == "/v1/models":
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"bench","object":"model","created":1,"owned_by":"vllm","max_model_len":262144}]}`)
	case r.URL.Path == "/health":
	case !strings.HasPrefix(r.URL.Path, "/v1/chat/completions"):
		http.NotFound(w, r)
	case streamFlag.Match(body) && !strings.HasSuffix(r.URL.Path, "/render"):
		w.Header().Set("Content-Type", "text/event-stream")
		for range eventsOfStream {
			<-n.goOn
			_, _ = io.WriteString(w, `data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":{"content":"yes"}}]}`+"\n\n")
			w.(http.Flusher).Flush()
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	default:
		if r.URL.Path == "/v1/chat/completions" {
			n.mu.Lock()
			n.last = body
			n.mu.Unlock()
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"a","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)
	}
}

// TestPeersPassOnWhole sends chats and streams through each peer that this
// machine has: bodies must come whole, and each event before the next is sent.
func TestPeersPassOnWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every peer")
	}
	o := options(t)
	stream := wrk.ChatBodies(1024, model, true)[0]
	var chats [][]byte
	for _, size := range []int{600, 65536, 1 << 20} {
		chats = append(chats, wrk.ChatBodies(size, model, false)[0])
	}
	for i := range subjects {
		s := &subjects[i]
		if s.program == Warmpath || s.name == Warmpath || s.name == Direct { // the router has tests of its own
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			path, err := s.executable(&o)
			if err != nil {
				t.Skip(err)
			}
			if _, err := exec.LookPath(path); err != nil {
				t.Skip(err)
			}
			t.Parallel()
			passesOnWhole(t, &o, s, chats, stream)
		})
	}
}

func passesOnWhole(t *testing.T, o *Options, s *subject, chats [][]byte, stream []byte) {
	node := &recorder{goOn: make(chan struct{}, 1)}
	server := httptest.NewServer(node)
	defer server.Close()
	listen, err := freeAddresses(2)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, err := s.start(ctx, o, o.ProxyCore, peers.Values{
		Listen: listen[0], Admin: listen[1], Nodes: []string{server.Listener.Addr().String()}, Folder: t.TempDir(), Model: model,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.waitReady(ctx, listen[0]); err != nil {
		t.Fatal(err)
	}
	for _, sent := range chats {
		size := len(sent)
		res := post(ctx, t, listen[0], sent)
		answer, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"yes"`)) {
			t.Fatalf("%d bytes: status %d, %v, %.200s; %s", size, res.StatusCode, err, answer, p.logTail())
		}
		node.mu.Lock()
		got := node.last
		node.mu.Unlock()
		if want, have := messages(t, sent), messages(t, got); !reflect.DeepEqual(want, have) {
			t.Errorf("%d bytes: the node was sent other messages: %.300s", size, got)
		}
		if rewrites := s.pypi != "" && s.name != "envoy"; !rewrites && !bytes.Equal(got, sent) {
			t.Errorf("%d bytes: the body was changed", size)
		}
	}
	node.goOn <- struct{}{} // heads may come with the first event only
	res := post(ctx, t, listen[0], stream)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for event := range eventsOfStream + 1 {
		if line := nextData(lines); (line == "[DONE]") != (event == eventsOfStream) || line == "" {
			t.Fatalf("event %d is %q; %s", event, line, p.logTail())
		}
		if event+1 < eventsOfStream {
			node.goOn <- struct{}{} // the next one only now
		}
	}
}

func post(ctx context.Context, t *testing.T, address string, body []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// nextData is the payload of the next event that has content or ends the
// stream, "" at the end.
func nextData(lines *bufio.Scanner) string {
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && (data == "[DONE]" || strings.Contains(data, `"yes"`)) {
			return data
		}
	}
	return ""
}

func messages(t *testing.T, body []byte) (all any) {
	t.Helper()
	var b struct{ Messages any }
	if err := json.Unmarshal(body, &b); err != nil {
		t.Fatal(fmt.Errorf("%w in %.300s", err, body))
	}
	return b.Messages
}
