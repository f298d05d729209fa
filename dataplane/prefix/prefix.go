package prefix

import "github.com/cespare/xxhash/v2"

// Hash identifies a whole prefix up to the end of one unit: a 64-bit hash over
// (parent Hash, the unit's content). Zero is never a valid Hash.
type Hash uint64

// TextUnitBytes is the length of one chunk of the text chain, and TextUnitTokens
// what it is estimated to hold (4 bytes a token).
const (
	TextUnitBytes  = 256
	TextUnitTokens = 64
)

// Seed turns the configured seed of the fleet (any text) into the seed of its
// chains. Replicas with the same text get the same seed.
func Seed(text string) uint64 { return xxhash.Sum64String(text) }

// SessionKey hashes the id of a session, as it came in a header or in the raw
// bytes of a JSON string. It is 0 if and only if raw is empty: no session.
func SessionKey(raw []byte) uint64 {
	if len(raw) == 0 {
		return 0
	}
	return nonZero(xxhash.Sum64(raw))
}

// nonZero keeps zero free for "no key" and "no hash".
func nonZero(h uint64) uint64 {
	if h == 0 {
		return 1
	}
	return h
}
