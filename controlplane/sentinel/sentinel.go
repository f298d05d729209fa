package sentinel

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"warmpath/controlplane/state"
	"warmpath/dataplane/beat"
	"warmpath/dataplane/fleet"
)

// The times follow from two wishes: a node that died is avoided after 300 ms, so
// silence and exchange together stay well below; and whoever loses one packet in
// a hundred, or stalls for a tenth of a second, is not taken for dead.
const (
	silenceNs    = int64(100e6)    // from a node that has requests, before it is asked
	exchangeNs   = int64(130e6)    // the least time that an exchange has
	connects     = 4               // … and how many times the time that connecting takes
	syns         = 5               // of one exchange
	deadPauseNs  = int64(1e9)      // between two exchanges with a node that is dead
	shortPauseNs = int64(1e9)      // after this host lacked something to ask with
	lateNs       = int64(3e9)      // how long the last SYN of an exchange in vain may still be answered
	firstRetryNs = int64(900e6)    // an answer that took longer may be one to the kernel's own second SYN
	takenNs      = int64(10e9)     // how long an answered socket waits to be taken
	untakenMost  = 8               // answered sockets of a node that wait to be taken
	socketsMost  = 128             // of all nodes
	lateMost     = 32              // of them, those that are listened to after their exchange
	lookEveryNs  = int64(10e6)     // while some node has requests
	idleLookNs   = int64(25e6)     // else
	tardyNs      = 2 * lookEveryNs // a look that is later by so much says that this process stood still
)

// Outcome is how an exchange ended.
type Outcome uint8

const (
	OutcomeAnswered   Outcome = iota // the node's kernel answered
	OutcomeRefused                   // and nobody listens there
	OutcomeUnanswered                // nothing came
	OutcomeVoid                      // it was broken off: something else came, nothing waits any more, or this host had nothing to ask with
	Outcomes                         // their number
)

var outcomeNames = [Outcomes]string{"answered", "refused", "unanswered", "void"}

// String returns the value of the label `outcome`.
func (o Outcome) String() string { return outcomeNames[o] }

// Counts are exchanges by their Outcome.
type Counts [Outcomes]uint64

// Options of a Keeper. Its calls come from the goroutine of Run.
type Options struct {
	// Nodes is the fleet as it is now. Of a node its Load is read, and written
	// to when an answer came.
	Nodes func() []*state.Node
	// NowNs is the clock of Load.HeardNs.
	NowNs func() int64
	// Silent is told that nothing came from a node since an exchange began. It
	// is told again as long as that is so.
	Silent func(n *state.Node, sinceNs int64, evidence string)
	// Alive is told when something came, at that time, after Silent was told.
	Alive func(n *state.Node, atNs int64)
	// Refused is told of each exchange that was refused.
	Refused func(n *state.Node)

	// Open and Resolve are the network; nil = the real one.
	Open    func(netip.AddrPort) (Socket, error)
	Resolve func(ctx context.Context, address string) ([]netip.AddrPort, error)
}

// Keeper asks the silent nodes of a fleet.
type Keeper struct {
	opt Options

	// Run's goroutine's
	watches  map[uint64]*watch // by incarnation
	running  int               // exchanges
	taken    int               // sockets in watch.taken …
	late     int               // … and watch.late, of all watches
	lookedNs int64             // the last look, …
	everyNs  int64             // … and how soon the next was to come
	turn     int               // who is looked at first, so that the bound on sockets is everyone's
	ctx      context.Context
	lookups  sync.WaitGroup

	mu     sync.Mutex
	counts map[string]*Counts // guarded by mu; by node
}

// New returns a Keeper. Run runs it.
func New(opt Options) *Keeper {
	if opt.Open == nil {
		opt.Open = open
	}
	if opt.Resolve == nil {
		opt.Resolve = resolve
	}
	return &Keeper{opt: opt, watches: map[uint64]*watch{}, counts: map[string]*Counts{}}
}

// Run asks until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	k.ctx = ctx
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			for _, w := range k.watches {
				w.forget(k)
			}
			k.lookups.Wait()
			return
		case <-next.C:
			k.look(k.opt.NowNs())
			next.Reset(k.wait())
		}
	}
}

// wait is how long until the next look.
func (k *Keeper) wait() time.Duration {
	if k.everyNs == idleLookNs {
		return beat.Wait(time.Duration(idleLookNs))
	}
	return time.Duration(k.everyNs)
}

// Counts returns what became of the exchanges with a node.
func (k *Keeper) Counts(node string) Counts {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.counts[node]; c != nil {
		return *c
	}
	return Counts{}
}

func (k *Keeper) count(node string, o Outcome) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.counts[node] == nil {
		k.counts[node] = &Counts{}
	}
	k.counts[node][o]++
}

// look is one turn over all nodes.
func (k *Keeper) look(now int64) {
	k.forgive(now)
	nodes := k.opt.Nodes()
	k.turn++
	for i := range nodes {
		n := nodes[(i+k.turn)%len(nodes)]
		requests := n.Load.Requests.Load()
		if requests <= 0 && len(k.watches) == 0 { // of a large fleet nearly all
			continue
		}
		w := k.watches[n.Incarnation]
		busy := requests > 0 && (n.Health == fleet.Ready || n.Health == fleet.Down)
		if w == nil && !busy {
			continue
		}
		if w == nil {
			w = &watch{}
			k.watches[n.Incarnation] = w
		}
		w.node = n
		if w.look(k, now, busy) {
			w.turn = k.turn
		}
	}
	for incarnation, w := range k.watches {
		if w.turn != k.turn { // the node has gone, or has nothing to be looked at
			w.forget(k)
			delete(k.watches, incarnation)
		}
	}
	k.everyNs = lookEveryNs
	if len(k.watches) == 0 {
		k.everyNs = idleLookNs
	}
	k.prune(nodes)
}

// forgive puts verdicts off when this process stood still. What came meanwhile is
// with the kernel and counts; but if the whole machine stood still, its kernel has
// not gone through it yet, and SYNs that were to be sent then were not.
func (k *Keeper) forgive(now int64) {
	if now-k.lookedNs-k.everyNs > tardyNs {
		for _, w := range k.watches {
			w.untilNs = max(w.untilNs, now+w.gapNs)
		}
	}
	k.lookedNs = now
}

// full reports whether another exchange could go beyond the bound.
func (k *Keeper) full() bool { return (k.running+1)*syns+k.taken+k.late > socketsMost }

// prune forgets the counts of nodes that have gone.
func (k *Keeper) prune(nodes []*state.Node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.counts) <= len(nodes) {
		return
	}
	kept := make(map[string]*Counts, len(nodes))
	for _, n := range nodes {
		if c := k.counts[n.Spec.Name]; c != nil {
			kept[n.Spec.Name] = c
		}
	}
	k.counts = kept
}

// resolve looks a node's address up.
func resolve(ctx context.Context, address string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("look up node: %w", err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, fmt.Errorf("look up node at %s: %w", address, err)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("look up node at %s: %w", address, err)
	}
	found := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		found[i] = netip.AddrPortFrom(ip.Unmap(), uint16(port))
	}
	return found, nil
}
