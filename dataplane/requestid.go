package dataplane

import (
	"crypto/rand"
	"encoding/hex"
)

// maxRequestID bounds a client's X-Request-Id that is kept.
const maxRequestID = 128

// idSource makes request ids: 16 random hex digits, made once a loop, and a
// counter. They are unique, not secret.
type idSource struct {
	prefix [17]byte
	n      uint64
}

func (s *idSource) init() {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand, Go 1.24)
	hex.Encode(s.prefix[:16], b[:])
	s.prefix[16] = '-'
}

// next writes an id to dst and returns its length.
func (s *idSource) next(dst []byte) int {
	s.n++
	n := copy(dst, s.prefix[:])
	const digits = "0123456789abcdef"
	for shift := 44; shift >= 0; shift -= 4 {
		dst[n] = digits[s.n>>shift&15]
		n++
	}
	return n
}
