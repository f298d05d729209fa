package message

import (
	"encoding/binary"
	"fmt"

	"warmpath/dataplane/index"
)

// Bounds of a report's fields. Those of the two lists are what MaxBodyBytes can
// hold of whole hashes and of ordinary blocks: a body of the shortest numbers
// must not grow to many times its length in memory.
const (
	MaxBodyBytes    = 16 << 20 // of one part
	MaxHashes       = 2 << 20  // of one part
	MaxBlocks       = 1 << 18  // of one part
	MaxParts        = 64       // of one report
	MaxRanks        = 256      // data-parallel ranks of a node
	MaxEpochBytes   = 64
	MaxWorkerBytes  = 63
	MaxModelBytes   = 256
	MaxAdapterBytes = 256
	MaxSaltBytes    = 1024
	MaxExtraBytes   = 4096  // of a block's opaque keys
	MaxBlockTokens  = 65536 // of one block
	digestBytes     = 32    // of a SHA-256
	hexHashDigits   = 16
	hexDigestDigits = 2 * digestBytes
)

// Route is one of the protocol's three routes.
type Route uint8

const (
	Stored   Route = iota // blocks appeared
	Eviction              // blocks went
	Sync                  // a digest, the whole set, or blocks that were asked for
)

var routeNames = [...]string{"stored", "eviction", "sync"}

// String returns the last segment of the route's path.
func (r Route) String() string { return routeNames[r] }

// Path returns the route's path on the reports listener.
func (r Route) Path() string { return "/internal/" + routeNames[r] }

func tierOf(name string) (index.Tier, bool) {
	for tier := range index.Tier(index.Tiers) {
		if tier.String() == name {
			return tier, true
		}
	}
	return 0, false
}

// Block is one cached block, by the engine's own hash. Tokens and Extra may be
// shared and must not be written to.
type Block struct {
	Hash        uint64
	Parent      uint64 // of the block before it; meaningless without HasParent
	HasParent   bool   // false at the root of a chain
	Tokens      []uint32
	BlockTokens int // len(Tokens), or 0 where the reporter does not know the tokens
	Adapter     string
	Salt        string
	Extra       []byte // what the engine folds into this block besides its tokens; opaque
}

// SHA256 is a whole digest, as minimal reporters name prompts or blocks.
type SHA256 [digestBytes]byte

// Name is the digest's first 64 bits, big-endian: what the router keeps of it.
func (h SHA256) Name() uint64 { return binary.BigEndian.Uint64(h[:8]) }

// Tail is the digest's last 64 bits, big-endian: what vLLM keeps of it.
func (h SHA256) Tail() uint64 { return binary.BigEndian.Uint64(h[digestBytes-8:]) }

// Hashes is a list of block hashes: all of 64 bits, or all whole SHA-256.
type Hashes struct {
	Short []uint64
	Long  []SHA256
}

// Len returns how many hashes there are.
func (h *Hashes) Len() int { return len(h.Short) + len(h.Long) }

// Digest stands for a set of hashes: equal sets have equal digests, and two that
// differ have equal ones about once in 2^64. The zero Digest is of the empty
// set. The digests of two disjoint sets add up.
type Digest struct {
	Count uint64
	XOR   uint64
	Sum   uint64 // wrapping
}

// Add puts a hash that is not in the set into it.
func (d *Digest) Add(hash uint64) { d.Count++; d.XOR ^= hash; d.Sum += hash }

// Remove takes a hash that is in the set out of it.
func (d *Digest) Remove(hash uint64) { d.Count--; d.XOR ^= hash; d.Sum -= hash }

// Plus is the digest of the union of two disjoint sets.
func (d Digest) Plus(o Digest) Digest {
	return Digest{d.Count + o.Count, d.XOR ^ o.XOR, d.Sum + o.Sum}
}

// Report is one report, or one part of it.
type Report struct {
	Route    Route
	WorkerID string
	Epoch    string // "" only of a minimal reporter
	Seq      uint64 // from 1; 0 only of a minimal reporter
	Rank     int
	Model    string // "" = the one that the node serves
	Tier     index.Tier
	Part     int // 1 … Parts
	Parts    int

	Blocks    []Block
	Evicted   Hashes
	Digest    Digest
	HasDigest bool
	Full      bool
	Active    Hashes // meaningful with Full

	hasBlocks, hasEvicted, hasActive bool
}

// Minimal reports whether the reporter keeps no epoch and no seq, so that its
// hashes must be ones that the router can compute itself.
func (r *Report) Minimal() bool { return r.Seq == 0 }

// FieldError says which field of a report is wrong.
type FieldError struct {
	Field  string // as on the wire, with places: blocks[3].token_ids
	What   string
	Remedy string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s; %s", e.Field, e.What, e.Remedy) }

func wrong(field, what, remedy string) error { return &FieldError{field, what, remedy} }

// inside puts the place of an outer field before the name of an inner one.
func inside(outer string, err error) error {
	if e, ok := err.(*FieldError); ok {
		return &FieldError{outer + "." + e.Field, e.What, e.Remedy}
	}
	return err
}

// at names a place in a list.
func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// check says what is wrong with a report by itself. Whatever is optional and
// missing gets its default.
func (r *Report) check() error {
	if err := r.checkCommon(); err != nil {
		return err
	}
	if err := r.checkContent(); err != nil {
		return err
	}
	for i := range r.Blocks {
		if err := r.Blocks[i].check(); err != nil {
			return inside(at("blocks", i), err)
		}
	}
	return nil
}

func (r *Report) checkCommon() error {
	if r.Parts == 0 && r.Part == 0 {
		r.Part, r.Parts = 1, 1
	}
	switch {
	case r.WorkerID == "":
		return wrong("worker_id", "missing", "send the node's name in the router's configuration")
	case len(r.WorkerID) > MaxWorkerBytes:
		return wrong("worker_id", fmt.Sprintf("%d bytes", len(r.WorkerID)), fmt.Sprintf("names have at most %d", MaxWorkerBytes))
	case len(r.Epoch) > MaxEpochBytes:
		return wrong("epoch", fmt.Sprintf("%d bytes", len(r.Epoch)), fmt.Sprintf("use at most %d", MaxEpochBytes))
	case r.Epoch == "" && r.Seq > 0:
		return wrong("epoch", "missing beside seq", "send both, or neither from a minimal reporter")
	case r.Epoch != "" && r.Seq == 0:
		return wrong("seq", "missing beside epoch", "count from 1 in each epoch")
	case r.Rank < 0 || r.Rank >= MaxRanks:
		return wrong("rank", fmt.Sprint(r.Rank), fmt.Sprintf("use 0 to %d", MaxRanks-1))
	case len(r.Model) > MaxModelBytes:
		return wrong("model", fmt.Sprintf("%d bytes", len(r.Model)), fmt.Sprintf("use at most %d", MaxModelBytes))
	case r.Parts < 1 || r.Parts > MaxParts:
		return wrong("parts", fmt.Sprint(r.Parts), fmt.Sprintf("use 1 to %d", MaxParts))
	case r.Part < 1 || r.Part > r.Parts:
		return wrong("part", fmt.Sprintf("%d of %d", r.Part, r.Parts), "count from 1 to parts")
	case r.Minimal() && r.Parts > 1:
		return wrong("parts", "without a seq", "parts belong together by their seq: send epoch and seq")
	}
	return nil
}

// checkContent wants what the route is for.
func (r *Report) checkContent() error {
	switch {
	case r.Minimal() && (r.Route == Stored || r.hasBlocks):
		return wrong("epoch", "missing", "blocks are taken from reporters that send epoch and seq")
	case r.Route == Stored && !r.hasBlocks:
		return wrong("blocks", "missing", "send the list of blocks that appeared")
	case r.Route == Eviction && !r.hasEvicted:
		return wrong("evicted_hashes", "missing", "send the list of hashes that went")
	case r.Route == Sync && r.hasActive && !r.Full:
		if !r.Minimal() {
			return wrong("full", "not true beside active_hashes", "set it: active_hashes is the whole set")
		}
		r.Full = true
	case r.Route == Sync && r.Full && !r.hasActive:
		return wrong("active_hashes", "missing beside full", "send the whole set, [] for none")
	case r.Route == Sync && !r.Full && !r.HasDigest && !r.hasBlocks:
		return wrong("digest", "missing", "a sync has digest, or full and active_hashes, or blocks")
	}
	if r.Minimal() && r.HasDigest {
		return wrong("digest", "without epoch and seq", "send them too, or only evicted_hashes or active_hashes")
	}
	if !r.Minimal() && (len(r.Evicted.Long) > 0 || len(r.Active.Long) > 0) {
		field := "evicted_hashes"
		if len(r.Active.Long) > 0 {
			field = "active_hashes"
		}
		return wrong(field, "whole digests beside epoch and seq", fmt.Sprintf("use hashes of 64 bits, %d digits", hexHashDigits))
	}
	r.dropForeign()
	return nil
}

// dropForeign forgets what belongs to other routes: it is as unknown there as
// any other name.
func (r *Report) dropForeign() {
	if r.Route == Eviction {
		r.Blocks = nil
	} else {
		r.Evicted = Hashes{}
	}
	if r.Route != Sync {
		r.HasDigest, r.Digest, r.Full, r.Active = false, Digest{}, false, Hashes{}
	}
}

func checkLength(field string, n, most int) error {
	if n > most {
		return wrong(field, fmt.Sprintf("%d elements", n), fmt.Sprintf("send at most %d; a report may come in parts", most))
	}
	return nil
}

func (b *Block) check() error {
	if b.BlockTokens == 0 {
		b.BlockTokens = len(b.Tokens)
	}
	switch {
	case len(b.Tokens) == 0: // the reporter knows no tokens, whatever size it gives
		b.BlockTokens = 0
	case b.BlockTokens != len(b.Tokens):
		return wrong("block_tokens", fmt.Sprintf("%d, and there are %d token_ids", b.BlockTokens, len(b.Tokens)), "one entry of blocks is one block with all its ids")
	case len(b.Adapter) > MaxAdapterBytes:
		return wrong("adapter", fmt.Sprintf("%d bytes", len(b.Adapter)), fmt.Sprintf("use at most %d", MaxAdapterBytes))
	case len(b.Salt) > MaxSaltBytes:
		return wrong("salt", fmt.Sprintf("%d bytes", len(b.Salt)), fmt.Sprintf("use at most %d", MaxSaltBytes))
	case len(b.Extra) > MaxExtraBytes:
		return wrong("extra", fmt.Sprintf("%d bytes", len(b.Extra)), fmt.Sprintf("use at most %d", MaxExtraBytes))
	case b.HasParent && b.Parent == b.Hash:
		return wrong("parent", "the block's own hash", "send the hash of the block before it, null at the root")
	}
	return nil
}
