package prefix

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"warmpath/dataplane/scan"
)

// The parts of a key, in characters of the unescaped text and in token ids.
const (
	keyPartChars  = 256 // of the system message, and of the first user message
	keyTextChars  = 512 // of a prompt, or of a user message that stands alone
	keyTokens     = 128 // of a prompt given as token ids
	scratchLength = keyTextChars*utf8.UTFMax + utf8.UTFMax
	// keyTextEscaped is how many raw bytes of a text have all characters of a key:
	// a character is two escapes of six bytes at most.
	keyTextEscaped = 12 * keyTextChars
)

// Scratch is the memory that AffinityKey and SystemKey work in. Its zero value
// is ready; one goroutine uses it at a time.
type Scratch struct {
	keys   [remembered]keyByName
	text   [scratchLength]byte
	digest xxhash.Digest
}

// AffinityKey returns the key by which requests of one conversation find the
// same node again without an index, 0 if the request has no text at all. It is
// FNV-1a (64 bit) with Murmur3's 64-bit finalizer over
//
//	model ":" system[0:256] user[0:256]
//	model ":" prompt[0:512]              for a prompt that is one text
//	model ":" ids[0:128]                 for a prompt of token ids, as little-endian uint32
//
// where the numbers count characters (code points) of the unescaped text.
// system is the body's system or instructions if it has one, else the first
// message of role system or developer; user is the first message of role user,
// or the prompt when it stands beside instructions. The text parts of a
// message are joined by one line feed, other parts are skipped. Of several
// prompts the first counts.
//
// model is the model's canonical name, so that an alias does not change the
// key; body must be what r was scanned from. Neither is kept. A key that would
// be 0 is 1.
func AffinityKey(dst *Scratch, model, body []byte, r *scan.Result) uint64 {
	text := dst.text[:0]
	system, user := systemParts(body, r), userParts(body, r)
	if r.Open && r.Parts[len(r.Parts)-1].Span.Len() < keyTextEscaped {
		system, user = ended(r, system), ended(r, user)
	}
	switch {
	case len(system) > 0 || len(r.Messages) > 0:
		text = appendText(text, body, system, keyPartChars)
		text = appendText(text, body, user, keyPartChars)
	case len(user) > 0:
		text = appendText(text, body, user, keyTextChars)
	default:
		text = appendTokens(text, r.Tokens)
	}
	if len(text) == 0 {
		return 0
	}
	return dst.remember(model, text)
}

// remembered is how many keys a Scratch keeps. A key is the same over all turns
// of a conversation, and FNV takes a byte at a time: looking up a key of 512
// characters by xxhash64 costs a quarter of making it.
const remembered = 512

// remember returns the key of model and text, from memory if it was made
// lately. Two texts are taken for one when their 64-bit hashes agree.
func (s *Scratch) remember(model, text []byte) uint64 {
	name := xxhash.Sum64(text) ^ bits.RotateLeft64(xxhash.Sum64(model), 32)
	place := &s.keys[name%remembered]
	if place.name == name && place.key != 0 {
		return place.key
	}
	h := uint64(fnvOffset)
	h = fnv1a(h, model)
	h = (h ^ ':') * fnvPrime
	*place = keyByName{name, nonZero(fmix64(fnv1a(h, text)))}
	return place.key
}

type keyByName struct{ name, key uint64 }

// SystemKey returns the key of prefix_hash with `key: system`: the whole
// system message, else the first 512 characters of the first user message or
// of the prompt, else the first 128 token ids; 0 if there is none of them. The
// text is found, decoded and joined as AffinityKey does it, put behind model
// ":" (else every model with the same default instructions would pile up on
// one node) and hashed by xxhash64, because a system message may be long.
func SystemKey(dst *Scratch, model, body []byte, r *scan.Result) uint64 {
	d := &dst.digest
	d.Reset()
	d.Write(model)
	d.Write([]byte{':'})
	if dst.digestText(body, ended(r, systemParts(body, r))) {
		return nonZero(d.Sum64())
	}
	text := appendText(dst.text[:0], body, userParts(body, r), keyTextChars)
	if len(text) == 0 {
		text = appendTokens(text, r.Tokens)
	}
	if len(text) == 0 {
		return 0
	}
	d.Write(text)
	return nonZero(d.Sum64())
}

// ended leaves out the part that has not: how much of it has come is chance, and a
// key must not depend on that. The Result's last part alone can be one.
func ended(r *scan.Result, parts []scan.Part) []scan.Part {
	if n := len(parts); r.Open && n > 0 && parts[n-1] == r.Parts[len(r.Parts)-1] {
		return parts[:n-1]
	}
	return parts
}

// systemParts returns the parts of the text that sets the conversation's
// rules, nil if there is none.
func systemParts(body []byte, r *scan.Result) []scan.Part {
	if r.System.End > r.System.Start {
		return r.Parts[r.System.Start:r.System.End]
	}
	for i := range r.Messages {
		if m := &r.Messages[i]; plainIs(m.Role.Of(body), "system") || plainIs(m.Role.Of(body), "developer") {
			return r.Parts[m.Parts.Start:m.Parts.End]
		}
	}
	return nil
}

// userParts returns the parts of the first user message, or the first prompt.
func userParts(body []byte, r *scan.Result) []scan.Part {
	for i := range r.Messages {
		if m := &r.Messages[i]; plainIs(m.Role.Of(body), "user") {
			return r.Parts[m.Parts.Start:m.Parts.End]
		}
	}
	if len(r.Messages) == 0 && r.Prompt.End > r.Prompt.Start {
		return r.Parts[r.Prompt.Start : r.Prompt.Start+1]
	}
	return nil
}

// appendText appends the first limit characters of the text parts, joined by
// line feeds. dst has room for them.
func appendText(dst, body []byte, parts []scan.Part, limit int) []byte {
	first := true
	for i := range parts {
		if parts[i].Kind != scan.PartText {
			continue
		}
		if !first && limit > 0 {
			dst = append(dst, '\n')
			limit--
		}
		first = false
		dst, _, limit = unescape(dst, parts[i].Span.Of(body), limit)
	}
	return dst
}

// digestText writes the whole joined text into the digest, in place where
// nothing is escaped, and reports whether there was any.
func (s *Scratch) digestText(body []byte, parts []scan.Part) (any bool) {
	first := true
	for i := range parts {
		if parts[i].Kind != scan.PartText {
			continue
		}
		if !first {
			s.digest.Write([]byte{'\n'})
			any = true
		}
		first = false
		raw := parts[i].Span.Of(body)
		any = any || len(raw) > 0
		for len(raw) > 0 {
			plain := bytes.IndexByte(raw, '\\')
			if plain < 0 {
				plain = len(raw)
			}
			if plain > 64 { // long enough to be worth a write of its own
				s.digest.Write(raw[:plain])
				raw = raw[plain:]
				continue
			}
			var text []byte
			text, raw, _ = unescape(s.text[:0], raw, math.MaxInt)
			s.digest.Write(text)
		}
	}
	return any
}

// appendTokens appends the ids that a key looks at, as little-endian uint32.
func appendTokens(dst []byte, ids []uint32) []byte {
	for _, id := range ids[:min(len(ids), keyTokens)] {
		dst = binary.LittleEndian.AppendUint32(dst, id)
	}
	return dst
}

// Parameters of 64-bit FNV-1a (RFC 9923, section 5).
const (
	fnvOffset = 0xcbf29ce484222325
	fnvPrime  = 0x100000001b3
)

// fnv1a goes on with an FNV-1a hash. It is written out because hash/fnv
// allocates its state.
func fnv1a(h uint64, data []byte) uint64 {
	for _, c := range data {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

// fmix64 is the 64-bit finalizer of MurmurHash3: FNV's high bits hardly move
// with the last bytes, and rendezvous hashing looks at all of them.
func fmix64(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
