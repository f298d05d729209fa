package peers

import (
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	v := Values{
		Listen: "127.0.0.1:18080", Admin: "127.0.0.1:18081", Folder: "/run/bench", Root: true,
		Nodes: []string{"127.0.0.1:9001", "127.0.0.1:9002"}, Model: "m", SizeBytes: 4096,
	}
	for file, wants := range map[string][]string{
		"nginx.conf.tmpl":    {"listen 127.0.0.1:18080 reuseport", "server 127.0.0.1:9002 ", "pid /run/bench/nginx.pid", "user root;"},
		"haproxy.cfg.tmpl":   {"bind 127.0.0.1:18080", "server node1 127.0.0.1:9002"},
		"warmpath.yaml.tmpl": {"listen: 127.0.0.1:18080", `admin: {listen: "127.0.0.1:18081"}`, `{name: node1, url: "http://127.0.0.1:9002"}`},
		"envoy.yaml.tmpl":    {`address: "127.0.0.1", port_value: 18080}`, `address: "127.0.0.1", port_value: 9002}`},
		"litellm.yaml.tmpl":  {`{model_name: m, litellm_params: {model: hosted_vllm/m, api_base: "http://127.0.0.1:9002/v1"`},
	} {
		var b strings.Builder
		if err := Render(&b, file, v); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, want := range wants {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s lacks %q:\n%s", file, want, b.String())
			}
		}
	}
	if err := Render(&strings.Builder{}, "none.tmpl", v); err == nil {
		t.Error("rendered a template that does not exist")
	}
}

func render(t *testing.T, file string, v Values) string {
	t.Helper()
	var b strings.Builder
	if err := Render(&b, file, v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestVariants: what differs with the subject and with the size.
func TestVariants(t *testing.T) {
	v := Values{Listen: "127.0.0.1:18080", Admin: "127.0.0.1:18081", Folder: "/run/bench", Nodes: []string{"127.0.0.1:9001"}, Model: "m"}
	for _, c := range []struct {
		file    string
		change  func(v *Values)
		without string // what the plain form says instead
		with    string
	}{
		{"warmpath.yaml.tmpl", func(v *Values) { v.NoKernel = true }, "connections: 8000}\nnodes", "mode: \"off\""},
		{"nginx.conf.tmpl", func(v *Values) { v.Buffered = true }, "proxy_request_buffering off;", "proxy_request_buffering on;"},
		{"nginx.conf.tmpl", func(v *Values) { v.SizeBytes = 1 << 20 }, "client_header_buffer_size 16k;", "client_header_buffer_size 1k;"},
		{"haproxy.cfg.tmpl", func(v *Values) { v.BufBytes = 131072 }, "", "tune.bufsize 131072"},
		{"warmpath.yaml.tmpl", func(v *Values) { v.Tokenizer = "a/tokenizer.json" }, "", `{name: m, tokenizer: "a/tokenizer.json"}`},
	} {
		other := v
		c.change(&other)
		plain, changed := render(t, c.file, v), render(t, c.file, other)
		if strings.Contains(plain, c.with) || !strings.Contains(changed, c.with) || !strings.Contains(plain, c.without) {
			t.Errorf("%s: %q is not what differs:\n%s\n%s", c.file, c.with, plain, changed)
		}
	}
}

func TestArguments(t *testing.T) {
	v := Values{Listen: "127.0.0.1:18080", Admin: "127.0.0.1:18081", Nodes: []string{"127.0.0.1:9001", "127.0.0.1:9002"}}
	for _, file := range []string{"smg.args.tmpl", "vllm-router.args.tmpl"} {
		arguments, err := Arguments(file, v)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.Join(arguments, " ")
		for _, want := range []string{
			"--host 127.0.0.1 --port 18080 --worker-urls http://127.0.0.1:9001 http://127.0.0.1:9002 --policy cache_aware", "--prometheus-port 18081",
		} {
			if !strings.Contains(line, want) {
				t.Errorf("%s lacks %q: %s", file, want, line)
			}
		}
		if strings.Contains(line, "#") {
			t.Errorf("%s: comments are no arguments: %s", file, line)
		}
	}
	if _, err := Arguments("none.tmpl", v); err == nil {
		t.Error("read arguments that do not exist")
	}
}
