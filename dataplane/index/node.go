package index

// node is what the writer knows of one slot.
type node struct {
	order    Eviction
	lists    []list // learned units, by level; the lowest level goes first
	one      [1]list
	levels   []list // made when an order first needs them
	capacity int    // of the weights of learned units
	weight   int    // of all learned units

	units       ids // learned units, by key
	reported    [Tiers]reported
	speculative int // units in the wheel

	dropped  bool  // takes nothing until it is swept
	clearing bool  // is swept before it takes anything
	sweepAt  int   // where emptying a table, or looking through the wheel, goes on
	lost     int64 // reported blocks that went for want of memory
}

// reported is what an engine said of one tier.
type reported struct {
	blocks ids // by engine block
	shared ids // units that several of the blocks hold, by key
	digest digest
}

func (n *node) blocks() int {
	count := 0
	for t := range n.reported {
		count += n.reported[t].blocks.count
	}
	return count
}

// held returns how many entries there are to sweep.
func (n *node) held() int { return n.units.count + n.speculative + n.blocks() }

// setOrder makes the lists of an order for a node without learned units, and
// returns by how many bytes they grew.
func (n *node) setOrder(order Eviction) (grown int64) {
	const listBytes = 8
	n.order = order
	if order.levels() == 1 {
		n.lists = n.one[:]
	} else {
		if n.levels == nil {
			n.levels = make([]list, order.levels())
			grown = int64(len(n.levels)) * listBytes
		}
		n.lists = n.levels
	}
	clear(n.lists)
	return grown
}

// find returns the learned entry of a key, 0 if there is none. Chains are used whole, so the entry behind the one of the parent is tried
// before the table.
func (n *node) find(p *pool, parent uint32, key uint64) uint32 {
	guess := n.lists[0].newest
	if parent != 0 {
		guess = p.at(parent).older()
	}
	if guess != 0 && p.at(guess).key() == key {
		return guess
	}
	return n.units.find(key, p)
}

// victim returns the learned entry that goes first: none that is busy, and
// not keep; 0 if there is no other.
func (n *node) victim(p *pool, keep uint32) uint32 {
	for i := range n.lists {
		for id := n.lists[i].oldest; id != 0; id = p.at(id).newer() {
			if id == keep {
				return 0
			}
			if !p.at(id).is(flagBusy) {
				return id
			}
		}
	}
	return 0
}
