package kvevent

import "github.com/tinylib/msgp/msgp"

// Extra keys are what vLLM folds into a block's hash besides its tokens: one
// entry a block, nil or an array of, in this order, the adapter's name (on
// every block), an identity for each image or the like, the cache salt (on the
// first block of a sequence), digests of embeddings. They are published
// untagged (vllm/v1/core/kv_cache_utils.py, to_event_extra_keys); the tagged
// forms ("lora", …) and ("cache_salt", …) that the engine hashes are read too.

// extraKeys reads the field extra_keys of a stored run. The adapter is known
// by its own field; what is left of an entry goes to the event's extra bytes.
func (d *Decoder) extraKeys(b []byte, e *Event) ([]byte, error) {
	if msgp.IsNil(b) {
		return b[1:], nil
	}
	blocks, b, err := readArray(b)
	if err != nil {
		return b, err
	}
	start := len(d.batch.extra)
	for i := range blocks {
		if msgp.IsNil(b) {
			b = b[1:]
		} else if b, err = d.extraEntry(b, e, i == 0); err != nil {
			return b, err
		}
		d.batch.ends = append(d.batch.ends, len(d.batch.extra)-start)
	}
	if len(d.batch.extra) == start { // nobody has any
		d.batch.ends = d.batch.ends[:len(d.batch.ends)-blocks]
	}
	return b, nil
}

// extraEntry reads the keys of one block. On the first block of a run that
// starts at the root the last bare string is the salt.
func (d *Decoder) extraEntry(b []byte, e *Event, first bool) ([]byte, error) {
	keys, b, err := readArray(b)
	if err != nil {
		return b, err
	}
	var salt []byte // a string that may be it
	for i := range keys {
		if tag, value := tagged(b); tag != "" {
			if b, err = skip(b); err != nil {
				return b, err
			}
			if tag == "cache_salt" && first && !e.HasParent {
				e.Salt = d.intern(value)
			}
			continue
		}
		if msgp.NextType(b) != msgp.StrType {
			if d.batch.extra, b, err = appendCanonical(d.batch.extra, b); err != nil {
				return b, err
			}
			continue
		}
		var text []byte
		if text, b, err = msgp.ReadStringZC(b); err != nil {
			return b, err
		}
		switch {
		case i == 0 && e.Adapter != "" && string(text) == e.Adapter:
		case !first || e.HasParent:
			d.batch.extra = msgp.AppendStringFromBytes(d.batch.extra, text)
		default:
			if salt != nil { // it was no salt then
				d.batch.extra = msgp.AppendStringFromBytes(d.batch.extra, salt)
			}
			salt = text
		}
	}
	if salt != nil {
		e.Salt = d.intern(salt)
	}
	return b, nil
}

// tagged recognises the tagged forms of an adapter and a salt; tag is empty
// for anything else.
func tagged(b []byte) (tag string, value []byte) {
	n, b, err := readArray(b)
	if err != nil || n < 2 {
		return "", nil
	}
	name, b, err := readText(b)
	if err != nil {
		return "", nil
	}
	value, _, err = readText(b)
	switch {
	case err != nil:
		return "", nil
	case string(name) == "cache_salt" && n == 2:
		return "cache_salt", value
	case string(name) == "lora" && n == 3:
		return "lora", value
	}
	return "", nil
}

// appendCanonical appends the next value in its shortest form, so that equal
// values give equal bytes whoever encoded them.
func appendCanonical(dst, b []byte) (out, rest []byte, err error) {
	for wanted := uint64(1); wanted > 0; wanted-- {
		if wanted > uint64(len(b)) {
			return dst, b, errShort
		}
		switch msgp.NextType(b) {
		case msgp.ArrayType:
			n, rest, err := msgp.ReadArrayHeaderBytes(b)
			if err != nil {
				return dst, b, err
			}
			dst, b, wanted = msgp.AppendArrayHeader(dst, n), rest, wanted+uint64(n)
		case msgp.MapType:
			n, rest, err := msgp.ReadMapHeaderBytes(b)
			if err != nil {
				return dst, b, err
			}
			dst, b, wanted = msgp.AppendMapHeader(dst, n), rest, wanted+2*uint64(n)
		default:
			if dst, b, err = appendScalar(dst, b); err != nil {
				return dst, b, err
			}
		}
	}
	return dst, b, nil
}

// appendScalar is appendCanonical for what holds no other values.
func appendScalar(dst, b []byte) (out, rest []byte, err error) {
	switch msgp.NextType(b) {
	case msgp.StrType:
		text, rest, err := msgp.ReadStringZC(b)
		if err != nil {
			return dst, b, err
		}
		return msgp.AppendStringFromBytes(dst, text), rest, nil
	case msgp.BinType:
		bin, rest, err := msgp.ReadBytesZC(b)
		if err != nil {
			return dst, b, err
		}
		return msgp.AppendBytes(dst, bin), rest, nil
	case msgp.IntType:
		v, rest, err := msgp.ReadInt64Bytes(b)
		if err != nil {
			return dst, b, err
		}
		if v >= 0 {
			return msgp.AppendUint64(dst, uint64(v)), rest, nil
		}
		return msgp.AppendInt64(dst, v), rest, nil
	case msgp.UintType:
		v, rest, err := msgp.ReadUint64Bytes(b)
		if err != nil {
			return dst, b, err
		}
		return msgp.AppendUint64(dst, v), rest, nil
	}
	rest, err = msgp.Skip(b) // one form each
	if err != nil {
		return dst, b, err
	}
	return append(dst, b[:len(b)-len(rest)]...), rest, nil
}
