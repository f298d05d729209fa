package message

import (
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// AppendJSON appends the JSON of a report that a reporter built: all fields of
// its route, Part and Parts only when there is more than one.
func (r *Report) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"worker_id":`...)
	dst = appendQuoted(dst, r.WorkerID)
	if !r.Minimal() {
		dst = append(dst, `,"epoch":`...)
		dst = appendQuoted(dst, r.Epoch)
		dst = appendNumber(dst, "seq", r.Seq)
	}
	dst = appendNumber(dst, "rank", uint64(r.Rank))
	if r.Model != "" {
		dst = append(dst, `,"model":`...)
		dst = appendQuoted(dst, r.Model)
	}
	dst = append(dst, `,"tier":"`...)
	dst = append(dst, r.Tier.String()...)
	dst = append(dst, '"')
	if r.Parts > 1 {
		dst = appendNumber(dst, "part", uint64(r.Part))
		dst = appendNumber(dst, "parts", uint64(r.Parts))
	}
	if r.Route == Stored || r.Blocks != nil {
		dst = append(dst, `,"blocks":[`...)
		for i := range r.Blocks {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = r.Blocks[i].appendJSON(dst)
		}
		dst = append(dst, ']')
	}
	if r.Route == Eviction {
		dst = append(dst, `,"evicted_hashes":`...)
		dst = r.Evicted.appendJSON(dst)
	}
	if r.Full {
		dst = append(dst, `,"full":true,"active_hashes":`...)
		dst = r.Active.appendJSON(dst)
	}
	if r.HasDigest {
		dst = append(dst, `,"digest":{"count":`...)
		dst = strconv.AppendUint(dst, r.Digest.Count, 10)
		dst = append(dst, `,"xor":`...)
		dst = appendHex(dst, r.Digest.XOR)
		dst = append(dst, `,"sum":`...)
		dst = appendHex(dst, r.Digest.Sum)
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func appendNumber(dst []byte, name string, v uint64) []byte {
	dst = append(dst, `,"`...)
	dst = append(dst, name...)
	dst = append(dst, `":`...)
	return strconv.AppendUint(dst, v, 10)
}

// appendQuoted appends a JSON string. Names are short, so a detour is harmless.
func appendQuoted(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("BUG: message: string without JSON: " + err.Error())
	}
	return append(dst, b...)
}

func appendHex(dst []byte, v uint64) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[v>>shift&15])
	}
	return append(dst, '"')
}

func appendHexList(dst []byte, list []uint64) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendHex(dst, v)
	}
	return append(dst, ']')
}

func (h *Hashes) appendJSON(dst []byte) []byte {
	if len(h.Long) == 0 {
		return appendHexList(dst, h.Short)
	}
	dst = append(dst, '[')
	for i := range h.Long {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = hex.AppendEncode(dst, h.Long[i][:])
		dst = append(dst, '"')
	}
	return append(dst, ']')
}

func (b *Block) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"hash":`...)
	dst = appendHex(dst, b.Hash)
	if b.HasParent {
		dst = append(dst, `,"parent":`...)
		dst = appendHex(dst, b.Parent)
	}
	dst = append(dst, `,"token_ids":[`...)
	for i, id := range b.Tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	dst = append(dst, ']')
	dst = appendNumber(dst, "block_tokens", uint64(b.BlockTokens))
	if b.Adapter != "" {
		dst = append(dst, `,"adapter":`...)
		dst = appendQuoted(dst, b.Adapter)
	}
	if b.Salt != "" {
		dst = append(dst, `,"salt":`...)
		dst = appendQuoted(dst, b.Salt)
	}
	if len(b.Extra) > 0 {
		dst = append(dst, `,"extra":"`...)
		dst = hex.AppendEncode(dst, b.Extra)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// AppendMsgpack appends the MessagePack of a report that a reporter built.
func (r *Report) AppendMsgpack(dst []byte) []byte {
	blocks := r.Route == Stored || r.Blocks != nil
	fields := uint32(3) // worker_id, rank, tier
	for _, f := range []struct {
		given bool
		count uint32
	}{{!r.Minimal(), 2}, {r.Model != "", 1}, {r.Parts > 1, 2}, {blocks, 1}, {r.Route == Eviction, 1}, {r.Full, 2}, {r.HasDigest, 1}} {
		if f.given {
			fields += f.count
		}
	}
	dst = msgp.AppendMapHeader(dst, fields)
	dst = msgp.AppendString(msgp.AppendString(dst, "worker_id"), r.WorkerID)
	if !r.Minimal() {
		dst = msgp.AppendString(msgp.AppendString(dst, "epoch"), r.Epoch)
		dst = msgp.AppendUint64(msgp.AppendString(dst, "seq"), r.Seq)
	}
	dst = msgp.AppendInt(msgp.AppendString(dst, "rank"), r.Rank)
	dst = msgp.AppendString(msgp.AppendString(dst, "tier"), r.Tier.String())
	if r.Model != "" {
		dst = msgp.AppendString(msgp.AppendString(dst, "model"), r.Model)
	}
	if r.Parts > 1 {
		dst = msgp.AppendInt(msgp.AppendString(dst, "part"), r.Part)
		dst = msgp.AppendInt(msgp.AppendString(dst, "parts"), r.Parts)
	}
	if blocks {
		dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "blocks"), uint32(len(r.Blocks)))
		for i := range r.Blocks {
			dst = r.Blocks[i].appendMsgpack(dst)
		}
	}
	if r.Route == Eviction {
		dst = r.Evicted.appendMsgpack(msgp.AppendString(dst, "evicted_hashes"))
	}
	if r.Full {
		dst = msgp.AppendBool(msgp.AppendString(dst, "full"), true)
		dst = r.Active.appendMsgpack(msgp.AppendString(dst, "active_hashes"))
	}
	if r.HasDigest {
		dst = msgp.AppendMapHeader(msgp.AppendString(dst, "digest"), 3)
		dst = msgp.AppendUint64(msgp.AppendString(dst, "count"), r.Digest.Count)
		dst = msgp.AppendUint64(msgp.AppendString(dst, "xor"), r.Digest.XOR)
		dst = msgp.AppendUint64(msgp.AppendString(dst, "sum"), r.Digest.Sum)
	}
	return dst
}

func appendPackList(dst []byte, list []uint64) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(list)))
	for _, v := range list {
		dst = msgp.AppendUint64(dst, v)
	}
	return dst
}

func (h *Hashes) appendMsgpack(dst []byte) []byte {
	if len(h.Long) == 0 {
		return appendPackList(dst, h.Short)
	}
	dst = msgp.AppendArrayHeader(dst, uint32(len(h.Long)))
	for i := range h.Long {
		dst = msgp.AppendBytes(dst, h.Long[i][:])
	}
	return dst
}

func (b *Block) appendMsgpack(dst []byte) []byte {
	fields := uint32(3)
	for _, given := range []bool{b.HasParent, b.Adapter != "", b.Salt != "", len(b.Extra) > 0} {
		if given {
			fields++
		}
	}
	dst = msgp.AppendMapHeader(dst, fields)
	dst = msgp.AppendUint64(msgp.AppendString(dst, "hash"), b.Hash)
	if b.HasParent {
		dst = msgp.AppendUint64(msgp.AppendString(dst, "parent"), b.Parent)
	}
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, "token_ids"), uint32(len(b.Tokens)))
	for _, id := range b.Tokens {
		dst = msgp.AppendUint32(dst, id)
	}
	dst = msgp.AppendInt(msgp.AppendString(dst, "block_tokens"), b.BlockTokens)
	if b.Adapter != "" {
		dst = msgp.AppendString(msgp.AppendString(dst, "adapter"), b.Adapter)
	}
	if b.Salt != "" {
		dst = msgp.AppendString(msgp.AppendString(dst, "salt"), b.Salt)
	}
	if len(b.Extra) > 0 {
		dst = msgp.AppendBytes(msgp.AppendString(dst, "extra"), b.Extra)
	}
	return dst
}
