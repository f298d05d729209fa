//go:build !hf || !cgo

package hf_test

import (
	"errors"
	"testing"

	"warmpath/dataplane/tokenize/hf"
)

func TestAbsentSaysSo(t *testing.T) {
	if hf.Available {
		t.Error("available without the tag")
	}
	if _, err := hf.Load([]byte("{}")); !errors.Is(err, hf.ErrUnavailable) {
		t.Errorf("Load: %v", err)
	}
	var none hf.Tokenizer
	if ids, err := none.Encode([]uint32{7}, nil, true); !errors.Is(err, hf.ErrUnavailable) || len(ids) != 1 {
		t.Errorf("Encode: %v, %v", ids, err)
	}
	if _, err := none.Decode(nil); !errors.Is(err, hf.ErrUnavailable) {
		t.Errorf("Decode: %v", err)
	}
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}
