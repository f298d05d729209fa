//go:build !amd64 || purego

package scan

// skipString is skipStringGeneric: there are no blocks on this machine.
func skipString(b []byte, p int) (q int, end stringEnd, escaped bool) {
	return skipStringGeneric(b, p)
}
