package kvevent

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"warmpath/scenariotest"
)

func TestDecodeScenarios(t *testing.T) {
	var d Decoder
	scenariotest.Run(t, "testdata/decode.txt", func(t *testing.T, c scenariotest.Case) string {
		b, err := d.Decode(pack(t, strings.Join(c.Lines(), "\n")))
		if err != nil {
			return "error: " + err.Error() + "\n"
		}
		return dump(b)
	})
}

// commonBatch is what vLLM sends for a prompt chunk: a stored run and, before
// it, a removal for each block.
func commonBatch(blocks, blockTokens int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := msgp.AppendArrayHeader(nil, 3)
	b = msgp.AppendFloat64(b, 1.5e9)
	b = msgp.AppendArrayHeader(b, uint32(blocks+1))
	for range blocks {
		b = msgp.AppendMapHeader(b, 4)
		b = msgp.AppendString(msgp.AppendString(b, "type"), "BlockRemoved")
		b = msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), 1)
		b = msgp.AppendUint64(b, r.Uint64())
		b = msgp.AppendString(msgp.AppendString(b, "medium"), "GPU")
		b = msgp.AppendInt(msgp.AppendString(b, "group_idx"), 0)
	}
	b = msgp.AppendMapHeader(b, 8)
	b = msgp.AppendString(msgp.AppendString(b, "type"), "BlockStored")
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "block_hashes"), uint32(blocks))
	for range blocks {
		b = msgp.AppendUint64(b, r.Uint64())
	}
	b = msgp.AppendNil(msgp.AppendString(b, "parent_block_hash"))
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "token_ids"), uint32(blocks*blockTokens))
	for range blocks * blockTokens {
		b = msgp.AppendUint32(b, r.Uint32N(151936))
	}
	b = msgp.AppendInt(msgp.AppendString(b, "block_size"), blockTokens)
	b = msgp.AppendString(msgp.AppendString(b, "medium"), "GPU")
	b = msgp.AppendString(msgp.AppendString(b, "lora_name"), "poet")
	b = msgp.AppendArrayHeader(msgp.AppendString(b, "extra_keys"), uint32(blocks))
	for range blocks {
		b = msgp.AppendString(msgp.AppendArrayHeader(b, 1), "poet")
	}
	return msgp.AppendInt(b, 0)
}

func TestDecodeAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var d Decoder
	payload := commonBatch(512, 16)
	if n := testing.AllocsPerRun(20, func() {
		if b, err := d.Decode(payload); err != nil || len(b.Events) != 2 || len(b.Events[0].Hashes) != 512 || b.Dropped != (Drops{}) {
			t.Fatalf("%v, %d events, dropped %v", err, len(b.Events), b.Dropped)
		}
	}); n != 0 {
		t.Errorf("decoding allocates %v times", n)
	}
}

func BenchmarkDecode(b *testing.B) {
	var d Decoder
	payload := commonBatch(512, 16)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(payload); err != nil {
			b.Fatal(err)
		}
	}
}

// A batch of more events than the bound loses those beyond it alone.
func TestDecodeBoundsEvents(t *testing.T) {
	for _, n := range []int{maxEvents, maxEvents + 1, maxEvents + 10} {
		b := msgp.AppendArrayHeader(nil, 2)
		b = msgp.AppendFloat64(b, 0)
		b = msgp.AppendArrayHeader(b, uint32(n))
		for range n {
			b = msgp.AppendString(msgp.AppendArrayHeader(b, 1), "AllBlocksCleared")
		}
		var d Decoder
		batch, err := d.Decode(b)
		if err != nil || len(batch.Events) != min(n, maxEvents) || batch.Dropped[TooMany] != uint64(max(0, n-maxEvents)) {
			t.Errorf("%d events: %d read, %d dropped: %v", n, len(batch.Events), batch.Dropped[TooMany], err)
		}
	}
}

// Names beyond what is remembered are read all the same.
func TestNamesAreBounded(t *testing.T) {
	var d Decoder
	for i := range 3 * maxInterned {
		name := []byte(strings.Repeat("x", i%(2*maxInternedBytes)) + string(rune('a'+i%26)))
		if got := d.intern(name); got != string(name) {
			t.Fatalf("%q came back as %q", name, got)
		}
		if len(d.names) > maxInterned {
			t.Fatalf("%d names remembered", len(d.names))
		}
	}
}

// Equal extra keys give equal bytes, whoever encoded them.
func TestExtraKeysAreCanonical(t *testing.T) {
	short := []byte{0x94, 0xA3, 'i', 'm', 'g', 5, 0xC4, 1, 7, 0xD4, 1, 2}
	long := []byte{0xDC, 0, 4, 0xDA, 0, 3, 'i', 'm', 'g', 0xCF, 0, 0, 0, 0, 0, 0, 0, 5, 0xC6, 0, 0, 0, 1, 7, 0xD4, 1, 2}
	for _, b := range [][]byte{short, long} {
		if got, rest, err := appendCanonical(nil, b); err != nil || len(rest) > 0 || !bytes.Equal(got, short) {
			t.Errorf("%x became %x, %d left: %v", b, got, len(rest), err)
		}
	}
}

// FuzzDecode feeds anything: no panic, and what is read keeps its promises.
func FuzzDecode(f *testing.F) {
	f.Add(commonBatch(3, 2))
	f.Add(commonBatch(3, 2)[:150])
	f.Add(pack(f, `{"ts":1.5,"events":[["BlockStored",["$bin:0011",-1,"ff"],0,[[1,2],[3,4]],1,3,"CPU",{"cache_salt":"s"}],["X"]],"data_parallel_rank":2}`))
	f.Add(pack(f, `[1.5,[{"extra_keys":[["a",["b",1],{"k":[1.5]},"$bin:00"],null],"type":"BlockStored","block_hashes":[1,2],"token_ids":[1,2],"block_size":1}]]`))
	f.Add(bytes.Repeat([]byte{0x91}, 100000))
	f.Add([]byte{0x92, 0xCB, 0, 0, 0, 0, 0, 0, 0, 0, 0xDD, 0xFF, 0xFF, 0xFF, 0xFF})
	f.Add([]byte{0xDF, 0xFF, 0xFF, 0xFF, 0xFF, 0xA6, 'e', 'v', 'e', 'n', 't', 's'})
	var d Decoder
	var again Batch
	x := newTwin()
	f.Fuzz(func(t *testing.T, payload []byte) {
		b, err := d.Decode(payload)
		events, hashes, tokens := uint64(0), 0, 0
		for i := range b.Events {
			e := &b.Events[i]
			if e.Kind < Stored || e.Kind > Cleared || e.Merged < 1 || e.Group < NotSaid || e.BlockTokens < 0 || e.Medium > OtherMedium {
				t.Fatalf("event %+v", e)
			}
			events += uint64(e.Merged)
			hashes, tokens = hashes+len(e.Hashes), tokens+len(e.Tokens)
			for j := range e.Hashes {
				if _, err := skip(e.Extra(j)); len(e.Extra(j)) > 0 && err != nil {
					t.Fatalf("extra keys %x: %v", e.Extra(j), err)
				}
			}
		}
		if hashes+tokens > len(payload) || b.Rank < NotSaid {
			t.Fatalf("%d hashes and %d tokens of %d bytes, rank %d", hashes, tokens, len(payload), b.Rank)
		}
		for _, n := range b.Dropped {
			events += n
		}
		if err == nil && events > uint64(len(payload)) {
			t.Fatalf("%d events of %d bytes", events, len(payload))
		}
		text := dump(b)
		if err2 := new(Decoder).DecodeInto(&again, payload); (err == nil) != (err2 == nil) || dump(&again) != text {
			t.Fatalf("decoded again: %v\n%s\nfirst %v\n%s", err2, dump(&again), err, text)
		}
		tracker := NewTracker(TrackerOptions{UnitTokens: 4, Model: "m", TailBytes: 10000}, x)
		tracker.Apply(b)
		tracker.Clear()
	})
}
