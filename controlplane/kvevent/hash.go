package kvevent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"unicode/utf8"
)

// Engines' own block hashes, where they can be computed outside the engine.
// Minimal reporters (reference: the push protocol) name blocks by them. vLLM's
// default algorithm hashes a Python pickle and is not among them.

// SGLangRoot is what the first page of a prompt with a cache salt follows;
// without one (nil) a prompt starts with nothing. The digest takes the place
// of a page before the first (sglang/srt/mem_cache/utils.py,
// compute_node_event_hash_values).
func SGLangRoot(salt []byte) []byte {
	if len(salt) == 0 {
		return nil
	}
	digest := sha256.Sum256(append([]byte("sglang-cache-salt-v1\x00"), salt...))
	return digest[:]
}

// SGLangPage is the digest of a page: SHA-256 over the digest of the page
// before it (SGLangRoot for the first) and the ids as little-endian uint32.
func SGLangPage(before []byte, ids []uint32) [sha256.Size]byte {
	b := make([]byte, 0, len(before)+4*len(ids))
	b = append(b, before...)
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, id)
	}
	return sha256.Sum256(b)
}

// SGLangName is the name of a page in events: the first 8 bytes of its digest,
// big-endian. The wire has it signed; the bits are the same.
func SGLangName(page [sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(page[:]) }

// VLLMRoot is what the first block of every prompt follows (NONE_HASH) under
// the algorithm sha256_cbor: the digest of a text, which is the value of
// PYTHONHASHSEED where that is set, and else "vllm-none-hash" (vLLM since
// 0.28; older ones draw random bytes).
func VLLMRoot(seed string) [sha256.Size]byte {
	return sha256.Sum256(appendCBORText(nil, seed))
}

// VLLMBlock is the digest of a block under sha256_cbor: SHA-256 over the
// canonical CBOR (RFC 8949, section 4.2) of an array of the digest of the block
// before it (VLLMRoot for the first), the ids, and the extra keys. extra is
// the CBOR of the latter, nil for none; VLLMSalt makes that of a salt.
func VLLMBlock(before [sha256.Size]byte, ids []uint32, extra []byte) [sha256.Size]byte {
	b := make([]byte, 0, 64+5*len(ids)+len(extra))
	b = appendCBORHead(b, cborArray, 3)
	b = append(appendCBORHead(b, cborBytes, uint64(len(before))), before[:]...)
	b = appendCBORHead(b, cborArray, uint64(len(ids)))
	for _, id := range ids {
		b = appendCBORHead(b, cborUint, uint64(id))
	}
	if extra == nil {
		b = append(b, cborNull)
	}
	return sha256.Sum256(append(b, extra...))
}

// VLLMSalt is the extra keys of the first block of a prompt with a cache salt
// and nothing else: tagged ("cache_salt", salt) in vLLM 0.32, bare in 0.23.
func VLLMSalt(salt string, isTagged bool) []byte {
	b := appendCBORHead(nil, cborArray, 1)
	if isTagged {
		b = appendCBORHead(b, cborArray, 2)
		b = appendCBORText(b, "cache_salt")
	}
	return appendCBORText(b, salt)
}

// VLLMName is the name of a block in events: the last 8 bytes of its digest,
// big-endian.
func VLLMName(block [sha256.Size]byte) uint64 { return lowBits(block[:]) }

// PrefixName is the scheme sha256_prefix: one name for a whole prompt, SHA-256
// in hexadecimal over the first count ids written as Python writes a tuple.
func PrefixName(ids []uint32, count int) string {
	ids = ids[:min(len(ids), count)]
	b := append(make([]byte, 0, 12*len(ids)+2), '(')
	for i, id := range ids {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendUint(b, uint64(id), 10)
	}
	if len(ids) == 1 {
		b = append(b, ',')
	}
	digest := sha256.Sum256(append(b, ')'))
	return hex.EncodeToString(digest[:])
}

// Major types of CBOR (RFC 8949, section 3.1), in place, and null.
const (
	cborUint  = 0 << 5
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborNull  = 0xF6
)

// appendCBORHead appends a type with its number in the shortest form.
func appendCBORHead(b []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

// appendCBORText appends a text, which has to be UTF-8.
func appendCBORText(b []byte, text string) []byte {
	if !utf8.ValidString(text) {
		text = string([]rune(text)) // U+FFFD for what is not
	}
	return append(appendCBORHead(b, cborText, uint64(len(text))), text...)
}
