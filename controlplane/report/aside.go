package report

import (
	"warmpath/controlplane/report/message"
	"warmpath/dataplane/prefix"
)

const (
	asideMax = 1 << 22 // blocks of all nodes; beyond it they are not kept
	askMost  = 3       // times that a block's tokens are asked for
)

// aside is what a tier of a node holds and the index does not: blocks whose
// tokens are not known, whose parents are not known, and pages that are smaller
// than a unit.
type aside struct {
	entries map[uint64]*besides
	all     *int     // how many entries all nodes have
	ask     []uint64 // hashes whose tokens may be asked for, oldest first; some may have gone
	digest  message.Digest
}

// besides is one block held beside the index.
type besides struct {
	refs  int
	asked int
	page  page
}

// page is a block that ends inside a unit.
type page struct {
	base   prefix.Hash // the last whole unit before its end, or the chain's start
	tokens []uint32    // since then
	opaque bool        // nobody can tell its tokens, so nobody is asked
}

func (p *page) known() bool { return len(p.tokens) > 0 }

func newAside(all *int) *aside { return &aside{entries: map[uint64]*besides{}, all: all} }

func (a *aside) has(hash uint64) bool { return a.entries[hash] != nil }

func (a *aside) again(hash uint64) { a.entries[hash].refs++ }

// add takes a new block, unless there is no room.
func (a *aside) add(hash uint64, p page) {
	if *a.all >= asideMax {
		return
	}
	*a.all++
	a.entries[hash] = &besides{refs: 1, page: p}
	a.digest.Add(hash)
	if !p.known() && !p.opaque {
		a.ask = append(a.ask, hash)
	}
}

// describe notes what is known of a block by now.
func (a *aside) describe(hash uint64, p page) { a.entries[hash].page = p }

// remove takes one reference, false if the block is not here.
func (a *aside) remove(hash uint64) bool {
	e := a.entries[hash]
	if e == nil {
		return false
	}
	if e.refs--; e.refs == 0 {
		a.take(hash)
	}
	return true
}

// take removes a block and returns its references.
func (a *aside) take(hash uint64) int {
	refs := a.entries[hash].refs
	delete(a.entries, hash)
	*a.all--
	a.digest.Remove(hash)
	return refs
}

// keep removes the blocks that are not in set, and from set those that are here.
func (a *aside) keep(set map[uint64]struct{}) {
	for hash := range a.entries {
		if _, held := set[hash]; held {
			delete(set, hash)
		} else {
			a.take(hash)
		}
	}
}

// wanted returns up to most hashes whose tokens are not known, and counts that
// they were asked for. A block that nobody describes is not asked for for ever.
func (a *aside) wanted(most int) []uint64 {
	if most == 0 || len(a.ask) == 0 {
		return nil
	}
	var list []uint64
	left := a.ask[:0] // those that were not asked for now, and behind them the others
	for _, hash := range a.ask {
		e := a.entries[hash]
		if e == nil || e.page.known() || e.page.opaque || e.asked >= askMost {
			continue
		}
		if len(list) < most {
			e.asked++
			list = append(list, hash)
			continue
		}
		left = append(left, hash)
	}
	a.ask = append(left, list...)
	return list
}
