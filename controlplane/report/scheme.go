package report

import (
	"crypto/sha256"
	"strconv"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/report/message"
	"warmpath/dataplane/prefix"
)

// Values of nodes.hash_scheme: how a minimal reporter makes its hashes, so that
// the router can make them too, from the tokens of the prompts that it sends.
const (
	SchemePrefix = "sha256_prefix" // one hash a prompt: SHA-256 over its first tokens
	SchemeSGLang = "sglang"        // SGLang's chain of SHA-256, one hash a page
	SchemeVLLM   = "vllm_cbor"     // vLLM's chain with --prefix-caching-hash-algo sha256_cbor
)

// vllmRoot is the text whose digest stands before the first block where
// PYTHONHASHSEED is not set (vLLM from 0.28).
const vllmRoot = "vllm-none-hash"

// Scheme is a node's scheme with all that its hashes depend on.
type Scheme struct {
	Name         string
	PrefixTokens int    // of SchemePrefix
	BlockTokens  int    // of the others: the engine's block or page; 0 = not known yet
	Seed         string // of SchemeVLLM: the engine's PYTHONHASHSEED; "" = not set
}

// Sent is a prompt on its way to a node with a minimal reporter. Its slices are
// borrowed.
type Sent struct {
	Slot       int           // of the node's rank
	IDs        []uint32      // the prompt's tokens; SchemePrefix needs only its first ones
	Chain      []prefix.Hash // the units that IDs fill
	UnitTokens int
	Salt       string
}

// named is a hash that a reporter may send, and the units that it stands for.
type named struct {
	hash  uint64
	parts []prefix.Hash
}

// names appends what a reporter will call the parts of a prompt, in their order.
// parts share the memory of the chain. scratch is overwritten and returned.
func (s *Scheme) names(dst []named, sent *Sent, scratch []byte) ([]named, []byte) {
	switch {
	case sent.UnitTokens <= 0:
	case s.Name == SchemePrefix:
		units := min(len(sent.Chain), min(s.PrefixTokens, len(sent.IDs))/sent.UnitTokens)
		if units > 0 {
			var digest message.SHA256
			digest, scratch = PrefixDigest(sent.IDs, s.PrefixTokens, scratch)
			dst = append(dst, named{digest.Name(), sent.Chain[:units]})
		}
	case s.BlockTokens > 0:
		dst = s.blocks(dst, sent)
	}
	return dst, scratch
}

// blocks walks over the blocks of a prompt. A unit counts for the block that
// completes it; a block that completes none has no entry.
func (s *Scheme) blocks(dst []named, sent *Sent) []named {
	next := s.hasher(sent.Salt)
	for start := 0; start+s.BlockTokens <= len(sent.IDs); start += s.BlockTokens {
		end := start + s.BlockTokens
		hash := next(sent.IDs[start:end])
		from, to := start/sent.UnitTokens, end/sent.UnitTokens
		if to > len(sent.Chain) {
			break
		}
		if from < to {
			dst = append(dst, named{hash, sent.Chain[from:to]})
		}
	}
	return dst
}

// hasher returns what makes the hashes of a prompt's blocks, one after another.
func (s *Scheme) hasher(salt string) func(ids []uint32) uint64 {
	if s.Name == SchemeSGLang {
		before := kvevent.SGLangRoot([]byte(salt))
		return func(ids []uint32) uint64 {
			page := kvevent.SGLangPage(before, ids)
			before = page[:]
			return kvevent.SGLangName(page)
		}
	}
	root := s.Seed
	if root == "" {
		root = vllmRoot
	}
	before := kvevent.VLLMRoot(root)
	var extra []byte
	if salt != "" {
		extra = kvevent.VLLMSalt(salt, true)
	}
	return func(ids []uint32) uint64 {
		before = kvevent.VLLMBlock(before, ids, extra)
		extra = nil // of the first block only
		return kvevent.VLLMName(before)
	}
}

// AppendTuple appends ids as Python prints a tuple: "(1, 2, 3)", "(5,)", "()".
func AppendTuple(dst []byte, ids []uint32) []byte {
	dst = append(dst, '(')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	if len(ids) == 1 {
		dst = append(dst, ',')
	}
	return append(dst, ')')
}

// PrefixDigest is the hash of SchemePrefix: SHA-256 over the text of the first
// prefixTokens of ids, of all of them if there are fewer. scratch is overwritten
// and returned, grown.
func PrefixDigest(ids []uint32, prefixTokens int, scratch []byte) (message.SHA256, []byte) {
	scratch = AppendTuple(scratch[:0], ids[:min(len(ids), prefixTokens)])
	return sha256.Sum256(scratch), scratch
}
