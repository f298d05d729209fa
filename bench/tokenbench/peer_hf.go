//go:build hf && cgo

package tokenbench

import (
	"fmt"

	daulet "github.com/daulet/tokenizers"

	_ "warmpath/dataplane/tokenize/hf" // says where the library lies
)

// loadPeer returns Hugging Face's own tokenizer, through the Go module that
// other routers use it by.
func loadPeer(path string) (encode func(text string) (tokens int), err error) {
	peer, err := daulet.FromFile(path)
	if err != nil {
		return nil, fmt.Errorf("load %s into the library: %w", path, err)
	}
	return func(text string) int {
		ids, _ := peer.Encode(text, false)
		return len(ids)
	}, nil
}
