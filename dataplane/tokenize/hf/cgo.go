//go:build hf && cgo

package hf

/*
#cgo LDFLAGS: -L${SRCDIR}/../../../.cache/libtokenizers -ltokenizers -ldl -lm -lstdc++
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What shim.rs defines, field by field.
typedef struct { uint8_t *data; size_t len; } warmpath_bytes;
typedef struct { uint32_t *data; size_t len; } warmpath_ids;

void *warmpath_load(const uint8_t *data, size_t len, warmpath_bytes *error);
bool warmpath_encode(const void *tokenizer, const uint8_t *text, size_t len, bool add_special, warmpath_ids *ids, warmpath_bytes *error);
bool warmpath_decode(const void *tokenizer, const uint32_t *ids, size_t len, warmpath_bytes *text, warmpath_bytes *error);
void warmpath_free(void *tokenizer);
void warmpath_free_bytes(warmpath_bytes bytes);
void warmpath_free_ids(warmpath_ids ids);
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
	"unsafe"

	// For its link-time check: it refers to a symbol with a version in its
	// name, so that a library of another version does not link.
	_ "github.com/daulet/tokenizers"
)

// Available says whether this build has the library.
const Available = true

// Tokenizer is a loaded tokenizer.json, some 60 to 130 MB outside Go's heap.
// Any number of goroutines may use it at once.
type Tokenizer struct {
	mu     sync.RWMutex   // held for reading while handle is in use
	handle unsafe.Pointer // nil after Close
}

// Load reads a tokenizer.json, which takes from 0.3 to 1.2 s. The string of a
// special token inside a text becomes its id, as it does in vLLM and SGLang.
// Close gives the memory back; the garbage collector does not know of it.
func Load(data []byte) (*Tokenizer, error) {
	var failure C.warmpath_bytes
	handle := C.warmpath_load(pointer[C.uint8_t](data), C.size_t(len(data)), &failure)
	if handle == nil {
		return nil, fmt.Errorf("hf: cannot load tokenizer.json: %w", take(failure))
	}
	return &Tokenizer{handle: handle}, nil
}

// Encode appends the ids of text to ids. With addSpecial it adds what the
// file's post-processor puts around a text (BOS …). It borrows text for the
// call. Errors: ErrNotUTF8, ErrNoIDs, ErrClosed, or what the library says; ids
// then comes back as it was.
func (t *Tokenizer) Encode(ids []uint32, text []byte, addSpecial bool) ([]uint32, error) {
	if !utf8.Valid(text) {
		return ids, ErrNotUTF8
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.handle == nil {
		return ids, ErrClosed
	}
	var found C.warmpath_ids
	var failure C.warmpath_bytes
	if !C.warmpath_encode(t.handle, pointer[C.uint8_t](text), C.size_t(len(text)), C.bool(addSpecial), &found, &failure) {
		return ids, fmt.Errorf("hf: cannot encode %d bytes: %w", len(text), take(failure))
	}
	defer C.warmpath_free_ids(found)
	if found.len == 0 && len(text) > 0 {
		return ids, ErrNoIDs
	}
	return append(ids, unsafe.Slice((*uint32)(found.data), int(found.len))...), nil
}

// Decode gives the text of ids, special tokens as their strings. What the
// library can't turn to UTF-8 comes as U+FFFD; ids outside the vocabulary come
// as nothing.
func (t *Tokenizer) Decode(ids []uint32) (string, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.handle == nil {
		return "", ErrClosed
	}
	var text, failure C.warmpath_bytes
	if !C.warmpath_decode(t.handle, pointer[C.uint32_t](ids), C.size_t(len(ids)), &text, &failure) {
		return "", fmt.Errorf("hf: cannot decode %d ids: %w", len(ids), take(failure))
	}
	defer C.warmpath_free_bytes(text)
	return string(unsafe.Slice((*byte)(text.data), int(text.len))), nil
}

// Close frees the tokenizer once all calls under way are done. Closing twice
// is no error.
func (t *Tokenizer) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.handle != nil {
		C.warmpath_free(t.handle)
		t.handle = nil
	}
	return nil
}

// pointer is the address of what a slice holds, for a call that only reads it.
// It is nil, or no address at all, for an empty slice.
func pointer[C, Go any](s []Go) *C { return (*C)(unsafe.Pointer(unsafe.SliceData(s))) }

// take turns the library's text of a failure into an error and frees it.
func take(failure C.warmpath_bytes) error {
	defer C.warmpath_free_bytes(failure)
	return errors.New(string(unsafe.Slice((*byte)(failure.data), int(failure.len))))
}
