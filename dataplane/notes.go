package dataplane

// chooseRank settles which rank of x's node is asked to answer, and what that
// rank holds already. After a failure the match is another request's by then.
func (l *loop) chooseRank(x *exchange) {
	n, first := x.node, x.tries == 1
	x.rank, x.known, x.noted = -1, 0, 0
	if x.exact < ExactPrefix {
		return
	}
	rank := int(x.polReq.AffinityKey % uint64(n.Ranks))
	if first {
		rank = int(l.match.rank[n.Slot])
		x.known = int(l.match.units[n.Slot+rank])
	}
	if n.Ranks > 1 {
		x.rank = rank
	}
}

// note tells the indexer, and this loop's overlay, where the prompt goes: what
// of it is known by now.
func (l *loop) note(x *exchange) {
	if len(x.units) == 0 || x.node.Ranks > 1 && x.rank < 0 {
		return // nothing is known, or not which rank will hold it
	}
	if x.expects() {
		l.expect(x, l.now+x.untilFirstNs()+x.set.SpeculativeNs, max(x.known, x.noted))
		return
	}
	// A node with a minimal reporter may have said a moment ago that it lost
	// the prompt: there it counts that it was sent again.
	if x.node.PrefixTokens == 0 && l.overlay.seen(x.units[len(x.units)-1], x.slot(), x.node.Generation, l.now) {
		return
	}
	kind := NoteLearned
	if x.exact == ExactText {
		kind = NoteLearnedText
	}
	l.tell(x, Note{Kind: kind, Slot: x.slot(), Generation: x.node.Generation, AtNs: l.now, Chain: x.units, IDs: l.reporterIDs(x)})
	x.noted = len(x.units)
}

// noteRest tells of units that were found out only after the prompt was sent.
func (l *loop) noteRest(x *exchange) {
	if x.units = x.ident.walk.Units(); len(x.units) > x.noted && x.node != nil {
		l.note(x)
	}
}

// noteFirst shortens what is expected: the first token has come, so the engine
// has the whole prompt and reports it any moment now, or never.
func (l *loop) noteFirst(x *exchange) {
	if !x.expects() || x.noted <= x.known {
		return
	}
	l.tell(x, Note{
		Kind: NoteBegun, Slot: x.slot(), Generation: x.node.Generation, AtNs: l.now + x.set.SpeculativeNs, Chain: x.units[x.known:x.noted],
		Class: uint8(x.ident.verdict.Class), Echo: x.blockIsFull(x.known),
	})
}

// blockIsFull reports whether the prompt fills the block that a unit lies in:
// then the engine has stored it, and has to report it.
func (x *exchange) blockIsFull(unit int) bool {
	block := x.node.BlockTokens
	switch {
	case block <= 0 || x.exact != ExactTokens:
		return false
	case x.tries > 1: // what this node holds was not looked up
		return false
	case x.found.CacheSalt.Len() > 0 || x.snap.Models[x.model].Base != "":
		return false // not every engine says the salt or the adapter with its blocks
	}
	end := (unit*x.unitTokens/block + 1) * block
	return end <= len(x.units)*x.unitTokens
}

// expect tells of the units from one on.
func (l *loop) expect(x *exchange, untilNs int64, from int) {
	if from >= len(x.units) {
		return
	}
	l.tell(x, Note{Kind: NoteExpected, Slot: x.slot(), Generation: x.node.Generation, AtNs: untilNs, Chain: x.units[from:]})
	x.noted = len(x.units)
}

func (l *loop) tell(x *exchange, n Note) {
	if l.notes.put(n) {
		l.overlay.add(&l.notes, n.Chain, n.Slot)
	}
}

// maxReporterTokens bounds the tokens that are put together on a loop to name a
// prompt as a minimal reporter does. What it says of a longer one means nothing
// here: that is learned as if nobody reported.
const maxReporterTokens = 32 << 10

// reporterIDs are the tokens by which a minimal reporter of x's node names its
// prompt, nil where there is none or where a salt makes its name another.
func (l *loop) reporterIDs(x *exchange) []uint32 {
	n := x.node
	if n.HashScheme == "" || x.exact < ExactPrefix || x.found.CacheSalt.Len() > 0 || x.ident.out || x.ident.walk.Recalled() {
		return nil
	}
	most := n.PrefixTokens
	if most == 0 {
		most = len(x.units) * x.unitTokens
	}
	if most > maxReporterTokens {
		return nil
	}
	l.leading = x.ident.walk.AppendLeading(l.leading[:0], &x.ident.found, most)
	if x.exact == ExactPrefix && len(l.leading) < n.PrefixTokens {
		return nil // there are more, and nobody can tell which
	}
	return l.leading
}

// expects reports whether the rank that x was sent to reports what it holds.
func (x *exchange) expects() bool {
	return x.exact >= ExactPrefix && x.node.Trust[max(x.rank, 0)].Reports()
}

// slot is that of x's rank in the index.
func (x *exchange) slot() int { return x.node.Slot + max(x.rank, 0) }

// untilFirstNs is how long the first token may take at most, as far as can be
// told: three times what is predicted.
func (x *exchange) untilFirstNs() int64 {
	return int64(3e9 * predictedSeconds(x.node))
}
