package scaler

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"

	"warmpath/scaler/actuate"
)

// Stage is how far a node is in the scaler's hands.
type Stage string

const (
	StageAsked   Stage = "asked"   // Create was decided; its outcome is not known
	StageComing  Stage = "coming"  // its provider has it; it has not served yet
	StageServing Stage = "serving" // it has served
	StageLeaving Stage = "leaving" // it drains, to be ended once it is empty
	StageEnding  Stage = "ending"  // it was told to end and is not known to have
)

// Bounds and times of the Book.
const (
	mostTombs = 1024 // keys of nodes that are gone, in case they come back

	listEveryNs   = int64(15e9)
	listSoonNs    = int64(5e9) // while a node of the offer comes or goes
	listLeastNs   = int64(1e9) // between two lists, however often somebody calls for one
	againNs       = int64(5e9) // after a call whose outcome is not known, doubled each time …
	againMostNs   = int64(60e9)
	giveUpAfter   = 6  // … and so many are enough
	absentLists   = 2  // lists in a row that do not name a node: it is gone …
	absentLive    = 20 // … and so many are told of while routers see it at work: lists err too
	settleNs      = int64(60e9)
	heardWithin   = int64(ClaimSeconds * 1e9) // of the routers, before what others may have made is touched
	emptyNs       = int64(1e9)                // a draining node is empty for so long before it is ended
	startUpGain   = 0.3
	withheldMost  = int64(3600e9)
	sayAgainNs    = int64(60e9) // between two failures of a list that differ, doubled each time
	startAtLeast  = 120.0       // seconds that any node has to come up
	startMultiple = 3.0         // of its start-up time, after which it is given up
)

// withheldFor is how long an offer rests after a failure, by what it was; doubled
// with each in a row.
var withheldFor = map[actuate.Reason]int64{
	actuate.Settings: 600e9, actuate.Credential: 600e9, actuate.Quota: 300e9, actuate.Capacity: 120e9,
}

// Owned is one node that the scaler asked for. The exported fields are for readers;
// the Book alone writes them.
type Owned struct {
	Key    string
	Offer  string
	ID     string // its provider's name for it; "" = not known
	URL    string // of its engine; "" = not known
	Stage  Stage
	Why    string // it is in this stage, for people
	Detail string // in its provider's words

	AskedNs int64 // when it was decided …
	StageNs int64 // … and came into this stage; both by the Book's clock

	calling  bool  // a call about it is under way
	againNs  int64 // no call before
	tries    int   // calls in a row whose outcome is not known
	doubtful bool  // a Create of it may yet make it
	unsure   bool  // a Create of it was not answered: it may be there, whatever a later one says
	served   bool  // it has served since this Book began
	final    bool  // it leaves for good: nobody can ask it back
	atWork   bool  // the routers saw it serve, or requests on it, when they were asked last
	lostNs   int64 // since when it serves and no router has it; 0 = one has
	told     bool  // Delete was answered …
	toldNs   int64 // … then
	absent   int   // lists in a row that do not name it
	empty    int64 // since when it drains with nothing on it; 0 = it does not
}

// BookSettings are fixed for the life of a Book.
type BookSettings struct {
	Epoch          string // part of every key, so that two journals make no key twice: small letters and digits
	Orphans        string // "report", "adopt" or "remove": what becomes of nodes that carry the fleet's mark and are not known
	DrainNs        int64  // of one node; 0 = no limit …
	EndUndrained   bool   // … and whether it is ended then, with what is on it
	StartUpSeconds float64
	Offers         []Offer
}

// Orphan is a node that carries the fleet's mark and that nobody here asked for.
type Orphan struct {
	Offer    string
	Instance actuate.Instance
	SinceNs  int64 // when it was found
}

// Book is what the scaler owns: every node that it asked for and is not known to be
// gone, and what it knows of the offers. It is a deterministic state machine: Step
// alone changes it, it does no I/O and reads no clock. Not safe for concurrent use.
type Book struct {
	set       BookSettings
	nowNs     int64
	watchedNs int64 // when the routers were heard last; 0 = never
	number    int64 // of the latest key
	nodes     map[string]*Owned
	offers    map[string]*offerState
	tombs     []tomb // nodes that are gone, the latest last
	effects   []BookEffect
	publish   bool
}

// offerState is what the Book knows of one offer.
type offerState struct {
	offer               Offer
	startUp             Gauge
	until               int64 // withheld until then
	why                 string
	failures            int // in a row
	listing             bool
	listNs              int64 // when it was asked last
	listErr             string
	soon                bool              // it is to be asked before its time
	sayNs               int64             // another failure of the list is not said before …
	sayPause            int64             // … as so much lay between the last two
	strayNs, strayPause int64             // the same of instances that are told to end and are no node of ours
	orphans             map[string]Orphan // by id
	strays              map[string]bool   // ids of nodes that are no node's of ours, or one too many, while they are told to end
	seen                bool              // it was listed once
}

type (
	// BookEffect is something that the caller of Step has to do, in order.
	BookEffect interface{ bookEffect() }
	// Record is to be on disk before the effects behind it are carried out.
	Record struct {
		Key    string `json:"key"`
		Offer  string `json:"offer,omitempty"`
		ID     string `json:"id,omitempty"`
		URL    string `json:"url,omitempty"`
		Stage  Stage  `json:"stage,omitempty"` // "" = it is gone
		Why    string `json:"why,omitempty"`
		Number int64  `json:"number,omitempty"` // of the latest key
	}
	// CallCreate asks a provider for a node; it is answered by Created.
	CallCreate struct{ Offer, Key string }
	// CallDelete ends a node; it is answered by Deleted.
	CallDelete struct {
		Offer    string
		Instance actuate.Instance
	}
	// CallList asks a provider for all nodes; it is answered by Listed.
	CallList struct{ Offer string }
	// DrainNode has the routers send a node nothing new; with Back, again.
	DrainNode struct {
		Key  string
		Back bool
	}
	// PublishNodes says that the set of nodes with a URL has changed: see Published.
	PublishNodes struct{}
	// Tell is one line for the log.
	Tell struct {
		Level   slog.Level
		Message string
		Attrs   []slog.Attr
	}
)

func (Record) bookEffect()       {}
func (CallCreate) bookEffect()   {}
func (CallDelete) bookEffect()   {}
func (CallList) bookEffect()     {}
func (DrainNode) bookEffect()    {}
func (PublishNodes) bookEffect() {}
func (Tell) bookEffect()         {}

type (
	// BookEvent is something that happened. NowNs is the caller's clock, which never
	// runs backwards for the Book: an earlier time counts as the latest.
	BookEvent interface{ at() int64 }
	// Ordered is what Plan decided.
	Ordered struct {
		NowNs          int64
		Start          []Start
		Drain, Undrain []string
		Why            string
	}
	// Created answers CallCreate.
	Created struct {
		NowNs    int64
		Offer    string
		Key      string
		Instance actuate.Instance
		Err      error
	}
	// Deleted answers CallDelete.
	Deleted struct {
		NowNs int64
		Offer string
		Key   string
		ID    string // that CallDelete named
		Err   error
	}
	// Listed answers CallList. With Part nodes that are not named are not missing:
	// the provider cannot say all that there are.
	Listed struct {
		NowNs     int64
		Offer     string
		AskedNs   int64 // when the provider was asked
		Instances []actuate.Instance
		Part      bool
		Err       error
	}
	// Watched is what the routers say of the published nodes: all of them, or it is
	// not sent.
	Watched struct {
		NowNs int64
		Nodes []Watch
	}
	// Watch is one node as the routers see it. One that they do not have is left out.
	Watch struct {
		Key      string
		Phase    Phase
		Draining bool  // nothing new is sent to it, whatever Phase says
		InFlight int64 // over all routers
		Running  Gauge // as its engine says
	}
	// Elapsed moves the clock; it is sent every second or so.
	Elapsed struct{ NowNs int64 }
)

func (e Ordered) at() int64 { return e.NowNs }
func (e Created) at() int64 { return e.NowNs }
func (e Deleted) at() int64 { return e.NowNs }
func (e Listed) at() int64  { return e.NowNs }
func (e Watched) at() int64 { return e.NowNs }
func (e Elapsed) at() int64 { return e.NowNs }

// NewBook returns a Book that goes on from what a journal holds, in its order; nil
// for an empty one. What it restores is taken up again with the first Elapsed.
func NewBook(set BookSettings, journal []Record) *Book {
	b := &Book{set: set, nodes: map[string]*Owned{}, offers: map[string]*offerState{}}
	for _, o := range set.Offers {
		b.offers[o.Name] = &offerState{offer: o, orphans: map[string]Orphan{}, strays: map[string]bool{}}
	}
	for _, r := range journal {
		b.number = max(b.number, r.Number)
		switch {
		case r.Key == "":
		case r.Stage == "":
			delete(b.nodes, r.Key)
			b.bury(r.Key, true) // for all that is known
		default:
			doubtful := r.Stage == StageAsked || r.Stage == StageEnding && r.ID == ""
			b.nodes[r.Key] = &Owned{
				Key: r.Key, Offer: r.Offer, ID: r.ID, URL: r.URL, Stage: r.Stage, Why: r.Why,
				doubtful: doubtful, unsure: doubtful, served: r.Stage == StageServing,
				tries: 1, // a call may have been under way
			}
		}
	}
	b.publish = true // once, be it of none
	return b
}

// Step takes an event and returns what is to be done about it.
func (b *Book) Step(ev BookEvent) []BookEffect {
	b.nowNs = max(b.nowNs, ev.at())
	b.effects = nil
	switch e := ev.(type) {
	case Ordered:
		b.ordered(e)
	case Created:
		b.created(e)
	case Deleted:
		b.deleted(e)
	case Listed:
		b.listed(e)
	case Watched:
		b.watched(e)
	case Elapsed:
		b.elapsed()
	default:
		panic(fmt.Sprintf("BUG: scaler: book event %T", ev))
	}
	if b.publish {
		b.publish = false
		b.do(PublishNodes{})
	}
	return b.effects
}

// Nodes returns copies of all that is owned, by key.
func (b *Book) Nodes() []Owned {
	list := make([]Owned, 0, len(b.nodes))
	for _, key := range slices.Sorted(maps.Keys(b.nodes)) {
		list = append(list, *b.nodes[key])
	}
	return list
}

// Published are the nodes that the routers shall know: those with a URL that were
// not told to end.
func (b *Book) Published() []Owned {
	return slices.DeleteFunc(b.Nodes(), func(n Owned) bool { return n.URL == "" || n.Stage == StageEnding })
}

// Orphans are the nodes that were found and not asked for.
func (b *Book) Orphans() []Orphan {
	var list []Orphan
	for _, o := range b.offers {
		for _, orphan := range o.orphans {
			list = append(list, orphan)
		}
	}
	slices.SortFunc(list, func(x, y Orphan) int {
		return cmp.Or(cmp.Compare(x.Offer, y.Offer), cmp.Compare(x.Instance.ID, y.Instance.ID))
	})
	return list
}

// Offers is what is known of the offers, in the order of the configuration.
func (b *Book) Offers() []OfferStatus {
	list := make([]OfferStatus, 0, len(b.set.Offers))
	for i := range b.set.Offers {
		name := b.set.Offers[i].Name
		o := b.offers[name]
		status := OfferStatus{Name: name, Unlisted: o.listErr, StartUpSeconds: o.startUp, Uncertain: len(o.orphans)}
		switch {
		case b.nowNs < o.until:
			status.Withheld = o.why
		case !o.seen:
			status.Withheld = "it has not said yet which nodes there are"
			if o.listErr != "" {
				status.Withheld = o.listErr
			}
		}
		for _, n := range b.nodes {
			if n.Offer == name && n.Stage == StageEnding {
				status.Uncertain++
			}
		}
		list = append(list, status)
	}
	return list
}

func (b *Book) do(e BookEffect) { b.effects = append(b.effects, e) }

func (b *Book) tell(level slog.Level, message string, attrs ...slog.Attr) {
	b.do(Tell{level, message, attrs})
}

// enter moves a node to a stage, on disk first.
func (b *Book) enter(n *Owned, s Stage, why string) {
	if n.Stage != s {
		n.StageNs = b.nowNs
		n.tries, n.againNs, n.empty, n.absent = 0, 0, 0, 0
	}
	n.Stage, n.Why = s, why
	b.record(n)
	b.publish = true
}

func (b *Book) record(n *Owned) {
	b.do(Record{Key: n.Key, Offer: n.Offer, ID: n.ID, URL: n.URL, Stage: n.Stage, Why: n.Why, Number: b.number})
}

// forget ends what is known of a node that is gone.
func (b *Book) forget(n *Owned, why string) {
	delete(b.nodes, n.Key)
	b.bury(n.Key, n.URL != "")
	b.do(Record{Key: n.Key, Number: b.number, Why: why})
	message := "node is given back"
	if n.ID == "" {
		message = "node was not made"
	}
	b.tell(slog.LevelInfo, message, slog.String("node", n.Key), slog.String("offer", n.Offer), slog.String("why", why))
	b.publish = true
}

// whyBack is why a node is in its stage that was to leave and is not any more.
const whyBack = "it is needed again"

// TakenBack reports whether the last that was done about the node was to have it stay
// after all, so that a router where it drains may have missed that.
func (n *Owned) TakenBack() bool { return n.Why == whyBack }

// tomb is a node that is gone.
type tomb struct {
	key string
	met bool // routers may have sent requests to it
}

// buried is what is remembered of a node that is gone.
func (b *Book) buried(key string) (t tomb, ok bool) {
	i := slices.IndexFunc(b.tombs, func(t tomb) bool { return t.key == key })
	if i < 0 {
		return tomb{}, false
	}
	return b.tombs[i], true
}

func (b *Book) bury(key string, met bool) {
	b.tombs = slices.DeleteFunc(b.tombs, func(t tomb) bool { return t.key == key })
	if len(b.tombs) == mostTombs {
		b.tombs = slices.Delete(b.tombs, 0, 1)
	}
	b.tombs = append(b.tombs, tomb{key, met})
}

// nextKey makes a key that was never used.
func (b *Book) nextKey(offer string) string {
	b.number++
	return offer + "-" + b.set.Epoch + strconv.FormatInt(b.number, 36)
}

// sorted visits the nodes by key: effects come in a fixed order.
func (b *Book) sorted(visit func(*Owned)) {
	for _, key := range slices.Sorted(maps.Keys(b.nodes)) {
		if n := b.nodes[key]; n != nil {
			visit(n)
		}
	}
}

// RelistSoon has an offer's nodes listed with the next Elapsed, or a moment later if
// they were just listed.
func (b *Book) RelistSoon(offer string) {
	if o := b.offers[offer]; o != nil {
		o.soon = true
	}
}
