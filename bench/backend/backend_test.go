package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// start serves on two free ports until the test ends.
func start(t *testing.T) []string {
	t.Helper()
	return startWith(t, Options{Loops: 1, Model: "bench"})
}

// startWith serves with further options.
func startWith(t *testing.T, o Options) []string {
	t.Helper()
	addresses := make([]string, 2)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addresses[i] = l.Addr().String()
		l.Close()
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		o.Addresses = addresses
		ended <- Run(ctx, o, func() { close(ready) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatalf("Run ended early: %v", err)
	}
	return addresses
}

func TestAnswers(t *testing.T) {
	addresses := start(t)
	body := strings.Repeat("x", 300_000)
	for _, address := range addresses {
		for _, c := range []struct {
			method, path string
			body         io.Reader
			status       int
			want         string
		}{
			{"GET", "/v1/models", nil, 200, `"id":"bench"`},
			{"GET", "/health", nil, 200, ""},
			{"GET", "/version", nil, 200, "0.32.0"},
			{"GET", "/metrics", nil, 200, `num_gpu_blocks="32768"`},
			{"GET", "/v1/files", nil, 200, `"id":"file-0"`},
			{"GET", "/nothing", nil, 404, "Not Found"},
			{"POST", "/v1/chat/completions", strings.NewReader(body), 200, `"content":"y`},
			{"POST", "/v1/chat/completions", io.MultiReader(strings.NewReader(body)), 200, `"content":"y`}, // chunked
			{"POST", "/tokenize", strings.NewReader("{}"), 404, "Not Found"},
		} {
			req, err := http.NewRequest(c.method, "http://"+address+c.path, c.body)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || res.StatusCode != c.status || !strings.Contains(string(got), c.want) {
				t.Errorf("%s %s: status %d, body %q, error %v; want status %d with %q",
					c.method, c.path, res.StatusCode, got, err, c.status, c.want)
			}
		}
	}
}

func TestBodiesAreJSON(t *testing.T) {
	if n := len(chatBody()); n != BodyBytes {
		t.Errorf("chat body has %d bytes, want %d", n, BodyBytes)
	}
	if n := len(filesBody()); n != BodyBytes {
		t.Errorf("list of files has %d bytes, want %d", n, BodyBytes)
	}
	for _, body := range []string{chatBody(), filesBody(), ModelsBody(`a"b`, 1), errorBody("x", 400)} {
		if !json.Valid([]byte(body)) {
			t.Errorf("not JSON: %s", body)
		}
	}
}

func TestMalformedIsRefusedAndClosed(t *testing.T) {
	address := start(t)[0]
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /health HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn) // ends only when the backend closes
	if err != nil || !bytes.HasPrefix(got, []byte("HTTP/1.1 400 ")) {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestTokens: /tokenize answers what it was told to, and a request to render
// one thing or another is never a stream.
func TestTokens(t *testing.T) {
	address := startWith(t, Options{Loops: 1, Model: "bench", Tokens: func(body []byte) ([]uint32, error) {
		if len(body) == 2 {
			return nil, errors.New("no prompt")
		}
		return []uint32{uint32(len(body)), 7}, nil
	}})[0]
	long := strings.Repeat("x", 300_000)
	for _, c := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/tokenize", long, 200, `{"count":2,"max_model_len":1048576,"tokens":[300000,7]}`},
		{"/tokenize", "abc", 200, `"tokens":[3,7]`},
		{"/tokenize", "{}", 400, "no prompt"},
		{"/v1/chat/completions/render", `{"stream":true}`, 200, `"content":"y`},
	} {
		res, err := http.Post("http://"+address+c.path, "application/json", strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != c.status || !strings.Contains(string(got), c.want) {
			t.Errorf("%s of %d bytes: status %d, body %.200q, error %v", c.path, len(c.body), res.StatusCode, got, err)
		}
	}
}
