package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-zeromq/zmq4"
	"github.com/tinylib/msgp/msgp"
)

// decodeBatch reads a payload with the library's generic decoder.
func decodeBatch(t testing.TB, payload []byte) []any {
	t.Helper()
	v, rest, err := msgp.ReadIntfBytes(payload)
	batch, ok := v.([]any)
	if err != nil || len(rest) > 0 || !ok || len(batch) != 3 {
		t.Fatalf("payload %x: %v, %d bytes left", payload, err, len(rest))
	}
	return batch
}

func noAdapters(string) int { return 0 }

// keysOf returns the sorted keys of an event.
func keysOf(ev any) []string {
	var keys []string
	for k := range ev.(map[string]any) {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// TestEventsEncodeAsVLLM encodes the events of a capture again and compares
// the bytes with what the real engine sent.
func TestEventsEncodeAsVLLM(t *testing.T) {
	seen := map[EventKind]int{}
	for _, name := range []string{"01_first", "03_longer_shared_prefix", "05_cache_salt", "07_pressure_evictions", "09_after_reset"} {
		raw, err := os.ReadFile("../../../shared/data/kvevents/bs32_" + name + ".kvcap")
		if err != nil {
			t.Skipf("no capture of a real engine to compare with: %v", err)
		}
		for _, payload := range capturedPayloads(t, raw) {
			batch := decodeBatch(t, payload)
			var evs []Event
			for _, ev := range batch[1].([]any) {
				evs = append(evs, eventFrom(t, ev.(map[string]any)))
				seen[evs[len(evs)-1].Kind]++
			}
			again := appendBatch(nil, batch[0].(float64), evs, 32, noAdapters, 0)
			if !bytes.Equal(again, payload) {
				t.Errorf("%s: encoded %v, the engine sent %v", name, decodeBatch(t, again), batch)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("the captures held kinds %v, want all three", seen)
	}
}

// capturedPayloads reads the third frame of every live message of a capture.
func capturedPayloads(t *testing.T, raw []byte) (out [][]byte) {
	t.Helper()
	raw, ok := bytes.CutPrefix(raw, []byte("KVCAP1\n"))
	if !ok {
		t.Fatal("not a capture")
	}
	for len(raw) > 0 {
		frames := binary.BigEndian.Uint32(raw[8:])
		raw = raw[12:]
		for i := range frames {
			size := binary.BigEndian.Uint32(raw)
			if i == 2 {
				out = append(out, raw[4:4+size])
			}
			raw = raw[4+size:]
		}
	}
	return out
}

// number reads any integer of the generic decoder.
func number(t testing.TB, v any) uint64 {
	t.Helper()
	switch n := v.(type) {
	case int64:
		return uint64(n)
	case uint64:
		return n
	}
	t.Fatalf("%v (%T) is not an integer", v, v)
	return 0
}

// eventFrom turns a decoded event back into ours.
func eventFrom(t testing.TB, m map[string]any) (ev Event) {
	t.Helper()
	switch m["type"] {
	case "BlockStored":
		ev.Kind = BlockStored
	case "BlockRemoved":
		ev.Kind = BlockRemoved
	case "AllBlocksCleared":
		return Event{Kind: AllBlocksCleared}
	}
	for _, h := range m["block_hashes"].([]any) {
		ev.Hashes = append(ev.Hashes, number(t, h))
	}
	if ev.Kind == BlockRemoved {
		return ev
	}
	if p := m["parent_block_hash"]; p != nil {
		ev.Parent, ev.HasParent = number(t, p), true
	}
	for _, id := range m["token_ids"].([]any) {
		ev.Tokens = append(ev.Tokens, uint32(number(t, id)))
	}
	if keys, ok := m["extra_keys"].([]any)[0].([]any); ok {
		ev.Salt = keys[0].(string)
	}
	return ev
}

func TestAdapterEvents(t *testing.T) {
	ev := Event{Kind: BlockStored, Hashes: []uint64{1, 2}, Tokens: []uint32{1, 2}, Adapter: "poet", Salt: "s"}
	got := decodeBatch(t, appendBatch(nil, 1, []Event{ev}, 1, func(string) int { return 7 }, 0))[1].([]any)[0].(map[string]any)
	if got["lora_name"] != "poet" || number(t, got["lora_id"]) != 7 ||
		!reflect.DeepEqual(got["extra_keys"], []any{[]any{"poet", "s"}, []any{"poet"}}) {
		t.Errorf("%v", got)
	}
}

// withEvents is an engine that publishes on free loopback ports.
func withEvents(t *testing.T, cfg Config) *Engine {
	cfg.EventsEndpoint, cfg.ReplayEndpoint = "tcp://127.0.0.1:0", "tcp://127.0.0.1:0"
	cfg.AsFastAsPossible = true
	return sim(t, cfg)
}

// subscribe opens a SUB socket and waits until the engine knows of it.
func subscribe(t *testing.T, e *Engine, topic string) zmq4.Socket {
	t.Helper()
	sub := zmq4.NewSub(context.Background())
	t.Cleanup(func() { _ = sub.Close() })
	if err := sub.SetOption(zmq4.OptionSubscribe, topic); err != nil {
		t.Fatal(err)
	}
	if err := sub.Dial(e.EventsEndpoint()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "subscription", func() bool {
		return len((*e.process.Load())[0].events.pub.(zmq4.Topics).Topics()) > 0
	})
	return sub
}

// live receives one batch and checks its frames.
func live(t *testing.T, sub zmq4.Socket, topic string, seq uint64) []any {
	t.Helper()
	msg, err := sub.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if len(msg.Frames) != 3 || string(msg.Frames[0]) != topic || binary.BigEndian.Uint64(msg.Frames[1]) != seq {
		t.Fatalf("frames %q, want topic %q and sequence %d", msg.Frames, topic, seq)
	}
	return decodeBatch(t, msg.Frames[2])
}

// ask16 makes the engine store n blocks that it has not stored before.
func ask16(t *testing.T, e *Engine, salt string, n int) {
	t.Helper()
	body := `{"prompt":"` + strings.Repeat("abcd", 16*n) + `","max_tokens":1,"cache_salt":"` + salt + `"}`
	if w := ask(t.Context(), e, "/v1/completions", body); w.Code != 200 {
		t.Fatal(w.Body)
	}
}

// replayed asks for batches from a sequence number on and returns theirs.
func replayed(t *testing.T, e *Engine, from uint64) (seqs []uint64) {
	t.Helper()
	dealer := zmq4.NewDealer(context.Background())
	defer dealer.Close()
	if err := dealer.Dial(e.ReplayEndpoint()); err != nil {
		t.Fatal(err)
	}
	if err := dealer.SendMulti(zmq4.NewMsgFrom(nil, binary.BigEndian.AppendUint64(nil, from))); err != nil {
		t.Fatal(err)
	}
	for {
		msg, err := dealer.Recv()
		if err != nil || len(msg.Frames) != 4 || len(msg.Frames[0]) != 0 {
			t.Fatalf("replay answered %q: %v", msg.Frames, err)
		}
		seq := binary.BigEndian.Uint64(msg.Frames[2])
		if seq == endOfReplay {
			if len(msg.Frames[1]) != 0 || len(msg.Frames[3]) != 0 {
				t.Errorf("end marker %q", msg.Frames)
			}
			return seqs
		}
		if string(msg.Frames[1]) != e.cfg.EventsTopic {
			t.Errorf("topic %q", msg.Frames[1])
		}
		decodeBatch(t, msg.Frames[3])
		seqs = append(seqs, seq)
	}
}

func TestEventsOverZeroMQ(t *testing.T) {
	e := withEvents(t, Config{Name: "node1", Model: "tiny"})
	sub := subscribe(t, e, "kv@")
	ask16(t, e, "tenant", 3)
	batch := live(t, sub, "kv@node1@tiny", 0)
	ev := batch[1].([]any)[0].(map[string]any)
	want := []string{"block_hashes", "block_size", "extra_keys", "group_idx", "kv_cache_spec_kind", "lora_id", "lora_name", "medium", "parent_block_hash", "token_ids", "type"}
	if !slices.Equal(keysOf(ev), want) || len(ev["block_hashes"].([]any)) != 3 || len(ev["token_ids"].([]any)) != 48 ||
		!reflect.DeepEqual(ev["extra_keys"], []any{[]any{"tenant"}, nil, nil}) || number(t, batch[2]) != 0 {
		t.Errorf("batch %v", batch)
	}
	// A repeat emits only the block that is never served from the cache.
	ask16(t, e, "tenant", 3)
	if again := live(t, sub, "kv@node1@tiny", 1)[1].([]any); len(again) != 1 || len(again[0].(map[string]any)["block_hashes"].([]any)) != 1 {
		t.Errorf("repeat: %v", again)
	}
	// A reset is told with the next step.
	ask(t.Context(), e, "/reset_prefix_cache", "")
	ask16(t, e, "other", 1)
	if ev := live(t, sub, "kv@node1@tiny", 2)[1].([]any); len(ev) != 2 || !slices.Equal(keysOf(ev[0]), []string{"type"}) {
		t.Errorf("after reset: %v", ev)
	}
	for from, want := range map[uint64][]uint64{0: {0, 1, 2}, 2: {2}, 3: nil, 1_000_000: nil} {
		if got := replayed(t, e, from); !slices.Equal(got, want) {
			t.Errorf("replay from %d: %v, want %v", from, got, want)
		}
	}
}

func TestDroppedEventsCanBeReplayed(t *testing.T) {
	e := withEvents(t, Config{})
	sub := subscribe(t, e, "")
	ask16(t, e, "a", 1)
	live(t, sub, e.cfg.EventsTopic, 0)
	if err := e.SetFault(Fault{Kind: FaultDropEvents, Count: 2}); err != nil {
		t.Fatal(err)
	}
	for _, salt := range []string{"b", "c", "d"} {
		ask16(t, e, salt, 1)
	}
	live(t, sub, e.cfg.EventsTopic, 3)
	if got := replayed(t, e, 1); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("replay: %v", got)
	}
}

func TestReplayBufferIsBounded(t *testing.T) {
	e := withEvents(t, Config{ReplayBatches: 3})
	for _, salt := range []string{"a", "b", "c", "d", "e"} {
		ask16(t, e, salt, 1)
	}
	if got := replayed(t, e, 0); !slices.Equal(got, []uint64{2, 3, 4}) {
		t.Errorf("replay: %v, want the last three", got)
	}
}

func TestRestartBeginsANewSequence(t *testing.T) {
	e := withEvents(t, Config{})
	sub := subscribe(t, e, "")
	ask16(t, e, "a", 1)
	live(t, sub, e.cfg.EventsTopic, 0)
	events, replay := e.EventsEndpoint(), e.ReplayEndpoint()
	if err := e.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := sub.Recv(); err == nil {
		t.Error("the old subscription survived the restart")
	}
	if e.EventsEndpoint() != events || e.ReplayEndpoint() != replay {
		t.Errorf("endpoints moved to %s, %s", e.EventsEndpoint(), e.ReplayEndpoint())
	}
	if got := replayed(t, e, 0); got != nil {
		t.Errorf("a fresh process replays %v", got)
	}
	sub = subscribe(t, e, "")
	ask16(t, e, "b", 1)
	live(t, sub, e.cfg.EventsTopic, 0)
	if _, err := json.Marshal(e.State()); err != nil || e.State().NextSequence != 1 {
		t.Errorf("%+v %v", e.State(), err)
	}
}
