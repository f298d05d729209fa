package report

import (
	"encoding/hex"
	"fmt"
	"testing"

	"warmpath/controlplane/kvevent"
	"warmpath/dataplane/prefix"
)

// TestPrefixDigest compares with Python: hashlib.sha256(str(tuple(ids)).encode()).
func TestPrefixDigest(t *testing.T) {
	ramp, spread := make([]uint32, 80), make([]uint32, 80)
	for i := range ramp {
		ramp[i], spread[i] = uint32(i), uint32(i*7919%151936)
	}
	var scratch []byte
	for _, c := range []struct {
		ids    []uint32
		digest string
	}{
		{nil, "2e38e77b22c314a449e91fafed92a43826ac6aa403ae6a8acb6cf58239fbaf5d"},
		{[]uint32{5}, "666aa17826ad39129d061f3c3467d1b7139904b3448383ec9861b51c7522e553"},
		{[]uint32{1, 2, 3}, "dfd5726d86ed2c8b202855bbea88990ec37a26ab1d2217b55a61b4b6719ff6fd"},
		{ramp, "5f3006cab71f62de6d308e4fce785caf2a1cb0739e863ba7812739a91c930e5a"},
		{spread, "22cbcd376927836f787bef5361fada7d13682f5fd1a07a343e562705f620ec1d"},
		{[]uint32{4294967295, 0}, "a15a737a9501522b77671dbbff8e586f27c57aa195d3ad3ba181d6fbe58806b5"},
	} {
		got, grown := PrefixDigest(c.ids, 64, scratch)
		scratch = grown
		if hex.EncodeToString(got[:]) != c.digest {
			t.Errorf("%.3v: %x, want %s", c.ids, got, c.digest)
		}
	}
}

func TestPrefixDigestAllocs(t *testing.T) {
	ids, scratch := make([]uint32, 64), make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { _, scratch = PrefixDigest(ids, 64, scratch) }); n != 0 {
		t.Errorf("%v allocations a digest, want 0", n)
	}
}

// TestBlockNames: the schemes that are engines' own chains, with blocks larger
// than a unit, as large, and smaller.
func TestBlockNames(t *testing.T) {
	ids := make([]uint32, 70)
	for i := range ids {
		ids[i] = uint32(i)
	}
	chain := []prefix.Hash{1, 2, 3, 4}
	for _, c := range []struct {
		block int
		parts string
	}{
		{16, "[[1] [2] [3] [4]]"},
		{32, "[[1 2] [3 4]]"},
		{8, "[[1] [2] [3] [4]]"},
		{1, "[[1] [2] [3] [4]]"},
		{128, "[]"},
		{0, "[]"},
	} {
		for _, scheme := range []string{SchemeSGLang, SchemeVLLM} {
			s := Scheme{Name: scheme, BlockTokens: c.block}
			names, _ := s.names(nil, &Sent{IDs: ids, Chain: chain, UnitTokens: 16}, nil)
			parts := [][]prefix.Hash{}
			for _, n := range names {
				parts = append(parts, n.parts)
			}
			if got := fmt.Sprint(parts); got != c.parts {
				t.Errorf("%s, blocks of %d: %s, want %s", scheme, c.block, got, c.parts)
			}
		}
	}
	page := kvevent.SGLangPage(kvevent.SGLangRoot([]byte("s")), ids[:16])
	second := kvevent.SGLangPage(page[:], ids[16:32])
	s := Scheme{Name: SchemeSGLang, BlockTokens: 16}
	names, _ := s.names(nil, &Sent{IDs: ids, Chain: chain, UnitTokens: 16, Salt: "s"}, nil)
	if names[0].hash != kvevent.SGLangName(page) || names[1].hash != kvevent.SGLangName(second) {
		t.Errorf("SGLang's: %x", names)
	}
	root := kvevent.VLLMRoot("0")
	first := kvevent.VLLMBlock(root, ids[:16], kvevent.VLLMSalt("s", true))
	s = Scheme{Name: SchemeVLLM, BlockTokens: 16, Seed: "0"}
	names, _ = s.names(nil, &Sent{IDs: ids, Chain: chain, UnitTokens: 16, Salt: "s"}, nil)
	if names[0].hash != kvevent.VLLMName(first) || names[1].hash != kvevent.VLLMName(kvevent.VLLMBlock(first, ids[16:32], nil)) {
		t.Errorf("vLLM's: %x", names)
	}
	s.Seed = ""
	unset, _ := s.names(nil, &Sent{IDs: ids, Chain: chain, UnitTokens: 16}, nil)
	if unset[0].hash != kvevent.VLLMName(kvevent.VLLMBlock(kvevent.VLLMRoot("vllm-none-hash"), ids[:16], nil)) {
		t.Errorf("vLLM's without a seed: %x", unset)
	}
}

// The oldest prompts of a node are forgotten, and the index is told.
func TestPromptsBound(t *testing.T) {
	x := newTwin()
	p := NewPlacer(x, func(string) (uint64, int) { return 7, 16 })
	p.prompts[0] = newPrompts(3)
	send := func(n uint32) {
		ids := make([]uint32, 16)
		ids[0] = n
		p.Noted(Scheme{Name: SchemePrefix, PrefixTokens: 16}, Sent{Slot: 0, UnitTokens: 16, IDs: ids, Chain: []prefix.Hash{prefix.NextUnit(1, ids, nil)}})
	}
	for n := range uint32(3) {
		send(n)
	}
	send(0) // used again, so that 1 is the oldest
	send(3)
	first, _ := PrefixDigest([]uint32{0: 1, 15: 0}, 16, nil)
	if count, _, _ := x.Digest(0, 0); count != 3 || p.prompts[0].find(first.Name()) != nil {
		t.Errorf("%d entries", count)
	}
}
