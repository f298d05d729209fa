package report

import (
	"slices"

	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// Writer is what a Placer needs of the index's writer, an *index.Writer.
type Writer interface {
	// Stored says that the tier of a slot holds an engine's block, which fills
	// the units parts, one or more. Said twice, it takes two Removed. False
	// means that there is no room for it.
	Stored(slot int, tier index.Tier, block uint64, parts []prefix.Hash) bool
	// Removed takes one Stored back, false if there is none.
	Removed(slot int, tier index.Tier, block uint64) bool
	// Last is the unit at the end of a block that any tier holds.
	Last(slot int, block uint64) (prefix.Hash, bool)
	// Digest is the count, the exclusive or and the wrapping sum of the blocks
	// of a tier.
	Digest(slot int, tier index.Tier) (count, xor, sum uint64)
	// Blocks visits the blocks of a tier, which must not change meanwhile.
	Blocks(slot int, tier index.Tier, yield func(block uint64) bool)
	// Clear forgets all tiers of a slot.
	Clear(slot int)
}

// Chains says how chains of a model are made: the fleet's seed and the tokens of
// one unit; 0 tokens while that is not known.
type Chains func(model string) (seed uint64, unitTokens int)

// Placer applies batches to the index. It belongs to the goroutine that owns the
// index's writer.
//
// What a node holds is kept in two places, which are disjoint: blocks whose
// units are known are in the index, and all others are beside it (aside). A
// digest is that of both together, so that a block which we cannot place does
// not look like one that we have lost.
type Placer struct {
	writer  Writer
	chains  Chains
	aside   map[shelf]*aside
	prompts map[int]*prompts // by slot; of nodes with minimal reporters
	besides int              // blocks in all of aside
	parts   []prefix.Hash    // scratch
	ids     []uint32         // scratch
	text    []byte           // scratch
	names   []named          // scratch
}

// shelf is one tier of one slot.
type shelf struct {
	slot int
	tier index.Tier
}

// NewPlacer returns a Placer over writer.
func NewPlacer(writer Writer, chains Chains) *Placer {
	return &Placer{writer: writer, chains: chains, aside: map[shelf]*aside{}, prompts: map[int]*prompts{}}
}

// Apply applies a batch whole. The caller has checked that the slot's tenant is
// still the one that the batch is for.
func (p *Placer) Apply(b *Batch) Result {
	if b.Clear {
		p.Forget(b.Slot)
		p.writer.Clear(b.Slot)
	}
	at := shelf{b.Slot, b.Tier}
	if b.Scheme != "" {
		p.minimal(at, b)
		return Result{}
	}
	beside := p.besideOf(at)
	if b.Replace {
		p.replace(at, beside, b)
	}
	seed, unit := p.chains(b.Model)
	in := chain{seed: seed, unit: unit, model: b.Model}
	for i := range b.Stored {
		p.store(at, beside, in, &b.Stored[i])
	}
	for i := range b.Described {
		p.describe(at, beside, in, &b.Described[i])
	}
	for _, hash := range b.Removed {
		if !beside.remove(hash) {
			p.writer.Removed(at.slot, at.tier, hash)
		}
	}
	return Result{Digest: p.digest(at).Plus(beside.digest), Wanted: beside.wanted(b.Wants)}
}

func (p *Placer) digest(at shelf) message.Digest {
	count, xor, sum := p.writer.Digest(at.slot, at.tier)
	return message.Digest{Count: count, XOR: xor, Sum: sum}
}

// Forget drops what is kept beside the index for a slot. Call it whenever the
// index's entries of the slot are dropped or cleared.
func (p *Placer) Forget(slot int) {
	for tier := range index.Tier(index.Tiers) {
		at := shelf{slot, tier}
		if a := p.aside[at]; a != nil {
			a.keep(nil)
			delete(p.aside, at)
		}
	}
	delete(p.prompts, slot)
}

func (p *Placer) besideOf(at shelf) *aside {
	a := p.aside[at]
	if a == nil {
		a = newAside(&p.besides)
		p.aside[at] = a
	}
	return a
}

// chain says how units of a batch's model are made.
type chain struct {
	seed  uint64
	unit  int
	model string
}

// store adds a block that appeared.
func (p *Placer) store(at shelf, beside *aside, in chain, b *message.Block) {
	if beside.has(b.Hash) {
		beside.again(b.Hash)
		p.describe(at, beside, in, b)
		return
	}
	parts, is := p.place(at.slot, in, b)
	if parts != nil {
		if p.writer.Stored(at.slot, at.tier, b.Hash, parts) {
			return
		}
		is = page{opaque: true}
	}
	beside.add(b.Hash, is)
}

// describe gives a block that is held beside the index its tokens.
func (p *Placer) describe(at shelf, beside *aside, in chain, b *message.Block) {
	e, held := beside.entries[b.Hash]
	if !held || e.page.known() {
		return
	}
	parts, is := p.place(at.slot, in, b)
	if parts != nil {
		if p.writer.Stored(at.slot, at.tier, b.Hash, parts) {
			for range beside.take(b.Hash) - 1 {
				p.writer.Stored(at.slot, at.tier, b.Hash, parts)
			}
			return
		}
		is = page{opaque: true}
	}
	beside.describe(b.Hash, is)
}

// place finds the units that a block completes; they are valid until the next
// call. A block that ends inside a unit, as small pages do, is returned as a
// page. The zero page means that nothing can be made of the block as yet.
//
// Units are made as kvevent.Tracker makes them, for they are the same units.
func (p *Placer) place(slot int, in chain, b *message.Block) ([]prefix.Hash, page) {
	if len(b.Tokens) == 0 {
		return nil, page{opaque: true}
	}
	base, before, ok := p.start(slot, in, b)
	if !ok || in.unit <= 0 {
		return nil, page{}
	}
	extra := b.Extra
	if len(extra) > 0 && (len(before) > 0 || len(b.Tokens) < in.unit) {
		base, extra = prefix.NextUnit(base, nil, extra), nil
	}
	p.ids = append(append(p.ids[:0], before...), b.Tokens...)
	p.parts = p.parts[:0]
	ids := p.ids
	for ; len(ids) >= in.unit; ids, extra = ids[in.unit:], nil {
		base = prefix.NextUnit(base, ids[:in.unit], extra)
		p.parts = append(p.parts, base)
	}
	switch {
	case len(ids) == 0:
		return p.parts, page{}
	case len(p.parts) == 0:
		return nil, page{base: base, tokens: slices.Clone(ids)}
	default:
		return nil, page{opaque: true} // it completes one unit and begins another: no size of ours fits it
	}
}

// start returns the last whole unit before a block, and the tokens since then.
func (p *Placer) start(slot int, in chain, b *message.Block) (base prefix.Hash, ids []uint32, ok bool) {
	if !b.HasParent {
		return prefix.ChainStart(in.seed, []byte(in.model), []byte(b.Adapter), []byte(b.Salt)), nil, true
	}
	for tier := range index.Tier(index.Tiers) {
		if a := p.aside[shelf{slot, tier}]; a != nil && a.entries[b.Parent] != nil && a.entries[b.Parent].page.known() {
			is := &a.entries[b.Parent].page
			return is.base, is.tokens, true
		}
	}
	base, ok = p.writer.Last(slot, b.Parent)
	return base, nil, ok
}

// replace makes the tier's set the one that the node says it is.
func (p *Placer) replace(at shelf, beside *aside, b *Batch) {
	missing := b.activeSet()
	var gone []uint64
	p.writer.Blocks(at.slot, at.tier, func(block uint64) bool {
		if _, held := missing[block]; held {
			delete(missing, block)
		} else {
			gone = append(gone, block)
		}
		return true
	})
	for _, block := range gone {
		for p.writer.Removed(at.slot, at.tier, block) { // all of its references
		}
	}
	beside.keep(missing)
	for _, hash := range b.Active { // in this order, for parents come first in it
		if _, new := missing[hash]; new {
			delete(missing, hash)
			beside.add(hash, page{})
		}
	}
}

// Noted says that a prompt is sent to a node with a minimal reporter. The index
// holds its units from now on, until a report takes them away; it must not learn
// them in another way. It returns how many units of the chain it took: what
// follows them may be learned as usual.
func (p *Placer) Noted(s Scheme, sent Sent) (units int) {
	p.names, p.text = s.names(p.names[:0], &sent, p.text)
	if len(p.names) == 0 {
		return 0
	}
	known := p.promptsOf(sent.Slot)
	// From the end, so that what is forgotten first are ends of prompts.
	for i := len(p.names) - 1; i >= 0; i-- {
		n := &p.names[i]
		units += len(n.parts)
		is, gone := known.note(n.hash, n.parts)
		if !slices.Equal(is.parts, n.parts) { // the same prompt in units of another size
			p.hold(sent.Slot, is, false)
			is.parts = slices.Clone(n.parts)
		}
		p.hold(sent.Slot, is, true)
		if gone != nil {
			p.hold(sent.Slot, gone, false)
		}
	}
	return units
}

// hold puts a prompt into the index or takes it out.
func (p *Placer) hold(slot int, is *prompt, held bool) {
	switch {
	case held && !is.held:
		is.held = p.writer.Stored(slot, index.Device, is.name, is.parts)
	case !held && is.held:
		p.writer.Removed(slot, index.Device, is.name)
		is.held = false
	}
}

// minimal applies what a reporter says in names that we make ourselves. Names
// of prompts that other routers sent mean nothing to us.
func (p *Placer) minimal(at shelf, b *Batch) {
	known := p.prompts[at.slot]
	if known == nil {
		return
	}
	if b.Replace {
		active := b.activeSet()
		for e := known.order.Front(); e != nil; e = e.Next() {
			is := e.Value.(*prompt)
			_, held := active[is.name]
			p.hold(at.slot, is, held)
		}
	}
	for _, name := range b.Removed {
		if is := known.find(name); is != nil {
			p.hold(at.slot, is, false)
		}
	}
}
