package prompt

import (
	"math/rand/v2"

	"github.com/zeebo/xxh3"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/prefix"
	"warmpath/dataplane/scan"
	"warmpath/dataplane/tokenize"
)

// What the steps of a walk cost, in nanoseconds, measured on one core of a
// 2.x GHz server: only their sum against a budget matters.
const (
	costLookNs       = 150 // a chunk or prefix found in its memo
	costUnitNs       = 15  // a unit hashed
	costColdByteNs   = 40  // a byte of text turned into ids, its words new
	costRawBytesNs32 = 2   // 32 bytes of the rope hashed and cut
)

// MinUnit and MaxUnit bound a unit, in tokens.
const (
	MinUnit = 16
	MaxUnit = 256
)

// prefixesTried bounds the look-ups of whole prefixes: a conversation that went
// on by a turn or two is found, a new one costs no more than this.
const prefixesTried = 12

// Walk goes through one prompt. The zero value is ready for Begin.
type Walk struct {
	Rope    chat.Rope    // the rendered prompt
	Machine chat.Machine // renders into Rope, and owns what rendering makes

	model  *Model
	input  chat.Input
	cutter cutter
	tok    tokenize.Scratch
	ids    []uint32
	text   []byte

	next   int // chunk that Next takes
	root   prefix.Hash
	units  []prefix.Hash
	parent prefix.Hash // the last unit's, else root
	tail   [MaxUnit]uint32
	tailed int // ids in tail
	tokens int // ids so far

	border   border // the last border of a message that was passed
	found    bool   // … and it was found in the memo
	hits     int64
	misses   int64
	before   []uint32 // ids that stand before the text, and behind it
	after    []uint32
	partial  bool // the rope is only the beginning of the prompt
	complete bool
	verdict  Verdict // Begin's

	// Of the whole request, see Recall.
	key      xxh3.Uint128
	keyed    bool
	recalled bool // nothing was rendered
}

// border is the state of a walk at the end of a chunk.
type border struct {
	chunk  int // -1 = none
	units  int
	tailed int
	tokens int
	tail   [MaxUnit]uint32
}

// Start begins a chain at root: Begin follows. Units that were returned before
// become invalid.
func (w *Walk) Start(m *Model, root prefix.Hash) {
	w.model = m
	w.root, w.parent = root, root
	w.units = w.units[:0]
	w.next, w.tailed, w.tokens = 0, 0, 0
	w.border.chunk, w.found = -1, false
	w.hits, w.misses = 0, 0
	w.before, w.after = nil, nil
	w.partial, w.complete = false, false
	w.verdict, w.keyed, w.recalled = Verdict{}, false, false
	w.Rope.Reset()
	w.cutter.chunks = w.cutter.chunks[:0]
}

// Wrap puts ids before and behind the text, as an engine does that adds special
// tokens by itself. Call it before Cut. Both are borrowed until the walk ends.
func (w *Walk) Wrap(before, after []uint32) { w.before, w.after = before, after }

// Cut divides the rope and takes what the memo of prefixes knows. It returns
// what that cost in nanoseconds of the estimate that Next counts in.
func (w *Walk) Cut() (spentNs int) {
	start := xxh3.Uint128{Lo: uint64(w.root), Hi: w.model.seed ^ uint64(len(w.before))<<32 ^ uint64(w.model.UnitTokens)}
	w.cutter.cut(w.model.Tokenizer, w.model.seed, start, w.Rope.Segments, w.partial)
	chunks := w.cutter.chunks
	bytes := 0
	for i := range chunks {
		bytes += int(chunks[i].bytes)
	}
	spentNs = bytes/32*costRawBytesNs32 + len(chunks)*20
	tried := 0
	for i := len(chunks) - 1; i > 0 && tried < prefixesTried; i-- {
		if !chunks[i].border {
			continue
		}
		tried++
		if known := w.model.Memo.prefixes.get(chunks[i].prefix); known != nil {
			w.resume(i, known)
			break
		}
	}
	switch {
	case w.found:
		w.model.Memo.prefixes.count(1, 0)
	case tried > 0:
		w.model.Memo.prefixes.count(0, 1)
	}
	if w.next == 0 {
		w.feed(w.before)
	}
	return spentNs + tried*costLookNs
}

// knownPrefix is what the memo keeps of a prefix.
type knownPrefix struct {
	units  []prefix.Hash
	tail   []uint32
	tokens int
}

// resume goes on behind chunk i.
func (w *Walk) resume(i int, known *knownPrefix) {
	w.units = append(w.units[:0], known.units...)
	if n := len(w.units); n > 0 {
		w.parent = w.units[n-1]
	}
	w.tailed, w.tokens = copy(w.tail[:], known.tail), known.tokens
	w.next = i + 1
	w.found = true
	w.pass(i)
}

// pass remembers the state at the end of chunk i.
func (w *Walk) pass(i int) {
	b := &w.border
	b.chunk, b.units, b.tailed, b.tokens = i, len(w.units), w.tailed, w.tokens
	copy(b.tail[:w.tailed], w.tail[:w.tailed])
}

// Next takes chunks until the estimate of what it cost reaches budgetNs, or
// until it has added units and is asked for no more than some of them; it
// returns what it cost. A chunk that would go beyond the budget is left: then
// Next returns budgetNs, and only one with a larger budget goes on.
func (w *Walk) Next(budgetNs, someUnits int) (spentNs int) {
	first := len(w.units)
	for spentNs < budgetNs && len(w.units)-first < someUnits && w.next < len(w.cutter.chunks) {
		cost, taken := w.take(w.next, budgetNs-spentNs)
		if !taken {
			return budgetNs
		}
		spentNs += cost
		w.next++
	}
	if w.next == len(w.cutter.chunks) && !w.complete {
		w.finish()
	}
	return spentNs
}

// take turns one chunk into ids, unless that takes longer than budgetNs.
func (w *Walk) take(i, budgetNs int) (spentNs int, taken bool) {
	c := &w.cutter.chunks[i]
	units := len(w.units)
	if known := w.model.Memo.chunks.get(c.key); known != nil {
		w.hits++
		w.feed(*known)
	} else {
		if spentNs = int(c.bytes) * costColdByteNs; spentNs > budgetNs {
			return spentNs, false
		}
		w.misses++
		w.ids = w.encode(w.ids[:0], i)
		w.model.Memo.chunks.put(c.key, append(make([]uint32, 0, len(w.ids)), w.ids...), int64(4*len(w.ids)))
		w.feed(w.ids)
	}
	if c.border {
		w.pass(i)
		w.found = false
	}
	return spentNs + costLookNs + (len(w.units)-units)*costUnitNs, true
}

// encode appends the ids of a chunk's text.
func (w *Walk) encode(ids []uint32, i int) []uint32 {
	c := w.cutter.chunks[i]
	end := w.cutter.stop
	if i+1 < len(w.cutter.chunks) {
		end = w.cutter.chunks[i+1].from
	}
	w.text = w.text[:0]
	for at := c.from; at.segment < end.segment || at.segment == end.segment && at.offset < end.offset; at = (place{at.segment + 1, 0}) {
		s := &w.Rope.Segments[at.segment]
		piece := s.Bytes[at.offset:]
		if at.segment == end.segment {
			piece = s.Bytes[at.offset:end.offset]
		}
		if s.Escaped {
			w.text = scan.AppendUnescaped(w.text, piece)
		} else {
			w.text = append(w.text, piece...)
		}
	}
	return w.model.Tokenizer.Append(ids, w.text, &w.tok)
}

// feed adds ids to the chain.
func (w *Walk) feed(ids []uint32) {
	w.tokens += len(ids)
	unit := w.model.UnitTokens
	if w.tailed > 0 {
		n := copy(w.tail[w.tailed:unit], ids)
		w.tailed += n
		ids = ids[n:]
		if w.tailed < unit {
			return
		}
		w.unit(w.tail[:unit])
		w.tailed = 0
	}
	for len(ids) >= unit {
		w.unit(ids[:unit])
		ids = ids[unit:]
	}
	w.tailed = copy(w.tail[:], ids)
}

func (w *Walk) unit(ids []uint32) {
	w.parent = prefix.NextUnit(w.parent, ids, nil)
	w.units = append(w.units, w.parent)
}

// finish ends the prompt and remembers it, up to its last border and as a whole.
func (w *Walk) finish() {
	w.complete = true
	w.feed(w.after)
	w.model.Memo.chunks.count(w.hits, w.misses)
	b := &w.border
	prefixed, whole := b.chunk >= 0 && !w.found, w.keyed && w.verdict.Level == chat.LevelExact
	kept := 0
	switch {
	case whole:
		kept = len(w.units)
	case prefixed:
		kept = b.units
	default:
		return
	}
	units := append(make([]prefix.Hash, 0, kept), w.units[:kept]...)
	if whole {
		w.model.Memo.requests.put(w.key, knownRequest{units, w.tokens, w.verdict}, int64(8*kept))
	}
	if prefixed {
		known := knownPrefix{
			units:  units[:b.units:b.units],
			tail:   append(make([]uint32, 0, b.tailed), b.tail[:b.tailed]...),
			tokens: b.tokens,
		}
		w.model.Memo.prefixes.put(w.cutter.chunks[b.chunk].prefix, known, int64(8*kept+4*b.tailed))
	}
}

// Units returns the hashes of all full units so far. They are the walk's until
// its next Start.
func (w *Walk) Units() []prefix.Hash { return w.units }

// Count returns how many tokens there are so far.
func (w *Walk) Count() int { return w.tokens }

// Complete reports whether the whole prompt was taken.
func (w *Walk) Complete() bool { return w.complete }

// Estimate returns how many tokens the whole prompt has: counted as far as it
// was taken, estimated by its bytes from there on.
func (w *Walk) Estimate() int {
	n := w.tokens
	for i := w.next; i < len(w.cutter.chunks); i++ {
		n += (int(w.cutter.chunks[i].bytes) + bytesPerToken - 1) / bytesPerToken
	}
	return n
}

const bytesPerToken = 4

// End lets go of the request: of its body and of all that was borrowed. The next
// walk begins with Start. It returns how much memory the Walk keeps for it.
func (w *Walk) End() (keptBytes int) {
	w.Machine.Reset()
	clear(w.Rope.Segments[:cap(w.Rope.Segments)])
	w.Rope.Reset()
	w.input, w.before, w.after = chat.Input{}, nil, nil
	return cap(w.units)*8 + cap(w.ids)*4 + cap(w.text) + cap(w.cutter.chunks)*64 + cap(w.Rope.Segments)*32 + w.Machine.Held()
}

// AppendLeading appends the prompt's first ids, at most so many. found is that
// of Begin; what was recalled has no ids.
func (w *Walk) AppendLeading(ids []uint32, found *scan.Result, most int) []uint32 {
	if len(w.cutter.chunks) == 0 {
		return append(ids, found.Tokens[:min(most, len(found.Tokens))]...)
	}
	first := len(ids)
	ids = append(ids, w.before...)
	for i := 0; i < len(w.cutter.chunks) && len(ids)-first < most; i++ {
		if known := w.model.Memo.chunks.get(w.cutter.chunks[i].key); known != nil {
			ids = append(ids, *known...)
		} else {
			ids = w.encode(ids, i)
		}
	}
	ids = append(ids, w.after...)
	return ids[:min(len(ids), first+most)]
}

// AppendIDs is for looking at a prompt, not for routing it: all ids of the rope.
func (w *Walk) AppendIDs(ids []uint32) []uint32 {
	ids = append(ids, w.before...)
	for i := range w.cutter.chunks {
		ids = w.encode(ids, i)
	}
	return append(ids, w.after...)
}

// processSeed keeps anybody from making texts whose keys are equal: keys never
// leave the process.
var processSeed = rand.Uint64()

// seedOf makes a seed of a fingerprint.
func seedOf(fingerprint []byte) uint64 { return xxh3.HashSeed(fingerprint, processSeed) }
