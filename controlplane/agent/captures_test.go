package agent

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warmpath/controlplane/kvevent"
	"warmpath/dataplane/index"
)

// TestCaptures: what a real engine's events make of a router's index is the
// same whether it reads them itself or is told by the agent.
func TestCaptures(t *testing.T) {
	files, err := filepath.Glob("../kvevent/testdata/captures/*.kvcap")
	if err != nil || len(files) == 0 {
		t.Fatal("no captures", err)
	}
	blocks := 0
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		direct := index.New(index.Options{MemoryBytes: index.MinMemoryBytes}).Writer()
		tracker := kvevent.NewTracker(kvevent.TrackerOptions{Slot: 3, UnitTokens: testUnit, Seed: testSeed, Model: "m"}, direct)
		core, router := newTestCore(1), newTestRouter(t)
		core.opt.QueueMost = queueWeight
		tell(t, core, router)
		var decoder kvevent.Decoder
		for _, payload := range payloads(t, raw) {
			b, err := decoder.Decode(payload)
			if err != nil {
				t.Fatal(path, err)
			}
			tracker.Apply(b)
			core.Events(0, b)
			core.Digests()
			tell(t, core, router)
		}
		held := router.blocks(0, index.Device)
		direct.Blocks(3, index.Device, func(block uint64) bool {
			want, _ := direct.Last(3, block)
			if got, _ := router.writer.Last(3, block); got != want {
				t.Errorf("%s: block %x is %x, want %x", filepath.Base(path), block, got, want)
			}
			delete(held, block)
			blocks++
			return true
		})
		if len(held) > 0 {
			t.Errorf("%s: %d blocks more than there are", filepath.Base(path), len(held))
		}
	}
	if blocks == 0 {
		t.Error("no capture holds a block")
	}
}

// tell sends all that there is. Nothing is lost, so no full sync may be asked for;
// blocks are, where a capture begins behind their parents.
func tell(t *testing.T, core *Core, router *testRouter) {
	t.Helper()
	for {
		out, _ := core.Next(0, math.MaxInt64)
		if out == nil {
			return
		}
		a, _, err := router.post(&out.Report, Msgpack)
		if err != nil || a.Want != "" {
			t.Fatalf("%+v %v", a, err)
		}
		core.Answered(0, out, a)
	}
}

// payloads returns the batches of a capture: "KVCAP1\n", then for each message
// a time (8 bytes), the count of frames, and each frame behind its length.
func payloads(t *testing.T, raw []byte) (list [][]byte) {
	t.Helper()
	text, ok := strings.CutPrefix(string(raw), "KVCAP1\n")
	if !ok {
		t.Fatal("no capture")
	}
	for b := []byte(text); len(b) > 0; {
		count := binary.BigEndian.Uint32(b[8:])
		b = b[12:]
		var last []byte
		for range count {
			n := binary.BigEndian.Uint32(b)
			last, b = b[4:4+n], b[4+n:]
		}
		if count == 3 && len(last) > 0 { // a batch, and not the end of a replay
			list = append(list, last)
		}
	}
	return list
}
