package soak

import "strconv"

// lineBytes is the length of a line of text. Each names its owner and its
// number, so that bytes in the wrong place say where they came from.
const lineBytes = 64

// filler follows owner and number; it rotates, so that lines differ by more
// than a digit.
const filler = "the-quick-brown-fox-jumps-over-the-lazy-dog-0123456789-ABCDEFGHIJKLMNOPQRSTUVWXYZ-"

// appendText appends n bytes of the owner's text: no byte of it needs an escape
// in JSON or a line break in an event stream.
func appendText(dst []byte, owner string, n int) []byte {
	end := len(dst) + n
	for line := 0; len(dst) < end; line++ {
		start := len(dst)
		dst = append(dst, owner...)
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, int64(line), 10)
		dst = append(dst, ' ')
		for at := line * 7 % len(filler); len(dst) < start+lineBytes-1; at = 0 {
			dst = append(dst, filler[at:min(len(filler), at+start+lineBytes-1-len(dst))]...)
		}
		dst = append(dst, ' ')
	}
	return dst[:end]
}

// mix makes one number of several, each of which changes about half of its bits
// (the finalizer of splitmix64).
func mix(parts ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, p := range parts {
		h += p + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// difference says where got leaves want, with the bytes around; "" if got is
// the start of want.
func difference(got, want []byte, offset int) string {
	n := min(len(got), len(want))
	for i := range n {
		if got[i] != want[i] {
			return "byte " + strconv.Itoa(offset+i) + ": got " + strconv.Quote(around(got, i)) + ", want " + strconv.Quote(around(want, i))
		}
	}
	if len(got) > len(want) {
		return "byte " + strconv.Itoa(offset+n) + ": got " + strconv.Quote(around(got, n)) + " beyond the end"
	}
	return ""
}

// around is what lies about a byte.
func around(b []byte, i int) string { return string(b[max(0, i-16):min(len(b), i+80)]) }
