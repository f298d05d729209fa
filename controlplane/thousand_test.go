package controlplane_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/admin"
	"warmpath/controlplane/config"
	ct "warmpath/controlplane/controltest"
	"warmpath/dataplane/fleet"
)

// startMany has one server answer at so many addresses, and returns their URLs.
func startMany(t *testing.T, count int) (urls []string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm","max_model_len":4096}]}`)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.25\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1\n")
	})
	mux.HandleFunc("POST /", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"model":"m","choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`)
	})
	server := &http.Server{Handler: mux}
	t.Cleanup(func() { _ = server.Close() })
	port := 0
	for i := range count {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.88.%d.%d:%d", i/250, i%250+1, port))
		if err != nil {
			t.Fatal(err)
		}
		port = ln.Addr().(*net.TCPAddr).Port
		urls = append(urls, "http://"+ln.Addr().String())
		go func() { _ = server.Serve(ln) }()
	}
	return urls
}

// A thousand nodes can be configured, become ready, are read, listed and used.
func TestThousandNodes(t *testing.T) {
	const count = 1000
	var text strings.Builder
	text.WriteString("health: {interval: 5s, interval_down: 500ms, timeout: 5s, up_after: 1}\nnodes:\n")
	for i, url := range startMany(t, count) {
		fmt.Fprintf(&text, "  - {name: node-%04d, url: %q}\n", i, url)
	}
	r := ct.Start(t, text.String())
	counts := func() (ready, read int) {
		for _, n := range r.Fleet.Load().Nodes {
			if n.Available() {
				ready++
			}
			if n != nil && n.RunningRequests == (fleet.Gauge{Value: 1, Known: true}) && n.CacheTokens == 16000 {
				read++
			}
		}
		return ready, read
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); <-look.C { // the race detector takes its time
		if ready, read := counts(); ready == count && read == count {
			break
		}
	}
	if ready, read := counts(); ready != count || read != count {
		t.Fatalf("of %d nodes %d are ready, %d have been read", count, ready, read)
	}
	if snap := r.Fleet.Load(); !snap.Asked || len(snap.Models) != 1 || len(snap.Models[0].Slots) != count {
		t.Errorf("%d models", len(snap.Models))
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	surface := admin.Serve(ln, admin.Options{Control: r.Control, Dataplane: r.Data, Fleet: r.Fleet, Index: r.Index, Log: slog.New(slog.DiscardHandler)})
	defer surface.Stop(t.Context())
	resp, err := http.Get("http://" + ln.Addr().String() + "/api/nodes")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var listed []admin.NodeView
	if err := json.NewDecoder(resp.Body).Decode(&listed); err != nil || len(listed) != count || listed[count-1].Name != "node-0999" || listed[0].State != "ready" {
		t.Errorf("%d nodes are listed: %v", len(listed), err)
	}

	used := map[string]bool{}
	for i := range 60 { // conversations that have nothing in common: nobody holds anything of them
		body := fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"conversation %d: %s"}]}`, i, strings.Repeat(fmt.Sprint(i, " "), 200))
		status, node := r.Ask(t, body, fmt.Sprint("ask-", i))
		if status != 200 {
			t.Fatalf("request %d: status %d from %q", i, status, node)
		}
		used[node] = true
	}
	if len(used) < 30 {
		t.Errorf("60 conversations went to %d nodes", len(used))
	}
}

// The bound is the data plane's slots, one a rank; one node more is refused with the
// remedy.
func TestMostNodes(t *testing.T) {
	text := func(count int) []byte {
		var b strings.Builder
		b.WriteString("nodes:\n")
		for i := range count {
			fmt.Fprintf(&b, "  - {name: node-%04d, url: \"http://10.0.%d.%d:8000\"}\n", i, i/250, i%250)
		}
		return []byte(b.String())
	}
	if c, err := config.Parse("test", text(fleet.MaxSlots)); err != nil || len(c.Nodes) != fleet.MaxSlots {
		t.Errorf("%d nodes: %v", fleet.MaxSlots, err)
	}
	if _, err := config.Parse("test", text(fleet.MaxSlots+1)); err == nil || !strings.Contains(err.Error(), "1024") {
		t.Errorf("%d nodes: %v", fleet.MaxSlots+1, err)
	}
}
