package stormbench

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// A small storm ends, every line is a result, and the events were applied.
func TestMeasure(t *testing.T) {
	t.Chdir("../..")
	node := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "{}")
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = node.Serve(ln) }()
	defer node.Close()
	var out bytes.Buffer
	o := Options{Steal: 1e6, Node: ln.Addr().String(), Nodes: 10, Rate: 100, Runs: 1, Duration: 300 * time.Millisecond, IndexBytes: 16 << 20}
	if err := Measure(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&out)
	for _, storm := range []bool{false, true} {
		var r Run
		if err := d.Decode(&r); err != nil || r.Storm != storm || r.Requests != 30 || r.RoutingP99 <= 0 || r.AnswerP99 <= 0 || storm != (r.BlocksPerS > 0) {
			t.Errorf("%+v: %v", r, err)
		}
		if storm && r.HolderUnits < 1000 {
			t.Errorf("%d units are held in the storm", r.HolderUnits)
		}
	}
	var s Summary
	if err := d.Decode(&s); err != nil || s.Record != "summary" || s.IndexBytesMost <= 0 || s.IndexBytesMost > s.IndexBytesBound {
		t.Errorf("%+v: %v", s, err)
	}
}

func TestReadCapture(t *testing.T) {
	for name, data := range map[string]string{
		"none":      "",
		"cut":       "KVCAP1\n123",
		"cut frame": "KVCAP1\n12345678\x00\x00\x00\x01\x00\x00\x00\x09abc",
	} {
		if _, err := readCapture([]byte(data)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := readCaptures("../../controlplane/kvevent/testdata/captures/none*"); err == nil {
		t.Error("no files: no error")
	}
}
