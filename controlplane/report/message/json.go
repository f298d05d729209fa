package message

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// DecodeJSON reads a report of the route from a JSON body. The error is a
// *FieldError if a field is to blame.
func DecodeJSON(route Route, body []byte) (*Report, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, wrong("body", err.Error(), "send one JSON object")
	}
	r := &Report{Route: route}
	for _, f := range jsonFields {
		raw, given := fields[f.name]
		if !given || isNull(raw) {
			continue
		}
		if err := f.read(r, raw); err != nil {
			return nil, err
		}
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

func isNull(raw []byte) bool { return len(raw) == 0 || raw[0] == 'n' }

// jsonFields are read in this order, whatever their order in the body.
var jsonFields = []struct {
	name string
	read func(r *Report, raw json.RawMessage) error
}{
	{"worker_id", func(r *Report, raw json.RawMessage) error {
		return jsonValue("worker_id", raw, &r.WorkerID, "send a string")
	}},
	{"epoch", readJSONEpoch},
	{"seq", func(r *Report, raw json.RawMessage) error {
		return jsonValue("seq", raw, &r.Seq, "send a number from 1 to 2^64-1")
	}},
	{"rank", func(r *Report, raw json.RawMessage) error { return jsonValue("rank", raw, &r.Rank, "send a number") }},
	{"model", func(r *Report, raw json.RawMessage) error { return jsonValue("model", raw, &r.Model, "send a string") }},
	{"tier", func(r *Report, raw json.RawMessage) error {
		var name string
		if err := jsonValue("tier", raw, &name, "send device, host or disk"); err != nil {
			return err
		}
		return r.setTier(name)
	}},
	{"part", func(r *Report, raw json.RawMessage) error { return jsonValue("part", raw, &r.Part, "send a number") }},
	{"parts", func(r *Report, raw json.RawMessage) error { return jsonValue("parts", raw, &r.Parts, "send a number") }},
	{"blocks", readJSONBlocks},
	{"evicted_hashes", func(r *Report, raw json.RawMessage) (err error) {
		r.hasEvicted = true
		r.Evicted, err = jsonHashes("evicted_hashes", raw)
		return err
	}},
	{"full", func(r *Report, raw json.RawMessage) error {
		return jsonValue("full", raw, &r.Full, "send true or false")
	}},
	{"active_hashes", func(r *Report, raw json.RawMessage) (err error) {
		r.hasActive = true
		r.Active, err = jsonHashes("active_hashes", raw)
		return err
	}},
	{"digest", readJSONDigest},
}

func jsonValue(field string, raw json.RawMessage, to any, remedy string) error {
	if err := json.Unmarshal(raw, to); err != nil {
		return wrong(field, shown(raw), remedy)
	}
	return nil
}

// shown is a value as an error message quotes it.
func shown(raw []byte) string {
	const most = 40
	if len(raw) > most {
		return strconv.Quote(string(raw[:most])) + " …"
	}
	return strconv.Quote(string(raw))
}

func (r *Report) setTier(name string) (err error) {
	tier, ok := tierOf(name)
	if !ok {
		return wrong("tier", shown([]byte(name)), "send device, host or disk")
	}
	r.Tier = tier
	return nil
}

// readJSONEpoch takes a string or a whole number: what counts is that another
// start has another one.
func readJSONEpoch(r *Report, raw json.RawMessage) error {
	var number uint64
	if json.Unmarshal(raw, &number) == nil {
		r.Epoch = strconv.FormatUint(number, 10)
		return nil
	}
	return jsonValue("epoch", raw, &r.Epoch, "send a string, random at each start of the engine")
}

func readJSONDigest(r *Report, raw json.RawMessage) error {
	var d struct {
		Count *uint64 `json:"count"`
		XOR   *string `json:"xor"`
		Sum   *string `json:"sum"`
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return typeError("digest", err, "send count as a number, xor and sum as 16 hexadecimal digits")
	}
	if d.Count == nil {
		return wrong("digest.count", "missing", "send how many hashes are live")
	}
	r.HasDigest, r.Digest.Count = true, *d.Count
	for _, half := range []struct {
		name string
		text *string
		to   *uint64
	}{{"xor", d.XOR, &r.Digest.XOR}, {"sum", d.Sum, &r.Digest.Sum}} {
		if half.text == nil {
			return wrong("digest."+half.name, "missing", "send 16 hexadecimal digits")
		}
		v, ok := hexHash([]byte(*half.text))
		if !ok {
			return wrong("digest."+half.name, shown([]byte(*half.text)), "send 16 hexadecimal digits")
		}
		*half.to = v
	}
	return nil
}

// typeError names the field inside outer that has the wrong type.
func typeError(outer string, err error, remedy string) error {
	var bad *json.UnmarshalTypeError
	if errors.As(err, &bad) && bad.Field != "" {
		return wrong(outer+"."+bad.Field, "a "+bad.Value, remedy)
	}
	return wrong(outer, err.Error(), remedy)
}

// jsonBlock is a block on the wire.
type jsonBlock struct {
	Hash        *string  `json:"hash"`
	Parent      *string  `json:"parent"`
	Tokens      []uint32 `json:"token_ids"`
	BlockTokens uint32   `json:"block_tokens"`
	Adapter     string   `json:"adapter"`
	Salt        string   `json:"salt"`
	Extra       string   `json:"extra"`
}

const blockRemedy = "a block is {hash, parent, token_ids, block_tokens, adapter, salt}"

func readJSONBlocks(r *Report, raw json.RawMessage) error {
	r.hasBlocks = true
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return wrong("blocks", shown(raw), "send a list")
	}
	if err := checkLength("blocks", len(list), MaxBlocks); err != nil {
		return err
	}
	r.Blocks = make([]Block, len(list))
	for i, one := range list {
		var b jsonBlock
		if isNull(one) {
			return wrong(at("blocks", i), "null", blockRemedy)
		}
		if err := json.Unmarshal(one, &b); err != nil {
			return typeError(at("blocks", i), err, blockRemedy)
		}
		if err := b.into(&r.Blocks[i]); err != nil {
			return inside(at("blocks", i), err)
		}
	}
	return nil
}

func (b *jsonBlock) into(to *Block) error {
	*to = Block{Tokens: b.Tokens, BlockTokens: int(b.BlockTokens), Adapter: b.Adapter, Salt: b.Salt}
	if b.Hash == nil {
		return wrong("hash", "missing", "send 16 hexadecimal digits")
	}
	var ok bool
	if to.Hash, ok = hexHash([]byte(*b.Hash)); !ok {
		return wrong("hash", shown([]byte(*b.Hash)), "send 16 hexadecimal digits")
	}
	if b.Parent != nil {
		if to.Parent, to.HasParent = hexHash([]byte(*b.Parent)); !to.HasParent {
			return wrong("parent", shown([]byte(*b.Parent)), "send 16 hexadecimal digits, or null at the root")
		}
	}
	if b.Extra != "" {
		var err error
		if to.Extra, err = hex.DecodeString(b.Extra); err != nil {
			return wrong("extra", err.Error(), "send hexadecimal digits")
		}
	}
	return checkLength("token_ids", len(b.Tokens), MaxBlockTokens)
}

// hexHash reads exactly 16 digits.
func hexHash(text []byte) (uint64, bool) {
	if len(text) != hexHashDigits {
		return 0, false
	}
	var b [hexHashDigits / 2]byte
	if _, err := hex.Decode(b[:], text); err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint64(b[:]), true
}

// jsonHashes reads a list of strings of 16 digits each, or of 64 each. It walks
// over the bytes itself, for a list may have a million of them; raw is valid
// JSON, so that what is not written as we expect it is merely refused.
func jsonHashes(field string, raw json.RawMessage) (Hashes, error) {
	const remedy = "send a list of strings of 16 hexadecimal digits (64 for a SHA-256)"
	var h Hashes
	if raw[0] != '[' {
		return h, wrong(field, shown(raw), remedy)
	}
	rest := raw[1:]
	for i := 0; ; i++ {
		rest = bytes.TrimLeft(rest, " \t\r\n,")
		if rest[0] == ']' {
			return h, nil
		}
		if i == MaxHashes {
			return h, checkLength(field, i+1, MaxHashes)
		}
		if rest[0] != '"' {
			return h, wrong(at(field, i), "not a string", remedy)
		}
		end := 1 + bytes.IndexByte(rest[1:], '"')
		if err := h.add(rest[1:end]); err != nil {
			return h, wrong(at(field, i), err.Error(), remedy)
		}
		rest = rest[end+1:]
	}
}

// add takes the digits of one more hash.
func (h *Hashes) add(digits []byte) error {
	if v, ok := hexHash(digits); ok && len(h.Long) == 0 {
		h.Short = append(h.Short, v)
		return nil
	}
	var long SHA256
	if len(digits) != hexDigestDigits || len(h.Short) > 0 {
		return fmt.Errorf("%s among %d of another length, or no hash", shown(digits), h.Len())
	}
	if _, err := hex.Decode(long[:], digits); err != nil {
		return fmt.Errorf("%s is not hexadecimal", shown(digits))
	}
	h.Long = append(h.Long, long)
	return nil
}
