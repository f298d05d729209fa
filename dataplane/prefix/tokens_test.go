package prefix

import "testing"

func TestTokenChain(t *testing.T) {
	start := func(seed uint64, model, adapter, salt string) Hash {
		return ChainStart(seed, []byte(model), []byte(adapter), []byte(salt))
	}
	ids := make([]uint32, 2*stackTokens)
	for i := range ids {
		ids[i] = uint32(i)
	}
	seen := map[Hash]string{}
	add := func(what string, h Hash) {
		if other, ok := seen[h]; ok || h == 0 {
			t.Errorf("%s has the hash of %s", what, other)
		}
		seen[h] = what
	}
	add("plain", start(1, "m", "", ""))
	add("another seed", start(2, "m", "", ""))
	add("an adapter", start(1, "m", "a", ""))
	add("a salt of the adapter's name", start(1, "m", "", "a"))
	add("a longer model name", start(1, "ma", "", ""))
	root := start(1, "m", "", "")
	add("a unit", NextUnit(root, ids[:16], nil))
	add("a unit with an image", NextUnit(root, ids[:16], []byte("image")))
	add("a shorter unit", NextUnit(root, ids[:15], nil))
	add("a unit elsewhere", NextUnit(start(2, "m", "", ""), ids[:16], nil))
	add("a long unit", NextUnit(root, ids, nil))
	add("the first half of it", NextUnit(root, ids[:stackTokens], nil))
	if NextUnit(root, ids, nil) != NextUnit(root, ids, []byte{}) {
		t.Error("an empty extra is not none")
	}
}

func TestTokenChainAllocs(t *testing.T) {
	ids, model := make([]uint32, 64), []byte("m")
	if n := testing.AllocsPerRun(100, func() { NextUnit(ChainStart(1, model, nil, nil), ids, nil) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkNextUnit(b *testing.B) {
	ids := make([]uint32, 16)
	h := Hash(1)
	b.SetBytes(64)
	for b.Loop() {
		h = NextUnit(h, ids, nil)
	}
}
