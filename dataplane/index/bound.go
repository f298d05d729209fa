package index

// The bound of memory is kept by counting. Each part costs at most so many
// bytes an entry, however entries came and went; the measured sum is half to
// two thirds of it.
const (
	// entryCost: an entry; an id table that is three tenths full; a segment
	// that is half full; the list of chunks, and the table of the wheel.
	entryCost = entryBytes + idBucketBytes*10/(idEntries*3) + 2 + bucketBytes*2/bucketWords
	// fixedBytes: what an index has with no entry in it (indexBytes), and the
	// smallest tables and the levels of all slots.
	fixedBytes = 5 << 19
	// rowShare: one part in so many of the memory is for rows.
	rowShare = 8
	// wheelShare: one entry in so many may be speculative.
	wheelShare = 16
)

// kind orders entries by what they are worth: at the bound none makes room for
// one of a lower kind.
type kind uint8

const (
	kindLearned kind = iota
	kindSpeculative
	kindReported
)

// squeeze remembers which slots give way when memory is full, for so many more
// entries; -1 for none.
type squeeze struct {
	blind, learned, reported int
	left                     int
}

// squeezeBatch is how many entries go between two searches for the fullest.
const squeezeBatch = 64

// room makes room for so many entries of a kind at node n. The entry keep of
// that node stays, and so does what is marked busy.
func (w *Writer) room(entries int, k kind, n *node, keep uint32) bool {
	for w.pool.live+entries > w.maximum {
		if w.squeeze.left == 0 {
			w.findFullest()
		}
		w.squeeze.left--
		if !w.makeRoom(k, n, keep) {
			if w.findFullest(); !w.makeRoom(k, n, keep) {
				return false
			}
		}
	}
	return true
}

// findFullest looks for the slots that give way: any that is to be swept, the
// one with the most learned units, the one with the most reported blocks.
func (w *Writer) findFullest() {
	w.squeeze = squeeze{-1, -1, -1, squeezeBatch}
	learned, blocks := 0, 0
	for i := range w.nodes[:w.slots] {
		n := &w.nodes[i]
		if n.dropped || n.clearing {
			if n.held() > 0 {
				w.squeeze.blind = i
			}
			continue
		}
		if n.units.count > learned {
			w.squeeze.learned, learned = i, n.units.count
		}
		if b := n.blocks(); b > blocks {
			w.squeeze.reported, blocks = i, b
		}
	}
}

// makeRoom removes one entry that is worth no more than one of kind k: of a
// slot that is to be swept, else the learned one that goes first, else the
// speculative one that is due first, else a reported block.
func (w *Writer) makeRoom(k kind, n *node, keep uint32) bool {
	s := &w.squeeze
	if s.blind >= 0 && w.nodes[s.blind].held() > 0 {
		w.sweepSome(s.blind, &w.nodes[s.blind])
		return w.squeezed(s.blind)
	}
	if s.learned >= 0 {
		f := &w.nodes[s.learned]
		if f != n {
			keep = 0
		}
		if id := f.victim(&w.pool, keep); id != 0 {
			w.discard(s.learned, f, id)
			return w.squeezed(s.learned)
		}
	}
	if k >= kindSpeculative {
		if id := w.wheel.first(); id != 0 {
			w.counts.squeezedSpeculative++
			return w.squeezed(w.giveUp(id))
		}
	}
	if k >= kindReported && s.reported >= 0 && w.nodes[s.reported].blocks() > 0 {
		f := &w.nodes[s.reported]
		// From all over the table: what comes in meanwhile comes in all over it,
		// and a table that is emptied from one end fills up at the other.
		w.dropAnyBlock(s.reported, f, int(uint32(w.counts.squeezedReported)*0x9E3779B1>>1))
		f.lost++
		w.counts.squeezedReported++
		return w.squeezed(s.reported)
	}
	return false
}

// squeezed counts an entry that went for want of memory.
func (w *Writer) squeezed(slot int) bool {
	w.counts.squeezed++
	w.publishSlot(slot)
	return true
}
