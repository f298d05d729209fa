package prefix

import "github.com/cespare/xxhash/v2"

// Hash identifies a whole prefix up to the end of one unit: a 64-bit hash over
// (parent Hash, the unit's content). Zero is never a valid Hash.
type Hash uint64

// TextUnitBytes is the length of the first units of the text chain, and
// TextUnitTokens what they are estimated to hold (4 bytes a token).
const (
	TextUnitBytes  = 256
	TextUnitTokens = 64
)

// Units grow with depth: where a prompt is long it is enough to know to within a
// sixteenth or so how much of it is held, and a long unit is hashed at four times
// the rate and costs the index one entry.
const (
	shortUnits   = 64 // of weight 1: 16 KiB
	mediumUnits  = 48 // of mediumWeight: up to 64 KiB
	mediumWeight = 4
	longWeight   = 16

	shortBytes  = shortUnits * TextUnitBytes
	mediumBytes = mediumUnits * mediumWeight * TextUnitBytes
)

// TextUnitWeight returns how many times TextUnitBytes long the unit of that index
// of a text chain is.
func TextUnitWeight(i int) int {
	switch {
	case i < shortUnits:
		return 1
	case i < shortUnits+mediumUnits:
		return mediumWeight
	default:
		return longWeight
	}
}

// TextWeight returns the weight of the first n units of a text chain together.
func TextWeight(n int) int {
	short := min(n, shortUnits)
	medium := min(n-short, mediumUnits)
	return short + medium*mediumWeight + (n-short-medium)*longWeight
}

// TextTokens is what the first n units of a text chain are estimated to hold.
func TextTokens(n int) int { return TextWeight(n) * TextUnitTokens }

// TextUnits returns how many leading units of a text chain hold at least that
// many tokens.
func TextUnits(tokens int) int {
	left := (max(tokens, 0) + TextUnitTokens - 1) / TextUnitTokens
	short := min(left, shortUnits)
	left -= short
	medium := min((left+mediumWeight-1)/mediumWeight, mediumUnits)
	left = max(left-medium*mediumWeight, 0)
	return short + medium + (left+longWeight-1)/longWeight
}

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
