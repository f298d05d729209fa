package prefix

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

// stackTokens is how many ids are hashed at a time: most units are 16 or 32
// tokens, and a larger buffer costs more to clear than it saves.
const stackTokens = 32

// ChainStart is the parent of the first unit of a token chain: a hash of the
// fleet's seed, the model's canonical name, the adapter and the cache salt.
// Chains of different models, adapters or salts share nothing.
func ChainStart(seed uint64, model, adapter, salt []byte) Hash {
	h := seed
	for _, field := range [...][]byte{model, adapter, salt} {
		// Each field is hashed by itself, so none can trade bytes with the next.
		h = xxh3.HashSeed(field, h+1)
	}
	return Hash(nonZero(h))
}

// NextUnit is the Hash of the unit of ids that follows parent. extra is what
// an engine folds into this unit besides its tokens (the identity of an image,
// say); empty for none.
//
// It is XXH3-64 over the ids as little-endian uint32, seeded by the parent:
// for the 64 bytes of a unit six times as fast as xxhash64, which text chains
// use for their longer units.
func NextUnit(parent Hash, ids []uint32, extra []byte) Hash {
	h := uint64(parent)
	var buffer [4 * stackTokens]byte
	for {
		n := min(len(ids), stackTokens)
		for i, id := range ids[:n] {
			binary.LittleEndian.PutUint32(buffer[4*i:], id)
		}
		h = xxh3.HashSeed(buffer[:4*n], h)
		if ids = ids[n:]; len(ids) == 0 {
			break
		}
	}
	if len(extra) > 0 {
		h = xxh3.HashSeed(extra, ^h)
	}
	return Hash(nonZero(h))
}
