package message

import (
	"fmt"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// DecodeMsgpack reads a report of the route from a MessagePack body. The error
// is a *FieldError if a field is to blame.
func DecodeMsgpack(route Route, body []byte) (*Report, error) {
	r := &Report{Route: route}
	rest, err := eachField("body", body, func(name string, b []byte) ([]byte, error) {
		if read, known := packFields[name]; known && !msgp.IsNil(b) {
			return read(r, b)
		}
		return skip(name, b)
	})
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, wrong("body", fmt.Sprintf("%d bytes behind the map", len(rest)), "send one MessagePack map")
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

// eachField walks over a map with names as keys. visit consumes the value.
func eachField(place string, b []byte, visit func(name string, b []byte) ([]byte, error)) ([]byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return b, wrong(place, "no MessagePack map", "send a map with names as keys")
	}
	for range n {
		name, rest, err := msgp.ReadMapKeyZC(b)
		if err != nil {
			return b, wrong(place, "a key that is no name", "send a map with names as keys")
		}
		if b, err = visit(string(name), rest); err != nil {
			return b, err
		}
	}
	return b, nil
}

func skip(name string, b []byte) ([]byte, error) {
	rest, err := msgp.Skip(b)
	if err != nil {
		return b, wrong(shown([]byte(name)), err.Error(), "send whole MessagePack")
	}
	return rest, nil
}

// packFields consume the value of a field.
var packFields = map[string]func(r *Report, b []byte) ([]byte, error){
	"worker_id": func(r *Report, b []byte) ([]byte, error) { return packText("worker_id", b, &r.WorkerID) },
	"epoch":     readPackEpoch,
	"seq":       func(r *Report, b []byte) ([]byte, error) { return packUint("seq", b, &r.Seq) },
	"rank":      func(r *Report, b []byte) ([]byte, error) { return packInt("rank", b, &r.Rank) },
	"model":     func(r *Report, b []byte) ([]byte, error) { return packText("model", b, &r.Model) },
	"tier": func(r *Report, b []byte) ([]byte, error) {
		var name string
		rest, err := packText("tier", b, &name)
		if err != nil {
			return b, err
		}
		return rest, r.setTier(name)
	},
	"part":   func(r *Report, b []byte) ([]byte, error) { return packInt("part", b, &r.Part) },
	"parts":  func(r *Report, b []byte) ([]byte, error) { return packInt("parts", b, &r.Parts) },
	"blocks": readPackBlocks,
	"evicted_hashes": func(r *Report, b []byte) ([]byte, error) {
		r.hasEvicted = true
		return packHashes("evicted_hashes", b, &r.Evicted)
	},
	"full": func(r *Report, b []byte) (rest []byte, err error) {
		if r.Full, rest, err = msgp.ReadBoolBytes(b); err != nil {
			return b, wrong("full", "not a boolean", "send true or false")
		}
		return rest, nil
	},
	"active_hashes": func(r *Report, b []byte) ([]byte, error) {
		r.hasActive = true
		return packHashes("active_hashes", b, &r.Active)
	},
	"digest": readPackDigest,
}

func packText(field string, b []byte, to *string) ([]byte, error) {
	text, rest, err := msgp.ReadStringZC(b)
	if err != nil {
		return b, wrong(field, "not a string", "send a string")
	}
	*to = string(text)
	return rest, nil
}

func packUint(field string, b []byte, to *uint64) ([]byte, error) {
	v, rest, err := msgp.ReadUint64Bytes(b)
	if err != nil {
		return b, wrong(field, "not an unsigned integer", "send a number from 0 to 2^64-1")
	}
	*to = v
	return rest, nil
}

func packInt(field string, b []byte, to *int) ([]byte, error) {
	v, rest, err := msgp.ReadInt32Bytes(b)
	if err != nil {
		return b, wrong(field, "not an integer of 32 bits", "send a small number")
	}
	*to = int(v)
	return rest, nil
}

func readPackEpoch(r *Report, b []byte) ([]byte, error) {
	if v, rest, err := msgp.ReadUint64Bytes(b); err == nil {
		r.Epoch = strconv.FormatUint(v, 10)
		return rest, nil
	}
	return packText("epoch", b, &r.Epoch)
}

func readPackDigest(r *Report, b []byte) ([]byte, error) {
	var has [3]bool
	r.HasDigest = true
	rest, err := eachField("digest", b, func(name string, b []byte) ([]byte, error) {
		switch name {
		case "count":
			has[0] = true
			return packUint("digest.count", b, &r.Digest.Count)
		case "xor":
			has[1] = true
			return packHash("digest.xor", b, &r.Digest.XOR)
		case "sum":
			has[2] = true
			return packHash("digest.sum", b, &r.Digest.Sum)
		default:
			return skip(name, b)
		}
	})
	if err != nil {
		return b, err
	}
	for i, name := range []string{"count", "xor", "sum"} {
		if !has[i] {
			return b, wrong("digest."+name, "missing", "send an unsigned integer")
		}
	}
	return rest, nil
}

// packHash reads 64 bits. Engines that count in signed integers send the same
// bits as a negative number.
func packHash(field string, b []byte, to *uint64) ([]byte, error) {
	if v, rest, err := msgp.ReadUint64Bytes(b); err == nil {
		*to = v
		return rest, nil
	}
	v, rest, err := msgp.ReadInt64Bytes(b)
	if err != nil {
		return b, wrong(field, "no integer of 64 bits", "send an unsigned integer")
	}
	*to = uint64(v)
	return rest, nil
}

// packList reads the header of a list. The count is one that the bytes behind
// it can hold, so that a header alone makes nobody reserve memory.
func packList(field string, b []byte, most int) (int, []byte, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return 0, b, wrong(field, "not a list", "send a list")
	}
	if int64(n) > int64(len(rest)) {
		return 0, b, wrong(field, fmt.Sprintf("says %d elements, with %d bytes behind it", n, len(rest)), "send whole MessagePack")
	}
	return int(n), rest, checkLength(field, int(n), most)
}

func packHashes(field string, b []byte, to *Hashes) ([]byte, error) {
	n, b, err := packList(field, b, MaxHashes)
	if err != nil {
		return b, err
	}
	*to = Hashes{Short: make([]uint64, 0, n)}
	for i := range n {
		if kind := msgp.NextType(b); kind == msgp.BinType || kind == msgp.StrType {
			if b, err = packLong(b, to); err != nil {
				return b, wrong(at(field, i), err.Error(), "send integers of 64 bits, or 32 bytes each")
			}
			continue
		}
		var v uint64
		if b, err = packHash(field, b, &v); err != nil || len(to.Long) > 0 {
			return b, wrong(at(field, i), "no integer of 64 bits, or one among whole digests", "send integers of 64 bits, or 32 bytes each")
		}
		to.Short = append(to.Short, v)
	}
	return b, nil
}

// packLong takes a SHA-256 as bytes, or as the digits that JSON would have.
func packLong(b []byte, to *Hashes) ([]byte, error) {
	if msgp.NextType(b) == msgp.StrType {
		digits, rest, err := msgp.ReadStringZC(b)
		if err != nil {
			return b, err
		}
		return rest, to.add(digits)
	}
	raw, rest, err := msgp.ReadBytesZC(b)
	if err != nil {
		return b, err
	}
	if len(raw) != digestBytes || len(to.Short) > 0 {
		return b, fmt.Errorf("%d bytes among %d of another length, or no digest", len(raw), to.Len())
	}
	to.Long = append(to.Long, SHA256(raw))
	return rest, nil
}

func readPackBlocks(r *Report, b []byte) ([]byte, error) {
	r.hasBlocks = true
	n, b, err := packList("blocks", b, MaxBlocks)
	if err != nil {
		return b, err
	}
	r.Blocks = make([]Block, n)
	for i := range n {
		if b, err = readPackBlock(&r.Blocks[i], b); err != nil {
			return b, inside(at("blocks", i), err)
		}
	}
	return b, nil
}

func readPackBlock(to *Block, b []byte) ([]byte, error) {
	hasHash := false
	rest, err := eachField("block", b, func(name string, b []byte) (rest []byte, err error) {
		if msgp.IsNil(b) {
			return skip(name, b)
		}
		switch name {
		case "hash":
			hasHash = true
			return packHash("hash", b, &to.Hash)
		case "parent":
			to.HasParent = true
			return packHash("parent", b, &to.Parent)
		case "token_ids":
			return packTokens(b, &to.Tokens)
		case "block_tokens":
			return packInt("block_tokens", b, &to.BlockTokens)
		case "adapter":
			return packText("adapter", b, &to.Adapter)
		case "salt":
			return packText("salt", b, &to.Salt)
		case "extra":
			if to.Extra, rest, err = msgp.ReadBytesBytes(b, nil); err != nil {
				return b, wrong("extra", "not bytes", "send bytes")
			}
			return rest, nil
		default:
			return skip(name, b)
		}
	})
	if err == nil && !hasHash {
		err = wrong("hash", "missing", "send an unsigned integer")
	}
	return rest, err
}

func packTokens(b []byte, to *[]uint32) ([]byte, error) {
	n, b, err := packList("token_ids", b, MaxBlockTokens)
	if err != nil {
		return b, err
	}
	ids := make([]uint32, n)
	for i := range ids {
		if ids[i], b, err = msgp.ReadUint32Bytes(b); err != nil {
			return b, wrong(at("token_ids", i), "no integer of 32 bits", "send unsigned integers")
		}
	}
	*to = ids
	return b, nil
}
