package bpf

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// TestLayouts checks the Go twins of shared structs, on each machine, against the
// BTF of the objects: sizes and the place of every field.
func TestLayouts(t *testing.T) {
	checkLayouts(t, loadFlow, map[string]any{
		"node_rule": Rule{}, "conn": flowConn{}, "slot": Slot{}, "node_counters": Counters{}, "node_times": Times{}, "event": Event{},
	})
	checkLayouts(t, loadNodeLoad, map[string]any{"load_said": nodeLoadLoadSaid{}, "load_sent": nodeLoadLoadSent{}, "node_load": nodeLoadNodeLoad{}})
}

func checkLayouts(t *testing.T, load func() (*ebpf.CollectionSpec, error), twins map[string]any) {
	t.Helper()
	spec, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for name, twin := range twins {
		var c *btf.Struct
		if err := spec.Types.TypeByName(name, &c); err != nil {
			t.Fatal(err)
		}
		g := reflect.TypeOf(twin)
		if uintptr(c.Size) != g.Size() {
			t.Errorf("%s has %d bytes in C and %d in Go", name, c.Size, g.Size())
		}
		for _, m := range c.Members {
			goName := strings.ReplaceAll(m.Name, "_", "")
			f, ok := g.FieldByNameFunc(func(s string) bool { return strings.EqualFold(s, goName) })
			if !ok || f.Offset != uintptr(m.Offset.Bytes()) {
				t.Errorf("%s.%s lies at %d in C, at %d in Go", name, m.Name, m.Offset.Bytes(), f.Offset)
			}
		}
	}
}

// TestInstructions keeps programs from growing without anybody noticing.
func TestInstructions(t *testing.T) {
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"flow": loadFlow, "segments": loadSegments, "resets": loadResets, "errors": loadErrors, "windows": loadWindows, "load": loadNodeLoad,
	} {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		for program, s := range spec.Programs {
			if bound := map[string]int{"flow": 700, "segment": 250, "reset_in": 100, "reset_out": 50, "error": 100, "ended": 120, "window": 100, "load_write": 200, "load_read": 100}[program]; len(s.Instructions) > bound {
				t.Errorf("%s: program %s has %d instructions, more than %d", name, program, len(s.Instructions), bound)
			}
		}
	}
}
