package wrk

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"
)

// body is what the tests look at in a chat request.
type body struct {
	Model    string
	Messages []struct{ Role, Content string }
}

// record is a server that keeps what it was sent.
type record struct {
	mu     sync.Mutex
	bodies map[string]bool
	bad    []string
}

func (r *record) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	text, err := io.ReadAll(req.Body)
	var b body
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.bad = append(r.bad, err.Error())
	case req.URL.Path != "/v1/chat/completions" || b.Model == "" || len(b.Messages) == 0:
		r.bad = append(r.bad, req.URL.Path+" "+string(text))
	default:
		r.bodies[string(text)] = true
	}
	_, _ = io.WriteString(w, "{}")
}

// run lets wrk run a script for a few seconds and returns the different bodies.
func run(t *testing.T, script string, args ...string) map[string]bool {
	t.Helper()
	if testing.Short() {
		t.Skip("runs wrk for seconds")
	}
	if _, err := exec.LookPath("wrk"); err != nil {
		t.Skipf("needs wrk: %v", err)
	}
	r := &record{bodies: map[string]bool{}}
	server := httptest.NewServer(r)
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	arguments := append([]string{"-t1", "-c1", "-d4s", "-s", script, server.URL, "--"}, args...)
	out, err := exec.CommandContext(ctx, "wrk", arguments...).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(`{"wrk":{"requests":`)) {
		t.Fatalf("wrk %v: %v\n%s", arguments, err, out)
	}
	if len(r.bad) > 0 {
		t.Fatalf("%d bad requests, the first: %s", len(r.bad), r.bad[0])
	}
	return r.bodies
}

func TestChatBodies(t *testing.T) {
	for _, size := range []int{600, 65536} {
		bodies := run(t, Chat, strconv.Itoa(size), "bench")
		systems := map[string]bool{}
		for text := range bodies {
			if len(text) != size {
				t.Errorf("a body has %d bytes, want %d", len(text), size)
			}
			var b body
			if err := json.Unmarshal([]byte(text), &b); err != nil {
				t.Fatal(err)
			}
			for i, m := range b.Messages {
				want := []string{"assistant", "user"}[i%2]
				if i == 0 {
					want = "system"
					systems[m.Content] = true
				}
				if m.Role != want {
					t.Errorf("message %d of a body of %d bytes is of %s, want %s", i, size, m.Role, want)
				}
			}
		}
		if len(bodies) != 64 || len(systems) != 8 {
			t.Errorf("%d bytes: %d bodies with %d system prompts, want 64 and 8", size, len(bodies), len(systems))
		}
		for i, text := range ChatBodies(size, "bench", false) {
			if !bodies[string(text)] {
				t.Errorf("%d bytes: chat.lua does not post body %d of ChatBodies:\n%.300s", size, i, text)
			}
		}
	}
}

func TestChatBodiesOfAnySize(t *testing.T) {
	for _, size := range []int{400, 1024, 4096, 4200, 4300, 1 << 17} {
		for _, stream := range []bool{false, true} {
			var b struct{ Stream bool }
			for _, text := range ChatBodies(size, "m", stream) {
				if err := json.Unmarshal(text, &b); err != nil || len(text) != size || b.Stream != stream {
					t.Fatalf("body of %d bytes, want %d: %v, stream %v", len(text), size, err, b.Stream)
				}
			}
		}
	}
}

// TestNewBodies: with FIRST no stretch of text comes twice in requests.
func TestNewBodies(t *testing.T) {
	const size, stretch = 4096, 512
	bodies := run(t, Chat, strconv.Itoa(size), "bench", "16777000") // the number has more than 24 bits soon
	if len(bodies) < 100 {
		t.Fatalf("%d different bodies in seconds", len(bodies))
	}
	seen, looked := map[string]bool{}, 0
	for text := range bodies {
		var b body
		if err := json.Unmarshal([]byte(text), &b); err != nil || len(text) != size {
			t.Fatalf("a body has %d bytes, want %d: %v", len(text), size, err)
		}
		if looked++; looked > 200 {
			break
		}
		for _, m := range b.Messages {
			for at := 0; at+stretch <= len(m.Content); at += stretch / 8 {
				if part := m.Content[at : at+stretch]; seen[part] {
					t.Fatalf("twice: %s", part)
				} else {
					seen[part] = true
				}
			}
		}
	}
}

// TestGets: size 0 asks without a body.
func TestGets(t *testing.T) {
	if _, err := exec.LookPath("wrk"); err != nil || testing.Short() {
		t.Skip("runs wrk for a second")
	}
	var targets sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		targets.Store(r.Method+" "+r.URL.Path, true)
	}))
	defer server.Close()
	out, err := exec.CommandContext(t.Context(), "wrk", "-t1", "-c1", "-d1s", "-s", Chat, server.URL, "--", "0").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	targets.Range(func(target, _ any) bool {
		if target != "GET /v1/files" {
			t.Errorf("asked %s", target)
		}
		return true
	})
}

func TestTurnsGrow(t *testing.T) {
	bodies := run(t, "turns.lua", "testdata/prompts.jsonl", "bench", "2")
	lengths := map[int]int{}
	for text := range bodies {
		var b body
		if err := json.Unmarshal([]byte(text), &b); err != nil {
			t.Fatal(err)
		}
		lengths[len(b.Messages)]++
		if first := b.Messages[0].Content; first != "Say \"yes\"\nor no \\" && first != "What is é?" {
			t.Errorf("a talk begins with %q", first)
		}
	}
	if lengths[1] != 2 || lengths[3] != 2 || len(lengths) != 2 {
		t.Errorf("got talks of %v messages, want two of 1 and two of 3", lengths)
	}
}

func TestScriptsAreEmbedded(t *testing.T) {
	for _, name := range []string{Chat, "turns.lua", "models.lua"} {
		if text, err := Scripts.ReadFile(name); err != nil || len(text) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
