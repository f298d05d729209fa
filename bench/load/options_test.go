package load

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	good := Options{URL: "http://127.0.0.1:1", Rate: 1, Duration: time.Second}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*Options)
		names  string
	}{
		{func(o *Options) { o.URL = "https://a" }, "without TLS"},
		{func(o *Options) { o.URL = "http:///x" }, "no host"},
		{func(o *Options) { o.URL = "http://a:b@c" }, "credentials"},
		{func(o *Options) { o.URL = "http://a\n" }, "check URL"},
		{func(o *Options) { o.Rate = 0 }, "give one of them"},
		{func(o *Options) { o.Concurrency = 1 }, "give one of them"},
		{func(o *Options) { o.Rate = -1 }, "rate -1"},
		{func(o *Options) { o.Rate = math.Inf(1) }, "rate +Inf"},
		{func(o *Options) { o.Rate = math.NaN() }, "rate NaN"},
		{func(o *Options) { o.Rate, o.Concurrency = 0, maxConnections+1 }, "concurrency"},
		{func(o *Options) { o.Arrivals = "gamma" }, `"gamma"`},
		{func(o *Options) { o.Duration = 0 }, "duration 0s"},
		{func(o *Options) { o.Warmup = -1 }, "warm-up"},
		{func(o *Options) { o.Timeout = 2 * longest }, "timeout 2h"},
		{func(o *Options) { o.MaxConnections = -1 }, "connections -1"},
		{func(o *Options) { o.Bodies = [][]byte{[]byte("{}"), nil} }, "body 1"},
		{func(o *Options) { o.Goodput.TTFT = -1 }, "goodput"},
		{func(o *Options) { o.Headers = map[string]string{"A B": ""} }, `"A B"`},
		{func(o *Options) { o.Headers = map[string]string{"A": "b\r\nC: d"} }, `"A"`},
		{func(o *Options) { o.Headers = map[string]string{"Content-Length": "3"} }, `"Content-Length"`},
	} {
		o := good
		c.change(&o)
		var bad *OptionsError
		if r, err := Run(t.Context(), o); r != nil || !errors.As(err, &bad) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%+v: %v, want %q in it", o, err, c.names)
		}
	}
}

func TestBadPorts(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:0", "http://127.0.0.1:65536"} {
		var bad *OptionsError
		if _, err := Run(t.Context(), Options{URL: url, Rate: 1, Duration: 1}); !errors.As(err, &bad) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestMadeUpBodies(t *testing.T) {
	for _, b := range []Bodies{{Model: "m"}, {Model: `a"b`, Stream: true, OutputTokens: 7, IgnoreEOS: true}} {
		for _, size := range []int{400, 4096, 100_000} {
			bodies, err := b.MadeUp(size)
			if err != nil {
				t.Fatal(err)
			}
			different := map[string]bool{}
			for _, body := range bodies {
				different[string(body)] = true
				var got struct {
					Model     string
					Stream    bool
					MaxTokens int  `json:"max_tokens"`
					IgnoreEOS bool `json:"ignore_eos"`
					Messages  []message
				}
				if err := json.Unmarshal(body, &got); err != nil {
					t.Fatal(err)
				}
				if len(body) != size || got.Model != b.Model || got.Stream != b.Stream || got.MaxTokens != b.OutputTokens || got.IgnoreEOS != b.IgnoreEOS || len(got.Messages) != 2 {
					t.Errorf("%d bytes, want %d: %.200s", len(body), size, body)
				}
			}
			if len(different) != madeUp {
				t.Errorf("%d different bodies", len(different))
			}
		}
		if _, err := b.MadeUp(100); err == nil || !strings.Contains(err.Error(), "use more") {
			t.Errorf("a body of 100 bytes: %v", err)
		}
	}
}

func TestPromptFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := Bodies{Model: "m"}
	write(`{"prompt":"é \"x\"","output_tokens":5}

{"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"u"}]}]}
{"timestamp":0,"requests":[{"Prompt Length":3,"Output Length":2,"prompt":"a"},{"prompt":"b"}]}
`)
	bodies, err := b.FromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"model":"m","max_tokens":5,"temperature":0,"messages":[{"role":"user","content":"é \"x\""}]}`,
		`{"model":"m","temperature":0,"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"u"}]}]}`,
		`{"model":"m","max_tokens":2,"temperature":0,"messages":[{"role":"user","content":"a"}]}`,
		`{"model":"m","temperature":0,"messages":[{"role":"user","content":"b"}]}`,
	}
	for i, body := range bodies {
		if i >= len(want) || string(body) != want[i] {
			t.Errorf("body %d: %s", i, body)
		}
	}
	if len(bodies) != len(want) {
		t.Errorf("%d bodies, want %d", len(bodies), len(want))
	}
	b.OutputTokens = 9 // wins over the file
	if bodies, err = b.FromFile(path); err != nil || !strings.Contains(string(bodies[0]), `"max_tokens":9`) {
		t.Errorf("%s, %v", bodies[0], err)
	}
	for text, names := range map[string]string{
		"":                          "no prompt",
		"{\"prompt\":\"a\"}\nplain": "line 2",
		`{"text":"a"}`:              "line 1",
		`{"requests":[{}]}`:         "neither",
	} {
		write(text)
		if _, err := b.FromFile(path); err == nil || !strings.Contains(err.Error(), names) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want the path and %q", text, err, names)
		}
	}
	if _, err := b.FromFile(path + ".none"); err == nil {
		t.Error("a file that is not there was read")
	}
}
