package stream

import "bytes"

// tailBytes is how much of the end of one piece is remembered, so that a
// number cut in two by a read is still found: the longest key and 19 digits.
const tailBytes = 48

var (
	cachedKey     = []byte(`"cached`)
	promptKey     = []byte(`"prompt`)
	completionKey = []byte(`"completion`)
	tokensKey     = []byte(`_tokens"`)
)

// Usage looks for the engine's usage figures in the next bytes of a body of
// any kind. The last value of each wins, as engines that send usage with every
// event let it grow.
func (w *Watcher) Usage(b []byte) {
	if w.tailLen > 0 {
		w.joint(b)
	}
	w.figures(b)
	n := min(len(b), tailBytes)
	if n == tailBytes {
		copy(w.tail[:], b[len(b)-n:])
		w.tailLen = tailBytes
		return
	}
	keep := min(w.tailLen, tailBytes-n)
	copy(w.tail[:], w.tail[w.tailLen-keep:w.tailLen])
	copy(w.tail[keep:], b)
	w.tailLen = keep + n
}

// joint looks across the border between the last piece and b.
func (w *Watcher) joint(b []byte) {
	var both [2 * tailBytes]byte
	n := copy(both[:], w.tail[:w.tailLen])
	n += copy(both[n:], b[:min(len(b), tailBytes)])
	w.figures(both[:n])
}

// figures reads every figure in b: one search for what their names end in, then
// a look at what stands before it. A number that touches the end of b may go on
// in the next piece: it is left for then.
func (w *Watcher) figures(b []byte) {
	for {
		at := bytes.Index(b, tokensKey)
		if at < 0 {
			return
		}
		name, rest := b[:at], b[at+len(tokensKey):]
		switch {
		case bytes.HasSuffix(name, cachedKey):
			number(rest, &w.CachedTokens)
		case bytes.HasSuffix(name, promptKey):
			number(rest, &w.PromptTokens)
		case bytes.HasSuffix(name, completionKey):
			number(rest, &w.CompletionTokens)
		}
		b = rest
	}
}

// maxDigits bounds a figure: more digits would not fit, and are left out.
const maxDigits = 18

// number reads the integer at the start of b, after a colon and spaces.
func number(b []byte, out *int64) {
	b = bytes.TrimLeft(b, " :")
	var v int64
	for i, c := range b {
		if c < '0' || c > '9' {
			if i > 0 {
				*out = v
			}
			return
		}
		if i == maxDigits {
			*out = v
			return
		}
		v = v*10 + int64(c-'0')
	}
}
