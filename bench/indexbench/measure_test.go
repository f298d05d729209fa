package indexbench

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"warmpath/dataplane/index"
)

// A small measurement ends, and every line is a result.
func TestMeasure(t *testing.T) {
	var out bytes.Buffer
	o := Options{Nodes: 64, Blocks: 1000, Runs: 1, Chains: 2, Duration: time.Millisecond}
	if err := Measure(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for d := json.NewDecoder(&out); ; lines++ {
		var r Result
		if err := d.Decode(&r); err == io.EOF {
			break
		} else if err != nil || r.Subject == "" || r.NsPerOp <= 0 || r.HolderBlocks < 64_000 {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	if lines != 11 {
		t.Errorf("%d results", lines)
	}
	if err := Measure(t.Context(), Options{Nodes: 3}, &out); err == nil || !strings.Contains(err.Error(), "want 64") {
		t.Errorf("three nodes: %v", err)
	}
}

// What the contents report is what the index then knows: no block is stored
// twice, none is removed that is not there.
func TestContents(t *testing.T) {
	x := index.New(index.Options{})
	c := NewContents(x.Writer(), 16, 1200)
	c.Fill()
	for i := range 1000 {
		c.Report(i%16, 1+i%64)
	}
	s := x.Stats()
	if s.HolderUnits != 16*1200 || s.UnknownRemovals+s.Refusals > 0 || s.Units >= s.HolderUnits {
		t.Errorf("%+v", s)
	}
}

// TestBytesPerHolderBlock bounds what a block at a node costs, by the index's
// own count and with what it takes when it is empty left out.
func TestBytesPerHolderBlock(t *testing.T) {
	const nodes, blocks, most = 64, 6000, 40
	x := index.New(index.Options{})
	c := NewContents(x.Writer(), nodes, blocks)
	empty := x.Stats().Bytes
	c.Fill()
	if got := float64(x.Stats().Bytes-empty) / (nodes * blocks); got > most {
		t.Errorf("%.1f bytes, want at most %d", got, most)
	} else {
		t.Logf("%.1f bytes", got)
	}
}
