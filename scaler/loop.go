package scaler

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmpath/scaler/actuate"
)

const (
	watchEvery   = time.Second
	callTimeout  = time.Minute
	callsAtOnce  = 8 // of one offer, besides its list
	mostDecided  = 200
	eventsQueued = 1024
)

// Routers are what the scaler scales: one or more routers before the same nodes.
// All methods are called by the loop's goroutine and must not block for long.
type Routers interface {
	// Signals returns what they know of the pool, without nodes that only the scaler
	// knows. Signals.NowNs is the caller's: it is given, and put in.
	Signals(nowNs int64) Signals
	// Watch returns every published node as they see it; ok is false unless all of
	// them could be asked.
	Watch() (nodes []Watch, ok bool)
	// Publish gives them the full set of nodes that are the scaler's.
	Publish(nodes []Owned)
	// Drain has them send a node nothing new, or with back again.
	Drain(key string, back bool)
}

// LoopOptions are fixed for the life of a Loop.
type LoopOptions struct {
	Config    Config
	Book      BookSettings
	Model     string // that nodes are made for; "" = the offers say
	Actuators map[string]actuate.Actuator
	Journal   *Journal // nil: what is owned is forgotten with the process
	Routers   Routers
	Log       *slog.Logger
}

// partial is an Actuator whose latest list may lack nodes that are there, as its
// provider cannot list them.
type partial interface{ Partial() bool }

// Decided is one decision and when it was made.
type Decided struct {
	At time.Time
	Decision
}

// Status is what the Loop has done and knows, for people. It is immutable.
type Status struct {
	Last    Decided   // the latest decision; zero = none yet
	Decided []Decided // those that did something, the latest last; at most 200
	Nodes   []Owned
	Offers  []OfferStatus
	Orphans []Orphan
	Actions map[[2]string]uint64 // decisions by action and reason
	NowNs   int64                // of the Loop's clock, that Nodes' times are by
}

// Loop reads signals, asks Plan, steps the Book and calls the actuators.
type Loop struct {
	opt     LoopOptions
	started time.Time
	book    *Book
	history History
	events  chan BookEvent
	relist  chan string
	slots   map[string]chan struct{} // a place for each call that may be under way
	status  atomic.Pointer[Status]
	actions map[[2]string]uint64
	decided []Decided
	last    Decided
	calls   sync.WaitGroup
}

// NewLoop returns a Loop that goes on from the journal.
func NewLoop(opt LoopOptions) *Loop {
	l := &Loop{
		opt: opt, started: time.Now(), history: NewHistory(),
		events: make(chan BookEvent, eventsQueued), relist: make(chan string, MostOffers),
		slots: map[string]chan struct{}{}, actions: map[[2]string]uint64{},
	}
	var journal []Record
	if opt.Journal != nil {
		journal = opt.Journal.Records
		l.opt.Book.Epoch = opt.Journal.Epoch
	}
	for name := range opt.Actuators {
		l.slots[name] = make(chan struct{}, callsAtOnce)
	}
	l.book = NewBook(l.opt.Book, journal)
	l.show()
	return l
}

// Status returns what the loop has done last. It may be called by anyone.
func (l *Loop) Status() *Status { return l.status.Load() }

// Relist has an offer's nodes listed soon, as after a callback. It may be called by
// anyone.
func (l *Loop) Relist(offer string) {
	select {
	case l.relist <- offer:
	default: // the next list is due anyway
	}
}

// Run runs until ctx ends. Calls that are under way then are given up; the journal
// knows of them.
func (l *Loop) Run(ctx context.Context) {
	defer l.calls.Wait()
	watch := time.NewTicker(watchEvery)
	defer watch.Stop()
	plan := time.NewTicker(time.Duration(l.opt.Config.IntervalSeconds * float64(time.Second)))
	defer plan.Stop()
	l.step(ctx, Elapsed{l.now()})
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-l.events:
			l.step(ctx, e)
		case offer := <-l.relist:
			l.book.RelistSoon(offer)
			l.step(ctx, Elapsed{l.now()})
		case <-watch.C:
			if nodes, ok := l.opt.Routers.Watch(); ok {
				l.step(ctx, Watched{l.now(), nodes})
			}
			l.step(ctx, Elapsed{l.now()})
		case <-plan.C:
			l.plan(ctx)
		}
		l.show()
	}
}

// now is the loop's clock: monotonic, above zero.
func (l *Loop) now() int64 { return int64(time.Since(l.started)) + 1 }

// plan makes one decision and carries it out.
func (l *Loop) plan(ctx context.Context) {
	s := l.opt.Routers.Signals(l.now())
	s.NowNs = l.now()
	s.Offers = l.book.Offers()
	s.Nodes = l.book.merge(s.Nodes, s.NowNs)
	var d Decision
	d, l.history = Plan(s, l.history, &l.opt.Config)
	l.last = Decided{time.Now(), d}
	l.actions[[2]string{string(d.Action), d.Reason}]++
	level := slog.LevelDebug
	if d.Action != ActionHold && d.Action != ActionFrozen {
		level = slog.LevelInfo
		l.decided = append(l.decided[max(0, len(l.decided)+1-mostDecided):], l.last)
	}
	l.opt.Log.Log(ctx, level, "scaler: "+string(d.Action), "reason", d.Reason, "target", d.Target, "why", d.Words)
	l.step(ctx, Ordered{NowNs: l.now(), Start: d.Start, Drain: d.Drain, Undrain: d.Undrain, Why: d.Words})
}

// merge adds to what the routers know what only the Book does.
func (b *Book) merge(seen []Node, nowNs int64) []Node {
	owned := map[string]Owned{}
	for _, n := range b.Nodes() {
		owned[n.Key] = n
	}
	nodes := make([]Node, 0, len(seen)+len(owned))
	for _, n := range seen {
		o, ok := owned[n.Name]
		delete(owned, n.Name)
		if ok {
			n.Offer = o.Offer
			if o.Stage == StageLeaving && (o.final || n.Phase == Down) {
				n.Phase, n.SinceNs = Down, nowNs // it is no use to ask it back, nor to give it back again
			} else if o.Stage == StageLeaving {
				n.Phase = Draining
			} else {
				n.ByHand = n.Phase == Draining
			}
			if n.Phase == Starting {
				n.SinceNs = o.AskedNs
			}
		}
		if ok && o.Stage == StageEnding {
			continue // it counts as uncertain
		}
		nodes = append(nodes, n)
	}
	for _, key := range slices.Sorted(maps.Keys(owned)) {
		switch o := owned[key]; o.Stage {
		case StageAsked, StageComing:
			nodes = append(nodes, Node{Name: key, Offer: o.Offer, Phase: Starting, SinceNs: o.AskedNs})
		case StageServing: // the routers have lost it, or have not heard of it again
			nodes = append(nodes, Node{Name: key, Offer: o.Offer, Phase: Down, SinceNs: cmp.Or(o.lostNs, nowNs)})
		case StageLeaving: // the routers took it out: it ends in a moment
			nodes = append(nodes, Node{Name: key, Offer: o.Offer, Phase: Down, SinceNs: nowNs})
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return compareNames(a.Name, b.Name) })
	return nodes
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// step gives the Book an event and carries out what follows. A node is asked for
// only once that is on disk.
func (l *Loop) step(ctx context.Context, e BookEvent) {
	var failed error
	for _, effect := range l.book.Step(e) {
		switch e := effect.(type) {
		case Record:
			if l.opt.Journal != nil && failed == nil {
				if failed = l.opt.Journal.Append(e); failed != nil {
					l.opt.Log.Error("scaler: nothing new is asked for", "err", failed)
				}
			}
		case CallCreate:
			l.create(ctx, e, failed)
		case CallDelete:
			l.call(ctx, e.Offer, func(ctx context.Context, a actuate.Actuator) BookEvent {
				err := a.Delete(ctx, e.Instance)
				return Deleted{NowNs: l.now(), Offer: e.Offer, Key: e.Instance.Key, ID: e.Instance.ID, Err: err}
			})
		case CallList:
			asked := l.now()
			l.callNow(ctx, e.Offer, func(ctx context.Context, a actuate.Actuator) BookEvent {
				list, err := a.List(ctx)
				some, ok := a.(partial)
				return Listed{NowNs: l.now(), Offer: e.Offer, AskedNs: asked, Instances: list, Err: err, Part: ok && some.Partial()}
			})
		case DrainNode:
			l.opt.Routers.Drain(e.Key, e.Back)
		case PublishNodes:
			l.opt.Routers.Publish(l.book.Published())
		case Tell:
			l.opt.Log.LogAttrs(ctx, e.Level, "scaler: "+e.Message, e.Attrs...)
		default:
			panic("BUG: scaler: unknown effect of the book")
		}
	}
}

func (l *Loop) create(ctx context.Context, e CallCreate, failed error) {
	if failed != nil { // it was never asked for, so nothing was made by this call
		answer := Created{NowNs: l.now(), Offer: e.Offer, Key: e.Key, Err: actuate.Refused(actuate.Settings, failed)}
		l.calls.Go(func() { l.deliver(ctx, answer) }) // the loop cannot wait for itself
		return
	}
	l.call(ctx, e.Offer, func(ctx context.Context, a actuate.Actuator) BookEvent {
		i, err := a.Create(ctx, actuate.Wanted{Key: e.Key, Model: l.opt.Model})
		return Created{NowNs: l.now(), Offer: e.Offer, Key: e.Key, Instance: i, Err: err}
	})
}

// call does one call to a provider that changes something, after those before it.
func (l *Loop) call(ctx context.Context, offer string, do func(context.Context, actuate.Actuator) BookEvent) {
	slot := l.slots[offer]
	l.calls.Go(func() {
		select {
		case slot <- struct{}{}:
			defer func() { <-slot }()
		case <-ctx.Done():
			return
		}
		l.ask(ctx, offer, do)
	})
}

// callNow does a call that waits for no other: lists tell how those ended that hang, and an
// offer has one at a time.
func (l *Loop) callNow(ctx context.Context, offer string, do func(context.Context, actuate.Actuator) BookEvent) {
	l.calls.Go(func() { l.ask(ctx, offer, do) })
}

// ask does one call and brings its answer back.
func (l *Loop) ask(ctx context.Context, offer string, do func(context.Context, actuate.Actuator) BookEvent) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l.deliver(ctx, do(limited, l.opt.Actuators[offer]))
}

// deliver brings an answer back to the loop.
func (l *Loop) deliver(ctx context.Context, e BookEvent) {
	select {
	case l.events <- e:
	case <-ctx.Done():
	}
}

// show publishes the status.
func (l *Loop) show() {
	l.status.Store(&Status{
		Last: l.last, Decided: slices.Clone(l.decided), Nodes: l.book.Nodes(), Offers: l.book.Offers(), Orphans: l.book.Orphans(),
		Actions: maps.Clone(l.actions), NowNs: l.now(),
	})
}
