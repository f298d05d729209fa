package kvevent

import "unsafe"

// Kind tells what an Event is about.
type Kind uint8

// The kinds of events (vllm/distributed/kv_events.py; SGLang's are the same).
const (
	Stored Kind = iota + 1
	Removed
	Cleared
)

// Medium is where an event's blocks lie.
type Medium uint8

// The media. Device stands for "GPU" and for an event that names none, as
// engines before vLLM 0.10.2 do; Host for "CPU" and SGLang's "CPU_PINNED"; Disk
// for "STORAGE", "DISK" and "EXTERNAL", all that is further away. OtherMedium
// is a name that this package does not know.
const (
	Device Medium = iota
	Host
	Disk
	OtherMedium
)

// Spec is the attention of the cache group that an event is about.
type Spec uint8

// Groups other than Full hold only a part of a prefix (a sliding window, a
// recurrent state), so their blocks say nothing about what can be reused.
const (
	SpecNotSaid Spec = iota
	SpecFull
	SpecOther
)

// NotSaid is the Rank or Group of something that does not name it.
const NotSaid = -1

// Batch is one message of an engine: what one scheduler step changed. Its
// slices belong to it and are overwritten by the next decode into it.
type Batch struct {
	// TimeSeconds is the engine's clock, seconds since 1970.
	TimeSeconds float64
	// Rank is the data-parallel rank as the engine says it, or NotSaid. The
	// stream that the batch came by is the better witness: some engines say 0
	// for all.
	Rank   int
	Events []Event
	// Dropped counts what could not be read, by reason.
	Dropped Drops

	hashes []uint64
	tokens []uint32
	extra  []byte
	ends   []int
	spans  []span
}

// Event is one change of a cache. Its slices are the Batch's.
type Event struct {
	Kind Kind
	// Merged is how many events of the wire this is: runs of Removed are one.
	Merged int
	// Hashes are the engine's names of the blocks, a contiguous run for Stored.
	// A signed hash is kept as its 64 bits, a digest as its last 8 bytes.
	Hashes []uint64
	// Parent is the block before the run; without HasParent it is a root.
	Parent    uint64
	HasParent bool
	// Tokens are the ids of the whole run.
	Tokens []uint32
	// BlockTokens is the tokens of one block, 0 for a placeholder.
	BlockTokens int
	Medium      Medium
	// Adapter is the LoRA adapter's name, "#" and its number where the engine
	// gives no name, "" for the base model. Salt is the cache_salt, known for
	// runs that start at the root, and for all of SGLang's.
	Adapter string
	Salt    string
	// Group is the KV cache group, or NotSaid.
	Group int
	Spec  Spec
	// Remote blocks can be reached from the engine but lie elsewhere.
	Remote bool

	extra []byte
	ends  []int // of each block's part of extra; nil if no block has any
}

// block returns the tokens of block i.
func (e *Event) block(i int) []uint32 {
	return e.Tokens[i*e.BlockTokens : (i+1)*e.BlockTokens]
}

// Extra is what the engine folds into the hash of block i besides its tokens,
// the adapter and the salt: identities of images, digests of embeddings. They
// are canonical MessagePack, to be compared and hashed, not to be understood;
// empty for none.
func (e *Event) Extra(i int) []byte {
	if i >= len(e.ends) {
		return nil
	}
	start := 0
	if i > 0 {
		start = e.ends[i-1]
	}
	return e.extra[start:e.ends[i]]
}

// span remembers where an event's slices lie while the Batch's memory grows.
type span struct {
	hashes, tokens, extra, ends [2]int
}

// reset makes the batch ready for another payload.
func (b *Batch) reset() {
	b.TimeSeconds, b.Rank, b.Dropped = 0, NotSaid, Drops{}
	b.Events, b.hashes, b.tokens = b.Events[:0], b.hashes[:0], b.tokens[:0]
	b.extra, b.ends, b.spans = b.extra[:0], b.ends[:0], b.spans[:0]
}

// link gives the events their slices, when the memory does not move any more.
func (b *Batch) link() {
	for i := range b.Events {
		e, s := &b.Events[i], &b.spans[i]
		e.Hashes = b.hashes[s.hashes[0]:s.hashes[1]:s.hashes[1]]
		e.Tokens = b.tokens[s.tokens[0]:s.tokens[1]:s.tokens[1]]
		e.extra = b.extra[s.extra[0]:s.extra[1]:s.extra[1]]
		e.ends = b.ends[s.ends[0]:s.ends[1]:s.ends[1]]
	}
}

// bytes is about how much memory the batch keeps.
func (b *Batch) bytes() int {
	return cap(b.hashes)*8 + cap(b.tokens)*4 + cap(b.extra) + cap(b.ends)*8 + cap(b.Events)*int(unsafe.Sizeof(Event{})+unsafe.Sizeof(span{}))
}
