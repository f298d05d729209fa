package report

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// handOver has another server go on with worker a; the index comes over whole,
// what is beside it does not.
func handOver(t *testing.T, was *fakeFleet, h *Held) (*Server, *fakeFleet) {
	t.Helper()
	saved, ok := h.Save(0)
	if !ok {
		t.Fatal("nothing to save")
	}
	saved.Unplaced = was.placer.Unplaced(0)
	raw, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	var read Saved
	if err := json.Unmarshal(raw, &read); err != nil || !reflect.DeepEqual(read, saved) {
		t.Fatalf("%+v is read as %+v, %v", saved, read, err)
	}
	f := newFleet()
	f.index.blocks = was.index.blocks
	s := newTestServer(t, f)
	if trust, err := s.Restore("a", 0, read); err != nil || !trust.Reports() {
		t.Fatal(trust, err)
	}
	return s, f
}

// stored is a report of one block whose tokens are n, behind another one.
func stored(seq uint64, hash, parent uint64) []byte {
	b := message.Block{Hash: hash, Parent: parent, HasParent: parent != 0, Tokens: idsOf(fmt.Sprint("b", hash), 16), BlockTokens: 16}
	return (&message.Report{WorkerID: "a", Epoch: "e", Seq: seq, Blocks: []message.Block{b}}).AppendJSON(nil)
}

// TestHandOver: a report that comes meanwhile waits, and is to be sent again;
// the next process takes it as if nothing had happened.
func TestHandOver(t *testing.T) {
	f := newFleet()
	s := newTestServer(t, f)
	for seq := range uint64(3) {
		if w := ask(s, "/internal/stored", tokenA, jsonType, stored(seq+1, seq+1, seq)); w.Code != 200 {
			t.Fatal(w.Body)
		}
	}
	h := s.Hold("a")
	answers := make(chan *httptest.ResponseRecorder)
	go func() { answers <- ask(s, "/internal/stored", tokenA, jsonType, stored(4, 4, 3)) }()
	if w := ask(s, "/internal/stored", tokenB, jsonType, []byte(`{"worker_id":"b","epoch":"e","seq":1,"blocks":[]}`)); w.Code != 200 {
		t.Errorf("the reports of another worker wait too: %s", w.Body)
	}
	s.look() // must not wait
	next, to := handOver(t, f, h)
	h.Release(true)
	if w := <-answers; w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("the report that waited: %d %s", w.Code, w.Body)
	}
	if w := ask(next, "/internal/stored", tokenA, jsonType, stored(4, 4, 3)); w.Body.String() != "{\"seq\":4}\n" {
		t.Errorf("sent again: %d %s", w.Code, w.Body)
	}
	digest := message.Report{Route: message.Sync, WorkerID: "a", Epoch: "e", Seq: 5, HasDigest: true}
	for hash := range uint64(4) {
		digest.Digest.Add(hash + 1)
	}
	if w := ask(next, "/internal/sync", tokenA, jsonType, digest.AppendJSON(nil)); w.Body.String() != "{\"seq\":5}\n" {
		t.Errorf("the digest of all four: %d %s", w.Code, w.Body)
	}
	if got := strings.Join(to.trusted, ", "); got != "a/0 live" {
		t.Errorf("trust: %s", got)
	}
	if len(to.index.blocks[shelf{0, index.Device}]) != 4 {
		t.Errorf("index: %v", to.index.blocks)
	}
}

// TestHandOverFails: whoever was to go on did not; the report that waited is
// taken.
func TestHandOverFails(t *testing.T) {
	s := newTestServer(t, newFleet())
	if _, ok := s.Hold("b").Save(0); ok {
		t.Error("something is saved of a worker that was never heard")
	}
	h := s.Hold("a")
	answers := make(chan *httptest.ResponseRecorder)
	go func() { answers <- ask(s, "/internal/stored", tokenA, jsonType, stored(1, 1, 0)) }()
	h.Release(false)
	if w := <-answers; w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestHandOverUnplaced: a block that the index had no place for does not come
// over, so that all is asked for.
func TestHandOverUnplaced(t *testing.T) {
	f := newFleet()
	s := newTestServer(t, f)
	ask(s, "/internal/stored", tokenA, jsonType, stored(1, 8, 7)) // nobody knows block 7
	if !f.placer.Unplaced(0) || f.placer.Unplaced(1) {
		t.Error("what is beside the index is not seen")
	}
	next, to := handOver(t, f, s.Hold("a"))
	digest := message.Report{Route: message.Sync, WorkerID: "a", Epoch: "e", Seq: 2, HasDigest: true}
	digest.Digest.Add(8)
	if w := ask(next, "/internal/sync", tokenA, jsonType, digest.AppendJSON(nil)); w.Body.String() != "{\"seq\":2,\"want\":\"full\"}\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := to.trusted[0]; got != "a/0 gapped" {
		t.Errorf("trust: %v", to.trusted)
	}
	f.targets = nil
	if _, err := newTestServer(t, &fakeFleet{}).Restore("a", 0, Saved{}); err == nil {
		t.Error("a worker that is not known goes on")
	}
}

// TestAdopt: prompts that another process has named are held until a report
// takes them away.
func TestAdopt(t *testing.T) {
	x := newTwin()
	p := NewPlacer(x, func(string) (uint64, int) { return 7, 16 })
	r := &index.Run{Blocks: []uint64{5, 6}, Units: []prefix.Hash{50, 51, 60, 61}}
	if n := p.Adopt(3, r); n != 2 || x.match(3, []prefix.Hash{60, 61}) != 2 {
		t.Fatalf("%d prompts, %v", n, x.blocks)
	}
	r.Units[2] = 99 // nothing of it is kept
	p.Apply(&Batch{Slot: 3, Scheme: SchemePrefix, Removed: []uint64{6}})
	if x.match(3, []prefix.Hash{60}) != 0 || x.match(3, []prefix.Hash{50, 51}) != 2 {
		t.Errorf("%v", x.blocks)
	}
	p.Apply(&Batch{Slot: 3, Scheme: SchemePrefix, Replace: true, Active: []uint64{6}})
	if x.match(3, []prefix.Hash{60, 61}) != 2 || x.match(3, []prefix.Hash{50}) != 0 {
		t.Errorf("%v", x.blocks)
	}
	p.Forget(3)
	p.promptsOf(3).most = 1
	p.Adopt(3, &index.Run{Blocks: []uint64{1, 2}, Units: []prefix.Hash{10, 20}})
	if x.match(3, []prefix.Hash{10}) != 0 || x.match(3, []prefix.Hash{20}) != 1 {
		t.Errorf("beyond the bound: %v", x.blocks)
	}
	x.full = true
	if n := p.Adopt(9, &index.Run{Blocks: []uint64{1}, Units: []prefix.Hash{10}}); n != 0 {
		t.Error("taken by a full index")
	}
	if !slices.Equal(r.Blocks, []uint64{5, 6}) {
		t.Error("the run was changed")
	}
}
