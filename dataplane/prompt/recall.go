package prompt

import (
	"github.com/zeebo/xxh3"

	"warmpath/dataplane/prefix"
	"warmpath/dataplane/scan"
)

const (
	costHashBytesNs64 = 4       // 64 bytes of a body hashed
	recallBytes       = 1 << 20 // what is longer is a worker's anyway, and seldom comes again
)

// knownRequest is what the memo keeps of a whole request.
type knownRequest struct {
	units   []prefix.Hash
	tokens  int
	verdict Verdict
}

// Recall takes what is remembered of the very same request, byte for byte, as it
// comes again when several answers are wanted, when it is tried once more, or when
// many agents begin alike: nothing is read, rendered or cut then. It is called
// after Start, in place of Begin; if it reports false, Begin follows. found is what
// package scan found in body.
func (w *Walk) Recall(form Form, body []byte, found *scan.Result) (v Verdict, known bool) {
	if w.model.Clock != nil || len(body) > recallBytes || !mayBeWhole(found) {
		return v, false // the time is part of the prompt, or it is never known whole
	}
	w.key = xxh3.Hash128Seed(body, w.model.own^uint64(w.root)+uint64(form))
	w.keyed = true
	k := w.model.Memo.requests.get(w.key)
	if k == nil {
		w.model.Memo.requests.count(0, 1)
		return v, false
	}
	w.model.Memo.requests.count(1, 0)
	w.recalled = true
	w.units = append(w.units[:0], k.units...)
	w.tokens, w.complete = k.tokens, true
	v = k.verdict
	v.CostNs = len(body)/64*costHashBytesNs64 + costLookNs
	return v, true
}

// Recalled reports whether the prompt was recalled.
func (w *Walk) Recalled() bool { return w.recalled }

// mayBeWhole reports whether a prompt has neither given ids, which cost nothing to
// walk, nor media, which end what can be known of it.
func mayBeWhole(found *scan.Result) bool {
	for i := range found.Parts {
		if found.Parts[i].Kind != scan.PartText {
			return false
		}
	}
	return len(found.Tokens) == 0
}
