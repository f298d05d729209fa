package peers

import (
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	v := Values{
		Listen: "127.0.0.1:18080", Admin: "127.0.0.1:18081", Folder: "/run/bench", Root: true,
		Nodes: []string{"127.0.0.1:9001", "127.0.0.1:9002"},
	}
	for file, wants := range map[string][]string{
		"nginx.conf.tmpl":    {"listen 127.0.0.1:18080 reuseport", "server 127.0.0.1:9002 ", "pid /run/bench/nginx.pid", "user root;"},
		"haproxy.cfg.tmpl":   {"bind 127.0.0.1:18080", "server node1 127.0.0.1:9002"},
		"warmpath.yaml.tmpl": {"listen: 127.0.0.1:18080", `admin: {listen: "127.0.0.1:18081"}`, `{name: node1, url: "http://127.0.0.1:9002"}`},
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
