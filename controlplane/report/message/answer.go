package message

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/tinylib/msgp/msgp"
)

// WantFull is the value of Answer.Want that asks for a full sync.
const WantFull = "full"

// Answer is what a router says to a report that it has taken.
type Answer struct {
	Seq        uint64   // the highest that is applied; 0 to a minimal reporter
	Want       string   // WantFull or ""
	WantBlocks []uint64 // hashes whose tokens the router does not know
}

// AppendJSON appends the answer's JSON.
func (a *Answer) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, a.Seq, 10)
	if a.Want != "" {
		dst = append(dst, `,"want":`...)
		dst = appendQuoted(dst, a.Want)
	}
	if len(a.WantBlocks) > 0 {
		dst = append(dst, `,"want_blocks":`...)
		dst = appendHexList(dst, a.WantBlocks)
	}
	return append(dst, "}\n"...)
}

// AppendMsgpack appends the answer's MessagePack.
func (a *Answer) AppendMsgpack(dst []byte) []byte {
	fields := uint32(1)
	if a.Want != "" {
		fields++
	}
	if len(a.WantBlocks) > 0 {
		fields++
	}
	dst = msgp.AppendMapHeader(dst, fields)
	dst = msgp.AppendUint64(msgp.AppendString(dst, "seq"), a.Seq)
	if a.Want != "" {
		dst = msgp.AppendString(msgp.AppendString(dst, "want"), a.Want)
	}
	if len(a.WantBlocks) > 0 {
		dst = appendPackList(msgp.AppendString(dst, "want_blocks"), a.WantBlocks)
	}
	return dst
}

// DecodeAnswerJSON reads a router's answer.
func DecodeAnswerJSON(body []byte) (*Answer, error) {
	var fields struct {
		Seq        uint64          `json:"seq"`
		Want       string          `json:"want"`
		WantBlocks json.RawMessage `json:"want_blocks"`
	}
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	a := &Answer{Seq: fields.Seq, Want: fields.Want}
	if !isNull(fields.WantBlocks) {
		h, err := jsonHashes("want_blocks", fields.WantBlocks)
		if err != nil {
			return nil, fmt.Errorf("read answer: %w", err)
		}
		a.WantBlocks = h.Short
	}
	return a, nil
}

// DecodeAnswerMsgpack reads a router's answer.
func DecodeAnswerMsgpack(body []byte) (*Answer, error) {
	a := &Answer{}
	_, err := eachField("answer", body, func(name string, b []byte) ([]byte, error) {
		switch name {
		case "seq":
			return packUint("seq", b, &a.Seq)
		case "want":
			return packText("want", b, &a.Want)
		case "want_blocks":
			var h Hashes
			rest, err := packHashes("want_blocks", b, &h)
			a.WantBlocks = h.Short
			return rest, err
		default:
			return skip(name, b)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return a, nil
}
