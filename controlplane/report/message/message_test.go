package message

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"warmpath/dataplane/index"
)

// samples are reports as reporters build them.
func samples() []*Report {
	common := Report{WorkerID: "gpu-a", Epoch: "9f86d081884c7d65", Seq: math.MaxUint64, Rank: 3, Model: "qwen \"3\"", Tier: index.Host, Part: 1, Parts: 1}
	stored, evicted, digest, full, parts, blocks, empty := common, common, common, common, common, common, common
	stored.Blocks = []Block{
		{Hash: 1, Tokens: []uint32{0, 1, math.MaxUint32}, BlockTokens: 3, Adapter: "lora-é", Salt: "s\n", Extra: []byte{0, 255}},
		{Hash: math.MaxUint64, Parent: 1, HasParent: true, Tokens: []uint32{7}, BlockTokens: 1},
		{Hash: 5, Parent: 0, HasParent: true, Tokens: []uint32{}},
	}
	evicted.Route, evicted.Evicted.Short = Eviction, []uint64{0, 1 << 63, math.MaxUint64}
	digest.Route, digest.HasDigest, digest.Digest = Sync, true, Digest{3, 1 << 63, 12}
	full.Route, full.Full, full.Active.Short = Sync, true, []uint64{4, 5}
	full.HasDigest, full.Digest = true, Digest{2, 1, 9}
	parts.Route, parts.Full, parts.Part, parts.Parts, parts.Active.Short = Sync, true, 2, MaxParts, []uint64{}
	blocks.Route, blocks.Blocks = Sync, stored.Blocks[:1]
	empty.Blocks = []Block{}
	minimal := &Report{Route: Eviction, WorkerID: "gpu-b", Part: 1, Parts: 1, Evicted: Hashes{Long: []SHA256{{1, 2}, {31: 9}}}}
	active := &Report{Route: Sync, WorkerID: "gpu-b", Part: 1, Parts: 1, Full: true, Active: Hashes{Short: []uint64{1}}}
	return []*Report{&stored, &evicted, &digest, &full, &parts, &blocks, &empty, minimal, active}
}

// meaning is what a report says, whatever was on the wire besides.
func meaning(r *Report) Report {
	m := *r
	m.hasActive, m.hasBlocks, m.hasEvicted = false, false, false
	m.Evicted.Short, m.Active.Short = append([]uint64{}, m.Evicted.Short...), append([]uint64{}, m.Active.Short...)
	m.Blocks = append([]Block{}, m.Blocks...)
	for i := range m.Blocks {
		m.Blocks[i].Tokens = append([]uint32{}, m.Blocks[i].Tokens...)
		m.Blocks[i].Extra = append([]byte{}, m.Blocks[i].Extra...)
	}
	return m
}

func TestRoundTrip(t *testing.T) {
	for _, want := range samples() {
		fromJSON, err := DecodeJSON(want.Route, want.AppendJSON(nil))
		if err != nil {
			t.Fatalf("%s: %v", want.AppendJSON(nil), err)
		}
		fromPack, err := DecodeMsgpack(want.Route, want.AppendMsgpack(nil))
		if err != nil {
			t.Fatalf("%s: %v", want.AppendJSON(nil), err)
		}
		if got := meaning(fromJSON); !reflect.DeepEqual(got, meaning(want)) {
			t.Errorf("JSON: got %+v\nwant %+v", got, meaning(want))
		}
		if got := meaning(fromPack); !reflect.DeepEqual(got, meaning(want)) {
			t.Errorf("MessagePack: got %+v\nwant %+v", got, meaning(want))
		}
	}
}

func TestAnswerRoundTrip(t *testing.T) {
	for _, want := range []Answer{{}, {Seq: math.MaxUint64, Want: WantFull}, {Seq: 1, WantBlocks: []uint64{0, 1, math.MaxUint64}}} {
		fromJSON, err := DecodeAnswerJSON(want.AppendJSON(nil))
		if err != nil || !reflect.DeepEqual(*fromJSON, want) {
			t.Errorf("JSON: got %+v, want %+v: %v", fromJSON, want, err)
		}
		fromPack, err := DecodeAnswerMsgpack(want.AppendMsgpack(nil))
		if err != nil || !reflect.DeepEqual(*fromPack, want) {
			t.Errorf("MessagePack: got %+v, want %+v: %v", fromPack, want, err)
		}
	}
	for _, bad := range []string{"", "[]", `{"seq":-1}`, `{"want_blocks":["x"]}`, `{"want_blocks":5}`} {
		if _, err := DecodeAnswerJSON([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, err := DecodeAnswerMsgpack([]byte{0x90}); err == nil {
		t.Error("a list was taken")
	}
}

// TestGoldenJSON fixes the names on the wire.
func TestGoldenJSON(t *testing.T) {
	want := []string{
		`{"worker_id":"gpu-a","epoch":"9f86d081884c7d65","seq":18446744073709551615,"rank":3,"model":"qwen \"3\"","tier":"host","blocks":[` +
			`{"hash":"0000000000000001","token_ids":[0,1,4294967295],"block_tokens":3,"adapter":"lora-é","salt":"s\n","extra":"00ff"},` +
			`{"hash":"ffffffffffffffff","parent":"0000000000000001","token_ids":[7],"block_tokens":1},` +
			`{"hash":"0000000000000005","parent":"0000000000000000","token_ids":[],"block_tokens":0}]}`,
		`{"worker_id":"gpu-a","epoch":"9f86d081884c7d65","seq":18446744073709551615,"rank":3,"model":"qwen \"3\"","tier":"host","evicted_hashes":["0000000000000000","8000000000000000","ffffffffffffffff"]}`,
		`{"worker_id":"gpu-a","epoch":"9f86d081884c7d65","seq":18446744073709551615,"rank":3,"model":"qwen \"3\"","tier":"host","digest":{"count":3,"xor":"8000000000000000","sum":"000000000000000c"}}`,
	}
	for i, r := range samples()[:len(want)] {
		if got := string(r.AppendJSON(nil)); got != want[i] {
			t.Errorf("got  %s\nwant %s", got, want[i])
		}
	}
}

func TestWrongJSON(t *testing.T) {
	const ok = `"worker_id":"w","epoch":"e","seq":1`
	for _, c := range []struct {
		route       Route
		body, field string
	}{
		{Stored, `[]`, "body"},
		{Stored, `{`, "body"},
		{Stored, `{}`, "worker_id"},
		{Stored, `{"worker_id":5}`, "worker_id"},
		{Stored, `{"worker_id":"` + strings.Repeat("w", 64) + `"}`, "worker_id"},
		{Stored, `{"worker_id":"w","blocks":[]}`, "epoch"},
		{Stored, `{"worker_id":"w","epoch":"e","blocks":[]}`, "seq"},
		{Stored, `{"worker_id":"w","seq":1,"blocks":[]}`, "epoch"},
		{Stored, `{"worker_id":"w","seq":-1}`, "seq"},
		{Stored, `{"worker_id":"w","epoch":1.5,"seq":1}`, "epoch"},
		{Stored, `{"worker_id":"w","epoch":"` + strings.Repeat("e", 65) + `","seq":1}`, "epoch"},
		{Stored, `{` + ok + `,"rank":-1}`, "rank"},
		{Stored, `{` + ok + `,"rank":256}`, "rank"},
		{Stored, `{` + ok + `,"tier":"gpu"}`, "tier"},
		{Stored, `{` + ok + `,"tier":1}`, "tier"},
		{Stored, `{` + ok + `,"model":1}`, "model"},
		{Stored, `{` + ok + `,"model":"` + strings.Repeat("m", 257) + `"}`, "model"},
		{Stored, `{` + ok + `,"part":1}`, "parts"},
		{Stored, `{` + ok + `,"part":3,"parts":2}`, "part"},
		{Stored, `{` + ok + `,"part":1,"parts":65}`, "parts"},
		{Stored, `{` + ok + `}`, "blocks"},
		{Stored, `{` + ok + `,"blocks":{}}`, "blocks"},
		{Stored, `{` + ok + `,"blocks":[null]}`, "blocks[0]"},
		{Stored, `{` + ok + `,"blocks":[{}]}`, "blocks[0].hash"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"00"}]}`, "blocks[0].hash"},
		{Stored, `{` + ok + `,"blocks":[{"hash":5}]}`, "blocks[0].hash"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"000000000000000g"}]}`, "blocks[0].hash"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"0000000000000001","parent":"x"}]}`, "blocks[0].parent"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"0000000000000001","parent":"0000000000000001","token_ids":[1]}]}`, "blocks[0].parent"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"0000000000000001"},{"hash":"0000000000000001","token_ids":[-1]}]}`, "blocks[1].token_ids"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"0000000000000001","token_ids":[4294967296]}]}`, "blocks[0].token_ids"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"0000000000000001","token_ids":[1,2],"block_tokens":3}]}`, "blocks[0].block_tokens"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"0000000000000001","token_ids":[1],"extra":"0"}]}`, "blocks[0].extra"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"0000000000000001","token_ids":[1],"adapter":"` + strings.Repeat("a", 257) + `"}]}`, "blocks[0].adapter"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"0000000000000001","token_ids":[1],"salt":"` + strings.Repeat("a", 1025) + `"}]}`, "blocks[0].salt"},
		{Stored, `{` + ok + `,"blocks":[{"hash":"0000000000000001","token_ids":[1],"extra":"` + strings.Repeat("ab", 4097) + `"}]}`, "blocks[0].extra"},
		{Eviction, `{` + ok + `}`, "evicted_hashes"},
		{Eviction, `{` + ok + `,"evicted_hashes":5}`, "evicted_hashes"},
		{Eviction, `{` + ok + `,"evicted_hashes":["0000000000000001",5]}`, "evicted_hashes[1]"},
		{Eviction, `{` + ok + `,"evicted_hashes":["1"]}`, "evicted_hashes[0]"},
		{Eviction, `{` + ok + `,"evicted_hashes":["0000000000000001","` + strings.Repeat("0", 64) + `"]}`, "evicted_hashes[1]"},
		{Eviction, `{"worker_id":"w","evicted_hashes":["` + strings.Repeat("0", 64) + `","0000000000000001"]}`, "evicted_hashes[1]"},
		{Eviction, `{"worker_id":"w","evicted_hashes":["` + strings.Repeat("x", 64) + `"]}`, "evicted_hashes[0]"},
		{Eviction, `{` + ok + `,"evicted_hashes":["` + strings.Repeat("0", 64) + `"]}`, "evicted_hashes"},
		{Sync, `{` + ok + `}`, "digest"},
		{Sync, `{` + ok + `,"digest":5}`, "digest"},
		{Sync, `{` + ok + `,"digest":{}}`, "digest.count"},
		{Sync, `{` + ok + `,"digest":{"count":1}}`, "digest.xor"},
		{Sync, `{` + ok + `,"digest":{"count":1,"xor":"0000000000000001"}}`, "digest.sum"},
		{Sync, `{` + ok + `,"digest":{"count":1,"xor":1}}`, "digest.xor"},
		{Sync, `{` + ok + `,"digest":{"count":1,"xor":"1","sum":"0000000000000001"}}`, "digest.xor"},
		{Sync, `{` + ok + `,"full":true}`, "active_hashes"},
		{Sync, `{` + ok + `,"full":"yes"}`, "full"},
		{Sync, `{` + ok + `,"active_hashes":[]}`, "full"},
		{Sync, `{` + ok + `,"full":true,"active_hashes":["` + strings.Repeat("0", 64) + `"]}`, "active_hashes"},
		{Sync, `{"worker_id":"w","digest":{"count":0,"xor":"0000000000000000","sum":"0000000000000000"}}`, "digest"},
		{Sync, `{"worker_id":"w","active_hashes":[],"blocks":[]}`, "epoch"},
		{Sync, `{"worker_id":"w","active_hashes":[],"part":1,"parts":2}`, "parts"},
	} {
		_, err := DecodeJSON(c.route, []byte(c.body))
		field, ok := err.(*FieldError)
		if !ok || field.Field != c.field || field.What == "" || field.Remedy == "" {
			t.Errorf("%s %.100s: %v, want a fault of %s", c.route, c.body, err, c.field)
		}
	}
}

func TestWrongMsgpack(t *testing.T) {
	// build makes a good report with one field in place of its own.
	build := func(name string, value []byte) []byte {
		b := msgp.AppendMapHeader(nil, 5)
		for _, f := range []struct {
			name  string
			value []byte
		}{
			{"worker_id", msgp.AppendString(nil, "w")},
			{"epoch", msgp.AppendUint64(nil, 1)},
			{"seq", msgp.AppendUint64(nil, 1)},
			{"evicted_hashes", msgp.AppendArrayHeader(nil, 0)},
			{"full", msgp.AppendBool(nil, false)},
		} {
			b = msgp.AppendString(b, f.name)
			if f.name == name {
				b = append(b, value...)
			} else {
				b = append(b, f.value...)
			}
		}
		return b
	}
	number, text := msgp.AppendInt(nil, -5), msgp.AppendString(nil, "x")
	list := func(values ...[]byte) []byte {
		return append(msgp.AppendArrayHeader(nil, uint32(len(values))), bytes.Join(values, nil)...)
	}
	for _, c := range []struct {
		body  []byte
		field string
	}{
		{nil, "body"},
		{text, "body"},
		{append(build("", nil), 0xc0), "body"},
		{build("", nil)[:40], "evicted_hashes"},
		{[]byte{0x81, 0xc0, 0xc0}, "body"},
		{build("worker_id", number), "worker_id"},
		{build("epoch", number), "epoch"},
		{build("seq", text), "seq"},
		{build("evicted_hashes", text), "evicted_hashes"},
		{build("evicted_hashes", msgp.AppendArrayHeader(nil, math.MaxUint32)), "evicted_hashes"},
		{build("evicted_hashes", list(text)), "evicted_hashes[0]"},
		{build("evicted_hashes", list(number, msgp.AppendBytes(nil, make([]byte, 32)))), "evicted_hashes[1]"},
		{build("evicted_hashes", list(msgp.AppendBytes(nil, make([]byte, 31)))), "evicted_hashes[0]"},
		{build("evicted_hashes", list(msgp.AppendBool(nil, true))), "evicted_hashes[0]"},
		{build("full", number), "full"},
	} {
		_, err := DecodeMsgpack(Eviction, c.body)
		if field, ok := err.(*FieldError); !ok || field.Field != c.field {
			t.Errorf("%x: %v, want a fault of %s", c.body, err, c.field)
		}
	}
	for _, c := range []struct {
		block []byte
		field string
	}{
		{number, "blocks[0].block"},
		{msgp.AppendMapHeader(nil, 0), "blocks[0].hash"},
		{pair("hash", text), "blocks[0].hash"},
		{pair("parent", text), "blocks[0].parent"},
		{pair("token_ids", text), "blocks[0].token_ids"},
		{pair("token_ids", list(number)), "blocks[0].token_ids[0]"},
		{pair("block_tokens", text), "blocks[0].block_tokens"},
		{pair("adapter", number), "blocks[0].adapter"},
		{pair("salt", number), "blocks[0].salt"},
		{pair("extra", number), "blocks[0].extra"},
	} {
		body := append(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "blocks"), list(c.block)...)
		_, err := DecodeMsgpack(Stored, body)
		if field, ok := err.(*FieldError); !ok || field.Field != c.field {
			t.Errorf("%x: %v, want a fault of %s", body, err, c.field)
		}
	}
}

func pair(name string, value []byte) []byte {
	return append(msgp.AppendString(msgp.AppendMapHeader(nil, 1), name), value...)
}

// Unknown fields, nulls and other forms of the same values are taken.
func TestLenient(t *testing.T) {
	r, err := DecodeJSON(Stored, []byte(`{"x":{"y":[1]},"worker_id":"w","epoch":18446744073709551615,"seq":1,"tier":null,"model":null,
		"evicted_hashes":["0000000000000001"],"active_hashes":null,"blocks":[{"hash":"00000000000000aB","parent":null,"token_ids":[1],"z":1}]}`))
	if err != nil || r.Epoch != "18446744073709551615" || r.Tier != index.Device || r.Evicted.Len() != 0 || r.Blocks[0].Hash != 0xab || r.Blocks[0].HasParent || r.Blocks[0].BlockTokens != 1 {
		t.Errorf("%+v %v", r, err)
	}
	r, err = DecodeJSON(Sync, []byte("{\"worker_id\":\"w\",\"active_hashes\":[ \"0000000000000001\" ,\n\t\"0000000000000002\"]}"))
	if err != nil || !r.Minimal() || !r.Full || len(r.Active.Short) != 2 {
		t.Errorf("%+v %v", r, err)
	}
	body := msgp.AppendMapHeader(nil, 3)
	body = msgp.AppendNil(msgp.AppendString(body, "unknown"))
	body = msgp.AppendString(msgp.AppendString(body, "worker_id"), "w")
	body = msgp.AppendArrayHeader(msgp.AppendString(body, "evicted_hashes"), 2)
	body = msgp.AppendInt64(body, -1)
	body = msgp.AppendInt64(body, math.MinInt64)
	r, err = DecodeMsgpack(Eviction, body)
	if err != nil || r.Evicted.Short[0] != math.MaxUint64 || r.Evicted.Short[1] != 1<<63 {
		t.Errorf("%+v %v", r, err)
	}
	digest := strings.Repeat("0f", 32)
	body = msgp.AppendMapHeader(nil, 2)
	body = msgp.AppendString(msgp.AppendString(body, "worker_id"), "w")
	body = msgp.AppendString(msgp.AppendArrayHeader(msgp.AppendString(body, "evicted_hashes"), 1), digest)
	r, err = DecodeMsgpack(Eviction, body)
	if err != nil || hex.EncodeToString(r.Evicted.Long[0][:]) != digest || r.Evicted.Long[0].Name() != 0x0f0f0f0f0f0f0f0f || r.Evicted.Long[0].Tail() != 0x0f0f0f0f0f0f0f0f {
		t.Errorf("%+v %v", r, err)
	}
}

// TestBound tries the lists at their bounds and one beyond.
func TestBound(t *testing.T) {
	if raceEnabled {
		t.Skip("millions of elements; without the race detector")
	}
	for _, c := range []struct {
		n  int
		ok bool
	}{{MaxHashes, true}, {MaxHashes + 1, false}} {
		r := Report{Route: Eviction, WorkerID: "w", Epoch: "e", Seq: 1, Evicted: Hashes{Short: make([]uint64, c.n)}}
		if _, err := DecodeMsgpack(Eviction, r.AppendMsgpack(nil)); (err == nil) != c.ok {
			t.Errorf("%d hashes in MessagePack: %v", c.n, err)
		}
		if _, err := DecodeJSON(Eviction, r.AppendJSON(nil)); (err == nil) != c.ok {
			t.Errorf("%d hashes in JSON: %v", c.n, err)
		}
	}
	for _, c := range []struct {
		n  int
		ok bool
	}{{MaxBlocks, true}, {MaxBlocks + 1, false}} {
		r := Report{Route: Stored, WorkerID: "w", Epoch: "e", Seq: 1, Blocks: make([]Block, c.n)}
		if _, err := DecodeMsgpack(Stored, r.AppendMsgpack(nil)); (err == nil) != c.ok {
			t.Errorf("%d blocks: %v", c.n, err)
		}
	}
	for _, c := range []struct {
		n  int
		ok bool
	}{{MaxBlockTokens, true}, {MaxBlockTokens + 1, false}} {
		r := Report{Route: Stored, WorkerID: "w", Epoch: "e", Seq: 1, Blocks: []Block{{Hash: 1, Tokens: make([]uint32, c.n), BlockTokens: c.n}}}
		if _, err := DecodeJSON(Stored, r.AppendJSON(nil)); (err == nil) != c.ok {
			t.Errorf("%d tokens in JSON: %v", c.n, err)
		}
		if _, err := DecodeMsgpack(Stored, r.AppendMsgpack(nil)); (err == nil) != c.ok {
			t.Errorf("%d tokens in MessagePack: %v", c.n, err)
		}
	}
}

// FuzzDecode: whatever is taken says the same in both encodings, and again.
func FuzzDecode(f *testing.F) {
	for _, r := range samples() {
		f.Add(uint8(r.Route), false, r.AppendJSON(nil))
		f.Add(uint8(r.Route), true, r.AppendMsgpack(nil))
	}
	for _, s := range []string{`{"worker_id":"w","evicted_hashes":["`, `{"worker_id":"w","active_hashes":[]}`, `{"blocks":[{"hash":null}]}`} {
		f.Add(uint8(2), false, []byte(s))
	}
	f.Fuzz(func(t *testing.T, route uint8, packed bool, body []byte) {
		decode := DecodeJSON
		if packed {
			decode = DecodeMsgpack
		}
		r, err := decode(Route(route%3), body)
		if err != nil {
			if _, ok := err.(*FieldError); !ok {
				t.Fatalf("an error without a field: %v", err)
			}
			return
		}
		if packed { // JSON has no bytes that are no UTF-8
			r.WorkerID, r.Epoch, r.Model = strings.ToValidUTF8(r.WorkerID, "?"), strings.ToValidUTF8(r.Epoch, "?"), strings.ToValidUTF8(r.Model, "?")
			for i := range r.Blocks {
				r.Blocks[i].Adapter, r.Blocks[i].Salt = strings.ToValidUTF8(r.Blocks[i].Adapter, "?"), strings.ToValidUTF8(r.Blocks[i].Salt, "?")
			}
		}
		a, err := DecodeJSON(r.Route, r.AppendJSON(nil))
		if err != nil {
			t.Fatalf("our JSON is refused: %v: %s", err, r.AppendJSON(nil))
		}
		b, err := DecodeMsgpack(r.Route, r.AppendMsgpack(nil))
		if err != nil {
			t.Fatalf("our MessagePack is refused: %v: %+v", err, r)
		}
		if x, y := fmt.Sprintf("%+v", meaning(a)), fmt.Sprintf("%+v", meaning(b)); x != y || x != fmt.Sprintf("%+v", meaning(r)) {
			t.Fatalf("the encodings differ:\n%+v\n%s\n%s", r, x, y)
		}
	})
}

// FuzzAnswer: no answer breaks a reporter.
func FuzzAnswer(f *testing.F) {
	a := Answer{Seq: 3, Want: WantFull, WantBlocks: []uint64{1}}
	f.Add(a.AppendJSON(nil))
	f.Add(a.AppendMsgpack(nil))
	f.Fuzz(func(_ *testing.T, body []byte) {
		_, _ = DecodeAnswerJSON(body)
		_, _ = DecodeAnswerMsgpack(body)
	})
}
