package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestOptions(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte("clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   string // "" = it is taken
	}{
		{"as it is", func(*Options) {}, ""},
		{"port by number", func(o *Options) { o.Port = "8000" }, ""},
		{"no port", func(o *Options) { o.Port = "" }, ""},
		{"kubeconfig", func(o *Options) { o.Client, o.Kubeconfig = nil, kubeconfig }, ""},
		{"kubeconfig's namespace", func(o *Options) { o.Client, o.Kubeconfig, o.Namespace = nil, kubeconfig, "" }, ""},
		{"kind", func(o *Options) { o.Kind = "daemonset" }, `kind "daemonset": use deployment or statefulset`},
		{"name", func(o *Options) { o.Name = "" }, "the name of the deployment is empty"},
		{"bad name", func(o *Options) { o.Name = "A_b" }, `name "A_b"`},
		{"port", func(o *Options) { o.Port = "0" }, `port "0": use 1 to 65535`},
		{"port's name", func(o *Options) { o.Port = "no port" }, `port "no port"`},
		{"fleet", func(o *Options) { o.Fleet = "" }, "fleet: the key is empty"},
		{"max nodes", func(o *Options) { o.MaxNodes = 1001 }, "use 1 to 1000"},
		{"timeout", func(o *Options) { o.Timeout = -time.Second }, "timeout -1s"},
		{"namespace", func(o *Options) { o.Namespace = "" }, `namespace ""`},
		{"no file", func(o *Options) { o.Client, o.Kubeconfig = nil, "testdata/none" }, `read kubeconfig "testdata/none"`},
		{"no such context", func(o *Options) { o.Client, o.Kubeconfig, o.Context = nil, kubeconfig, "y" }, `context "y" does not exist`},
		{"context without a file", func(o *Options) { o.Client, o.Context = nil, "x" }, `context "x" is of a kubeconfig`},
		{"not in a cluster", func(o *Options) { o.Client = nil }, "outside one name a kubeconfig"},
	} {
		o := Options{Client: newCluster(t).inMemory(), Namespace: place, Name: "web", Fleet: "fleet", Port: "http"}
		c.change(&o)
		a, err := New(o)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err == nil && a.Close() != nil {
			t.Errorf("%s: it does not close", c.name)
		}
	}
	if name := recordName(Deployment, strings.Repeat("a", 250)); len(name) > 253 || name == recordName(Deployment, strings.Repeat("a", 249)) {
		t.Errorf("a long name's record is %q", name)
	}
}

// TestRecordFits: the most nodes that there may be fit a ConfigMap, and what is read is
// what was written.
func TestRecordFits(t *testing.T) {
	r := &record{Fleet: strings.Repeat("f", 63), Workload: "123e4567-e89b-12d3-a456-426614174000", Baseline: MaxNodes, Most: 3 * MaxNodes}
	for i := range MaxNodes {
		number := string(rune('a'+i/100)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10))
		uid := "123e4567-e89b-12d3-a456-426614174" + number
		r.Own = append(r.Own, "o"+"23e4567-e89b-12d3-a456-426614174000")
		r.Nodes = append(r.Nodes, node{Key: number + strings.Repeat("k", 60), Stage: leaving, Pod: strings.Repeat("p", 253), UID: types.UID(uid)})
	}
	text, err := r.encode()
	if err != nil || len(text) > 1<<19 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	back, err := decodeRecord(text)
	if err != nil || !back.equal(r) {
		t.Errorf("read back: %v", err)
	}
	for _, bad := range []string{
		``, `[]`, `{"baseline":-1}`, `{"nodes":[{"key":"A"}]}`, `{"nodes":[{"key":"a"},{"key":"a"}]}`,
		`{"nodes":[{"key":"a","pod":"p","uid":"u"},{"key":"b","pod":"p","uid":"u"}]}`, `{"nodes":[{"key":"a","stage":"on"}]}`, `{"nodes":[{"key":"a","pod":"p"}]}`,
	} {
		if _, err := decodeRecord(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
