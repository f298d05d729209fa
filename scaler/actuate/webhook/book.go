package webhook

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"time"

	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/message"
)

const (
	mostNodes   = 10_000 // that are there and were asked for
	mostUnasked = 256
	mostEnded   = 256
	// listsLag is how long what was heard of a node stands against a list.
	listsLag = time.Minute
)

// name is one run of a key.
type name struct{ key, id string }

// heard is what was heard of one node.
type heard struct {
	message.Node
	sent  int64     // when, by the server's clock
	at    time.Time // when, by ours
	turn  uint64    // in which order
	final bool      // it was said to be gone in answer to delete: no callback is about later
	// least is the timestamp that a callback without sequence needs: older ones were found
	// wrong by a list.
	least int64
}

// book is what was heard of nodes. It is held by Webhook.mu.
type book struct {
	log   *slog.Logger
	nodes map[name]*heard
	asked map[string]uint64 // keys, and when in turn
	turn  uint64
}

func newBook(log *slog.Logger) book {
	return book{log: log, nodes: map[name]*heard{}, asked: map[string]uint64{}}
}

// asks notes that a key was asked for, and returns when in turn.
func (b *book) asks(key string) uint64 {
	b.turn++
	b.asked[key] = b.turn
	if len(b.asked) > mostNodes {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(b.asked)), func(x, y string) int { return cmp.Compare(b.asked[x], b.asked[y]) })
		delete(b.asked, oldest)
	}
	return b.turn
}

// answer takes the answer to create, which was asked at that turn, and returns what is
// believed of the node.
func (b *book) answer(n message.Node, asked uint64, at time.Time) actuate.Instance {
	if h := b.nodes[name{n.Key, n.ID}]; h != nil && h.Phase == actuate.Ended && h.turn <= asked {
		delete(b.nodes, name{n.Key, n.ID}) // that was before; it was made again
	}
	is := b.hear(n, at, at.Unix())
	// It may have failed before it was known by what id.
	if h := b.nodes[name{n.Key, ""}]; h != nil && n.ID != "" && h.turn > asked {
		failed := h.Node
		failed.ID = n.ID
		return b.hear(failed, at, h.sent)
	}
	return is
}

// hear takes what was said of a node, and returns what is believed of it.
func (b *book) hear(n message.Node, at time.Time, sent int64) actuate.Instance {
	if n.ID == "" { // it ended, perhaps before it had one
		told := false
		for where, h := range b.nodes {
			if where.key == n.Key {
				one := n
				one.ID = where.id
				b.take(h, one, at, sent)
				told = true
			}
		}
		if told {
			return n.Instance
		}
	}
	where := name{n.Key, n.ID}
	h := b.nodes[where]
	if h == nil {
		b.turn++
		h = &heard{Node: n, sent: sent, at: at, turn: b.turn}
		b.nodes[where] = h
		b.trim()
	} else {
		b.take(h, n, at, sent)
	}
	return h.Instance
}

// take takes what was said, if it was said later than what is known.
func (b *book) take(h *heard, n message.Node, at time.Time, sent int64) {
	if h.final || !h.later(n, sent) {
		return
	}
	b.turn++
	fill(&n, h.Node)
	h.Node, h.sent, h.at, h.turn = n, sent, at, b.turn
}

// later reports whether what was said of a node is later than what is known of it.
func (h *heard) later(n message.Node, sent int64) bool {
	switch {
	case h.Ordered && n.Ordered:
		return n.Sequence > h.Sequence
	case sent < h.least:
		return false
	case n.Phase != h.Phase:
		return n.Phase > h.Phase
	}
	return sent > h.sent
}

// fill gives a node what is known from before and was not said again.
func fill(n *message.Node, was message.Node) {
	n.URL = cmp.Or(n.URL, was.URL)
	n.Detail = cmp.Or(n.Detail, was.Detail)
	if n.Since.IsZero() {
		n.Since = was.Since
	}
	if !n.Ordered {
		n.Sequence, n.Ordered = was.Sequence, was.Ordered
	}
}

// gone notes that a node is not there, by its key, its id or both.
func (b *book) gone(key, id string, at time.Time) {
	for where, h := range b.nodes {
		if (key == "" || where.key == key) && (id == "" || where.id == id) {
			b.turn++
			h.Phase, h.at, h.turn, h.final = actuate.Ended, at, b.turn, true
		}
	}
	b.trim()
}

// all is everything that was heard, for a server without a list.
func (b *book) all() []actuate.Instance {
	return b.add(make([]actuate.Instance, 0, len(b.nodes)), b.inTurn())
}

// add adds nodes to a list. Of a key that is listed, an earlier run that ended is not
// worth telling.
func (b *book) add(to []actuate.Instance, nodes []*heard) []actuate.Instance {
	live := map[string]bool{}
	for _, i := range to {
		live[i.Key] = true
	}
	for _, h := range nodes {
		live[h.Key] = live[h.Key] || h.Phase != actuate.Ended
	}
	for _, h := range nodes {
		if h.Phase != actuate.Ended || !live[h.Key] {
			to = append(to, h.Instance)
		}
	}
	return to
}

func (b *book) inTurn() []*heard {
	return slices.SortedFunc(maps.Values(b.nodes), func(x, y *heard) int { return cmp.Compare(x.turn, y.turn) })
}

// merge takes a list, which was asked for at a turn, and returns it with what is known
// better.
func (b *book) merge(listed []message.Node, begun uint64, now time.Time) []actuate.Instance {
	all := make([]actuate.Instance, 0, len(listed))
	there := map[name]bool{}
	for _, n := range listed {
		where := name{n.Key, n.ID}
		there[where] = true
		if h := b.nodes[where]; h != nil {
			n = h.listed(n, now)
		}
		all = append(all, n.Instance)
	}
	var besides []*heard
	for _, h := range b.inTurn() {
		where := name{h.Key, h.ID}
		switch {
		case there[where]:
		case h.turn > begun: // the list may be from before
			besides = append(besides, h)
		case !fresh(h.at, now):
			delete(b.nodes, where)
		}
	}
	return b.add(all, besides)
}

// fresh reports whether what was heard at that time stands against a list. A clock
// that was set back makes nothing fresh for longer.
func fresh(at, now time.Time) bool { return now.Sub(at).Abs() < listsLag }

// listed returns what is believed of a node that is listed as n.
func (h *heard) listed(n message.Node, now time.Time) message.Node {
	known := h.Phase > n.Phase && (h.Phase <= actuate.Running || fresh(h.at, now))
	if h.Ordered && n.Ordered && h.Sequence != n.Sequence && !h.final {
		known = h.Sequence > n.Sequence
	}
	if known {
		is := h.Node
		fill(&is, n)
		return is
	}
	if n.Phase < h.Phase { // what had been said was wrong, and will not become right by being said again
		h.final, h.least = false, h.sent+1
	}
	fill(&n, h.Node)
	h.Node = n
	return n
}

// trim bounds what is kept: what was heard last of each kind.
func (b *book) trim() {
	counts := [...]int{mostNodes, mostUnasked, mostEnded}
	if len(b.nodes) <= slices.Min(counts[:]) {
		return
	}
	for _, h := range slices.Backward(b.inTurn()) {
		kind := 0
		if _, asked := b.asked[h.Key]; !asked {
			kind = 1
		}
		if h.Phase == actuate.Ended {
			kind = 2
		}
		if counts[kind]--; counts[kind] >= 0 {
			continue
		}
		delete(b.nodes, name{h.Key, h.ID})
		if kind == 0 {
			b.log.Warn("too many nodes were heard of: one is forgotten until it is listed or heard of again", "node", h.Key, "most", mostNodes)
		}
	}
}
