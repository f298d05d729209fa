package soak

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// request is one request: its plan, what nodes did with it, and what its client
// saw. Client and nodes write into it.
type request struct {
	plan
	source string // address of its client

	mu      sync.Mutex
	started time.Time // when its first byte went out
	tries   []*try
	left    time.Time // when its client left; zero = it did not
	lost    bool      // its connection ended before its turn: no node may see it from now on
}

// try is one time that a node got a request.
type try struct {
	node  int
	at    time.Time
	heard time.Time // when the whole request was there; zero = it was not
	fault fault
	// whole says that the answer's last bytes were about to be written, broken
	// why they will not come; both, that the node was stopped meanwhile.
	whole   bool
	broken  string
	begun   bool // a byte of the final answer was about to be written
	dropped bool // the router ended the connection first
	ended   time.Time
}

// excused reports whether the router had a reason to give the try up.
func (t *try) excused(now time.Time) bool {
	return t.fault.kind.retried() || t.broken != "" || !t.heard.IsZero() && now.Sub(t.heard) > firstEventLimit-time.Second
}

func (t *try) String() string {
	s := fmt.Sprintf("node %d", t.node)
	if t.fault.kind != noFault {
		s += " with " + t.fault.kind.String()
	}
	if t.broken != "" {
		s += ", " + t.broken
	}
	if t.whole {
		s += ", answered whole"
	}
	if t.dropped {
		s += ", ended by the router"
	}
	if t.ended.IsZero() {
		return s + ", under way"
	}
	return s + ", after " + t.ended.Sub(t.at).Round(time.Millisecond).String()
}

// change changes a try under the request's lock.
func (r *request) change(t *try, change func(t *try)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(t)
}

// spoil notes that the try's answer is not going to be whole. It has to come
// before what spoils it.
func (r *request) spoil(t *try, why string) {
	r.change(t, func(t *try) {
		if t.broken == "" {
			t.broken = why
		}
	})
}

// starts notes that the request goes out.
func (r *request) starts(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started = now
}

// leaves notes that the client left.
func (r *request) leaves() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = time.Now()
}

// leftAt is when the client left, zero if it did not.
func (r *request) leftAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// copyTries returns the tries as they are now.
func (r *request) copyTries() []try {
	r.mu.Lock()
	defer r.mu.Unlock()
	tries := make([]try, len(r.tries))
	for i, t := range r.tries {
		tries[i] = *t
	}
	return tries
}

func (r *request) story() string {
	tries := r.copyTries()
	if len(tries) == 0 {
		return "no node saw it"
	}
	texts := make([]string, len(tries))
	for i := range tries {
		texts[i] = fmt.Sprintf("try %d: %v", i, &tries[i])
	}
	return strings.Join(texts, "; ")
}

// begin notes that a node got the request, and says which try it is.
func (r *request) begin(n *node) (t *try, number int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	number = len(r.tries)
	t = &try{node: n.number, at: now, fault: r.faultOf(number)}
	r.tries = append(r.tries, t)
	before := &try{fault: fault{kind: closeUnheard}}
	if number > 0 {
		before = r.tries[number-1]
	}
	switch {
	case r.kind == kindLocal || r.kind == kindRefused:
		return t, number, fmt.Errorf("a request that is not for nodes came to node %d", n.number)
	case r.lost:
		return t, number, fmt.Errorf("a request whose connection had ended before its turn came to node %d", n.number)
	case number >= mostTries:
		return t, number, fmt.Errorf("try %d at node %d: more than %d", number, n.number, mostTries)
	case !before.excused(now):
		return t, number, fmt.Errorf("another try at node %d, but nothing was wrong with the one before", n.number)
	case before.whole && !before.fault.kind.retried() && before.broken == "":
		return t, number, fmt.Errorf("another try at node %d after a whole answer", n.number)
	case n.closedFor(r.started):
		return t, number, fmt.Errorf("a request that began after node %d was drained or removed came to it", n.number)
	}
	return t, number, nil
}

// mostTries is what retries come to, each of which may find a connection closed
// and be repeated on another.
const mostTries = 2 * (routerRetries + 1)

// ringSize is how many requests of a client are known at a time. The ones before
// are over for so long that no node may see them.
const ringSize = 64

// ledger finds requests by their ids.
type ledger struct {
	seed    uint64
	workers [][ringSize]atomic.Pointer[request]
}

func newLedger(seed uint64, workers int) *ledger {
	return &ledger{seed, make([][ringSize]atomic.Pointer[request], workers)}
}

// put makes a request known.
func (l *ledger) put(r *request) {
	l.workers[r.worker][r.seq%ringSize].Store(r)
}

// find returns the request with that id.
func (l *ledger) find(id string) (*request, error) {
	var seed uint64
	var worker, seq int
	if n, err := fmt.Sscanf(id, "soak-%x-%d-%d", &seed, &worker, &seq); n != 3 || err != nil || seed != l.seed || worker < 0 || worker >= len(l.workers) || seq < 0 {
		return nil, fmt.Errorf("%q is no id of a request", id)
	}
	r := l.workers[worker][seq%ringSize].Load()
	if r == nil || r.id != id {
		return nil, fmt.Errorf("request %s is not known, or over for long", id)
	}
	return r, nil
}
