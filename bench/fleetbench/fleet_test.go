package fleetbench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/config"
	"warmpath/controlplane/engine"
)

// The nodes' text is as long as it is said to be, and the router reads all that it
// reads of vLLM's, be it the whole or what it asks for.
func TestNodes(t *testing.T) {
	const port, size = 28931, 61_000
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Serve(ctx, NodesOptions{Nodes: 3, Port: port, MetricsBytes: size}, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Skipf("the port is taken: %v", err)
	}
	defer func() { cancel(); <-ended }()
	base := "http://" + Address(2, port)
	get := func(path string) string {
		res, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s, %v", path, res.Status, err)
		}
		return string(text)
	}
	whole, narrow := get("/metrics"), get("/metrics/?name%5B%5D=x")
	if len(whole) < size*9/10 || len(whole) > size*11/10 || len(narrow) > size/10 {
		t.Errorf("texts of %d and %d bytes", len(whole), len(narrow))
	}
	for _, text := range []string{whole, narrow} {
		s, err := engine.Decode(engine.Auto, strings.NewReader(text))
		if err != nil || s.Engine != engine.VLLM || !s.Queued.Known || !s.KVUse.Known || !s.Preemptions.Known || !s.StartSeconds.Known || s.CacheTokens != 524288 {
			t.Errorf("%+v, %v", s, err)
		}
	}
	get("/health")
	get("/v1/models")
	for _, stream := range []bool{false, true} {
		res, err := http.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(fmt.Sprintf(`{"model":"fleet","stream":%v}`, stream)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || stream != strings.HasSuffix(string(text), "data: [DONE]\n\n") {
			t.Errorf("%q, %v", text, err)
		}
	}
}

func TestReadRequest(t *testing.T) {
	in := bufio.NewReader(strings.NewReader("POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\n\r\nbad\r\n"))
	path, body, err := readRequest(in)
	if string(path) != "/a" || string(body) != "hi" || err != nil {
		t.Errorf("%q %q %v", path, body, err)
	}
	if path, body, err = readRequest(in); string(path) != "/b" || len(body) != 0 || err != nil {
		t.Errorf("%q %q %v", path, body, err)
	}
	if _, _, err = readRequest(in); err == nil {
		t.Error("no request, and no error")
	}
}

func TestConfiguration(t *testing.T) {
	o := Options{Port: 9000}
	o.complete()
	all, err := o.cases()
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for _, c := range all {
		parsed, err := config.Parse("test", []byte(configuration(&o, c, "127.0.0.1:1", "127.0.0.1:2")))
		if err != nil || len(parsed.Nodes) != c.Nodes || c.Unscraped != (parsed.Nodes[0].Engine == engine.OpenAI) {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	o.Cases = []string{"huge"}
	if _, err := o.cases(); err == nil {
		t.Error("an unknown case")
	}
}

func TestFigures(t *testing.T) {
	was := publishes{bounds: []float64{.001, .002, .005}, counts: []float64{1, 1, 1}, sum: .0005}
	is := publishes{bounds: was.bounds, counts: []float64{90, 99, 101}, sum: .1005}
	d := is.since(was)
	if d.total() != 100 || d.within(.5) != 1 || d.within(.98) != 2 || d.within(.99) != 5 || d.meanMs() != 1 {
		t.Errorf("%+v", d)
	}
	s := summary([]Run{{CPUPercent: 3, Requests: 1}, {CPUPercent: 1, Requests: 2}, {CPUPercent: 2, Requests: 4}})
	if s.CPUPercent != 2 || s.Requests != 7 || s.Runs != 3 {
		t.Errorf("%+v", s)
	}
	var text []byte
	text = figures(text, 5, int64(time.Minute/time.Millisecond))
	if !bytes.Contains(text, []byte("vllm:num_requests_running{engine=\"0\",model_name=\"fleet\"} ")) {
		t.Errorf("%s", text)
	}
}
