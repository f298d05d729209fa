//go:build !hf || !cgo

package tokenbench

// loadPeer returns nil: this program was built without the library.
func loadPeer(string) (encode func(text string) (tokens int), err error) { return nil, nil }
