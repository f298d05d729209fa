package agent

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/bpf"
	"warmpath/controlplane/engine"
)

// answers is an engine whose metrics are the next text each time; "" is none.
type answers struct {
	texts []string
	asked []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.asked = append(a.asked, r.URL.String())
	text := ""
	if len(a.texts) > 0 {
		text, a.texts = a.texts[0], a.texts[1:]
	}
	if text == "" {
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// TestLoadIsFollowed: each text is said once, and what is not in it is not known; an
// engine that does not answer is logged once, and when it is back.
func TestLoadIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{texts: []string{
			"vllm:num_requests_waiting 3\nvllm:kv_cache_usage_perc 0.25\nvllm:num_requests_running 2\n",
			"vllm:num_requests_waiting 4.0\n",
			"", "",
			"vllm:num_requests_running 1\nvllm:kv_cache_usage_perc 0.5\n",
		}}
		p := engine.NewProber()
		p.HTTP.Transport = a
		var log bytes.Buffer
		o := LoadOptions{URL: "http://127.0.0.1:8000", Engine: engine.Auto, Ports: []uint16{8000}, Interval: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))}
		if err := o.Check(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 450*time.Millisecond)
		defer cancel()
		var said []bpf.NodeLoad
		o.follow(ctx, p, func(l bpf.NodeLoad) { said = append(said, l) })
		if want := []bpf.NodeLoad{{Waiting: 3, KVUse: .25}, {Waiting: 4, KVUse: -1}, {Waiting: -1, KVUse: .5}}; !reflect.DeepEqual(said, want) {
			t.Errorf("said %+v, want %+v", said, want)
		}
		if len(a.asked) != 5 || a.asked[0] != "http://127.0.0.1:8000/metrics" {
			t.Errorf("asked %q", a.asked)
		}
		if lines := log.String(); strings.Count(lines, "level=WARN") != 1 || strings.Count(lines, "level=INFO") != 1 {
			t.Errorf("logged:\n%s", lines)
		}
	})
}

// TestLoadOptions: all that is wrong is said at once.
func TestLoadOptions(t *testing.T) {
	err := SayLoad(t.Context(), LoadOptions{URL: "127.0.0.1:8000", Engine: "openai", Interval: time.Second})
	if err == nil {
		t.Fatal("wrong options are taken")
	}
	for _, word := range []string{"load url", "load engine", "load ports", "load interval"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v: nothing of %s", err, word)
		}
	}
}
