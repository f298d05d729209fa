package prompt

import (
	"github.com/zeebo/xxh3"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/prefix"
)

// costHashBytesNs64 is what hashing 64 bytes of a body takes, in nanoseconds.
const costHashBytesNs64 = 4

// knownRequest is what the memo keeps of a whole request.
type knownRequest struct {
	units   []prefix.Hash
	tokens  int
	verdict Verdict
}

// Recall takes what is remembered of the very same request, byte for byte, as it
// comes again when several answers are wanted, when it is tried once more, or when
// many agents begin alike: nothing is read, rendered or cut then. It is called
// after Start, in place of Begin; if it reports false, Begin follows.
func (w *Walk) Recall(form Form, body []byte) (v Verdict, known bool) {
	if w.model.Clock != nil {
		return v, false // the time is part of the prompt
	}
	w.key = xxh3.Hash128Seed(body, w.model.own^uint64(w.root)+uint64(form))
	w.keyed = true
	k := w.model.Memo.requests.get(w.key)
	if k == nil {
		w.model.Memo.requests.count(0, 1)
		return v, false
	}
	w.model.Memo.requests.count(1, 0)
	w.form, w.body, w.recalled = form, body, true
	w.units = append(w.units[:0], k.units...)
	w.tokens, w.complete = k.tokens, true
	v = k.verdict
	v.CostNs = len(body)/64*costHashBytesNs64 + costLookNs
	return v, true
}

// remember keeps a request whose prompt was taken whole. units are the memo's.
func (w *Walk) remember(units []prefix.Hash) {
	if !w.keyed || w.verdict.Level != chat.LevelExact {
		return
	}
	w.model.Memo.requests.put(w.key, knownRequest{units, w.tokens, w.verdict}, int64(8*len(units)))
}
