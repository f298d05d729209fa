package stamp

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"
)

// Digits is the width of a stamp: every int64 fits, so that chunks have the
// same length at any time.
const Digits = 19

// Field is a JSON member without a time yet, as it stands in a chunk. The time
// is a string, because a JSON number has no leading zeros (RFC 8259, section 6).
const Field = key + `0000000000000000000"`

const key = `"t":"`

// searchBytes is how far into a chunk Find looks: the field comes early.
const searchBytes = 96

// origin and base tie the runtime's clock, which is read without a system call,
// to CLOCK_MONOTONIC, which other processes read too.
var origin, base = tie()

// tie reads both clocks, one between two readings of the other, until they were
// read close together.
func tie() (time.Time, int64) {
	const tries = 20
	var origin time.Time
	var base int64
	best := time.Hour
	for range tries {
		before := time.Now()
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
			panic("BUG: stamp: no monotonic clock: " + err.Error())
		}
		if took := time.Since(before); took < best {
			best, origin, base = took, before, t.Nano()-int64(took)/2
		}
	}
	return origin, base
}

// Now is CLOCK_MONOTONIC in nanoseconds. Any goroutine may call it.
func Now() int64 { return base + int64(time.Since(origin)) }

// Put writes ns into the Digits bytes of digits, which At found.
func Put(digits []byte, ns int64) {
	_ = digits[Digits-1]
	for i := Digits - 1; i >= 0; i-- {
		digits[i] = byte('0' + ns%10)
		ns /= 10
	}
}

// At is where in chunk the digits of its stamp begin, −1 without a stamp.
func At(chunk []byte) int {
	at := bytes.Index(chunk[:min(len(chunk), searchBytes)], []byte(key))
	if at < 0 || len(chunk) < at+len(key)+Digits {
		return -1
	}
	return at + len(key)
}

// Find returns when chunk was sent. ok is false when it says nothing.
func Find(chunk []byte) (ns int64, ok bool) {
	at := At(chunk)
	if at < 0 {
		return 0, false
	}
	for _, c := range chunk[at : at+Digits] {
		if c < '0' || c > '9' {
			return 0, false
		}
		ns = ns*10 + int64(c-'0')
	}
	return ns, ns > 0 // 0 was never filled in; an overflow is negative
}
