package field

// maxDigits keeps a Decimal within an int64.
const maxDigits = 18

// Is reports whether b is lower, which is ASCII in lower case, whatever case its
// own letters have (RFC 9110, section 5.1).
func Is(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// Decimal reads a number of one to 18 digits and nothing else (RFC 9110, section
// 8.6).
func Decimal(digits []byte) (n int64, ok bool) {
	if len(digits) == 0 || len(digits) > maxDigits {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
