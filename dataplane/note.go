package dataplane

import (
	"sync/atomic"

	"warmpath/dataplane/prefix"
)

// Note says that a prompt was sent to a node: its units are held there from
// now on, or are expected to be. Chain is borrowed until the function that got
// the Note returns.
type Note struct {
	Kind       NoteKind
	Slot       int // of the node's rank
	Generation uint32
	AtNs       int64 // when it was sent; of NoteExpected and NoteBegun until when it counts
	Class      uint8 // of NoteBegun: the prompt.Class whose proof its echo is
	Echo       bool  // of NoteBegun: the engine has the first of the units for certain, and must report it
	Chain      []prefix.Hash
	// IDs are the prompt's first tokens, for nodes whose reporter names prompts
	// by them; else empty.
	IDs []uint32
}

// NoteKind says what a Note's units are.
type NoteKind uint8

const (
	NoteLearned     NoteKind = iota // the whole chain; the node does not report what it holds
	NoteExpected                    // what the node is expected to report
	NoteBegun                       // … whose first token has come: until when it counts, newly
	NoteLearnedText                 // as NoteLearned, a chain of text
)

const (
	noteRingWords  = 1 << 18 // 2 MiB a loop: a thousand notes of 64k-token prompts
	noteHeadWords  = 4
	noteSlotShift  = 32
	noteSlotMask   = 1<<24 - 1
	noteClassShift = 56
	noteClassMask  = 1<<5 - 1
	noteEchoBit    = 1 << 61
	noteKindShift  = 62
	noteLengthMask = 1<<32 - 1
)

// NoteRing carries notes from one loop to the indexer: a single-producer,
// single-consumer ring of words. When it is full a note is dropped and
// counted, for a lost note costs a cache hit and a wait would cost a request.
//
// Proof of safety: head is written by the producer only and tail by the
// consumer only. The producer writes words in [head, head+n) before it stores
// head, and the consumer reads them after it loaded that head (the store and
// the load are atomic, hence ordered); the producer overwrites a word only
// after it loaded a tail beyond it, which the consumer stored after reading.
type NoteRing struct {
	words [noteRingWords]uint64

	bell *Doorbell // immutable

	head    atomic.Uint64 // producer-owned: words ever written
	dropped atomic.Uint64 // producer-owned
	_       [48]byte
	tail    atomic.Uint64 // consumer-owned: words ever read
}

// Dropped returns how many notes found the ring full.
func (r *NoteRing) Dropped() uint64 { return r.dropped.Load() }

// put appends a note, false if it was dropped. Producer only.
func (r *NoteRing) put(n Note) bool {
	idWords := (len(n.IDs) + 1) / 2
	head, need := r.head.Load(), uint64(noteHeadWords+len(n.Chain)+idWords)
	if head+need-r.tail.Load() > noteRingWords {
		r.dropped.Add(1)
		return false
	}
	first := uint64(n.Kind)<<noteKindShift | uint64(n.Class)<<noteClassShift | uint64(n.Slot)<<noteSlotShift | uint64(len(n.Chain))
	if n.Echo {
		first |= noteEchoBit
	}
	r.set(head, first)
	r.set(head+1, uint64(n.Generation))
	r.set(head+2, uint64(n.AtNs))
	r.set(head+3, uint64(len(n.IDs)))
	for i, h := range n.Chain {
		r.set(head+noteHeadWords+uint64(i), uint64(h))
	}
	ids := head + noteHeadWords + uint64(len(n.Chain))
	for i := 0; i < len(n.IDs); i += 2 {
		word := uint64(n.IDs[i])
		if i+1 < len(n.IDs) {
			word |= uint64(n.IDs[i+1]) << 32
		}
		r.set(ids+uint64(i/2), word)
	}
	r.head.Store(head + need) // publishes the words above
	r.bell.ring()
	return true
}

// Doorbell wakes the one consumer of all rings. A consumer that is awake costs
// a producer one atomic load.
//
// No wake-up is lost: the consumer stores asleep and then looks at the rings
// once more before it waits; a producer stores its head and then loads asleep.
// Both are sequentially consistent, so at least one of them sees the other.
type Doorbell struct {
	asleep atomic.Bool
	rung   chan struct{}
}

func newDoorbell() *Doorbell { return &Doorbell{rung: make(chan struct{}, 1)} }

func (b *Doorbell) ring() {
	if b.asleep.Load() && b.asleep.CompareAndSwap(true, false) {
		select {
		case b.rung <- struct{}{}:
		default: // it is being woken already
		}
	}
}

// Sleep says that the consumer is about to wait on the channel it returns. It
// must look at the rings once more before it does.
func (b *Doorbell) Sleep() <-chan struct{} {
	b.asleep.Store(true)
	return b.rung
}

// Wake says that the consumer looks at the rings by itself again.
func (b *Doorbell) Wake() { b.asleep.Store(false) }

func (r *NoteRing) set(at, v uint64) { r.words[at&(noteRingWords-1)] = v }

func (r *NoteRing) get(at uint64) uint64 { return r.words[at&(noteRingWords-1)] }

// pending reports whether notes wait to be applied.
func (r *NoteRing) pending() bool { return r.behind(r.applied()) }

// applied is how far the consumer has come: the index has all notes up to here.
func (r *NoteRing) applied() uint64 { return r.tail.Load() }

// behind reports whether there are notes beyond what was applied at a moment.
func (r *NoteRing) behind(applied uint64) bool { return applied != r.head.Load() }

// Take applies one note and frees its words, false if there is none. Consumer
// only; scratch is reused for the chain and returned grown.
func (r *NoteRing) Take(scratch []prefix.Hash, apply func(Note)) ([]prefix.Hash, bool) {
	tail := r.tail.Load()
	if tail == r.head.Load() {
		return scratch, false
	}
	first := r.get(tail)
	length := first & noteLengthMask
	scratch = scratch[:0]
	for i := range length {
		scratch = append(scratch, prefix.Hash(r.get(tail+noteHeadWords+i)))
	}
	count := r.get(tail + 3)
	var ids []uint32
	for i := range count { // rare: nodes with minimal reporters alone have any
		ids = append(ids, uint32(r.get(tail+noteHeadWords+length+i/2)>>(32*(i%2))))
	}
	apply(Note{
		Kind:       NoteKind(first >> noteKindShift),
		Class:      uint8(first >> noteClassShift & noteClassMask),
		Echo:       first&noteEchoBit != 0,
		Slot:       int(first >> noteSlotShift & noteSlotMask),
		Generation: uint32(r.get(tail + 1)),
		AtNs:       int64(r.get(tail + 2)),
		Chain:      scratch,
		IDs:        ids,
	})
	r.tail.Store(tail + noteHeadWords + length + (count+1)/2) // after apply: the overlay may forget them now
	return scratch, true
}
