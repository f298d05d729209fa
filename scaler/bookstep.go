package scaler

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"warmpath/scaler/actuate"
)

// ordered takes what Plan decided.
func (b *Book) ordered(e Ordered) {
	for _, key := range e.Undrain {
		if n := b.nodes[key]; n != nil && n.Stage == StageLeaving {
			b.enter(n, StageServing, "it is needed again")
			b.do(DrainNode{Key: key, Back: true})
		}
	}
	for _, s := range e.Start {
		for range s.Count {
			b.ask(s.Offer, e.Why)
		}
	}
	for _, key := range e.Drain {
		n := b.nodes[key]
		if n == nil || n.Stage == StageLeaving || n.Stage == StageEnding {
			continue
		}
		b.leave(n, e.Why)
	}
}

// ask decides for a node, unless its offer may give no more.
func (b *Book) ask(offer, why string) {
	o := b.offers[offer]
	if o == nil || b.nowNs < o.until || o.offer.Quota > 0 && b.at(offer)+len(o.orphans) >= o.offer.Quota {
		return
	}
	n := &Owned{Key: b.nextKey(offer), Offer: offer, AskedNs: b.nowNs, StageNs: b.nowNs, doubtful: true}
	b.nodes[n.Key] = n
	b.enter(n, StageAsked, why)
	b.create(n)
}

// at is how many nodes there may be of an offer.
func (b *Book) at(offer string) (count int) {
	for _, n := range b.nodes {
		if n.Offer == offer {
			count++
		}
	}
	return count
}

func (b *Book) create(n *Owned) {
	n.calling, n.doubtful = true, true
	b.do(CallCreate{Offer: n.Offer, Key: n.Key})
}

// leave drains a node; one that the routers never knew ends at once.
func (b *Book) leave(n *Owned, why string) {
	if n.URL == "" {
		b.end(n, why)
		return
	}
	b.enter(n, StageLeaving, why)
	b.do(DrainNode{Key: n.Key})
}

// end tells a node to end. Whoever calls it knows that nothing is on it.
func (b *Book) end(n *Owned, why string) {
	b.enter(n, StageEnding, why)
	n.told = false
	if !n.calling {
		b.delete(n)
	}
}

func (b *Book) delete(n *Owned) {
	if b.offers[n.Offer] == nil {
		return // it can only be told once the configuration has its offer again
	}
	n.calling = true
	b.do(CallDelete{Offer: n.Offer, Instance: actuate.Instance{Key: n.Key, ID: n.ID, URL: n.URL}})
}

// later puts the next call about a node off.
func (b *Book) later(n *Owned) {
	n.againNs = b.nowNs + min(againMostNs, againNs<<min(n.tries, 8))
	n.tries++
}

func (b *Book) created(e Created) {
	n := b.nodes[e.Key]
	if n == nil {
		return // it was given up and is buried; if it comes all the same, a list will say so
	}
	n.calling = false
	refusal := actuate.AsRefusal(e.Err)
	switch {
	case refusal != nil:
		b.withhold(n.Offer, withheldFor[refusal.Reason], e.Err.Error())
		if n.tries == 0 {
			b.forget(n, e.Err.Error())
			return
		}
		b.end(n, e.Err.Error()) // an earlier call may have made it
	case e.Err != nil:
		n.Detail = e.Err.Error()
		b.later(n)
		b.tell(slog.LevelWarn, "it is not known whether a node was made", slog.String("node", n.Key), slog.String("offer", n.Offer), slog.Any("err", e.Err))
		if n.tries >= giveUpAfter && n.Stage == StageAsked {
			b.withhold(n.Offer, withheldFor[actuate.Capacity], e.Err.Error())
			b.end(n, "its provider does not answer: "+e.Err.Error())
		}
	default:
		n.doubtful, n.tries = false, 0
		b.learned(n, e.Instance)
	}
	if b.nodes[n.Key] == n && n.Stage == StageEnding && !n.calling {
		b.delete(n)
	}
}

// learned takes what a provider says of a node.
func (b *Book) learned(n *Owned, i actuate.Instance) {
	n.Detail, n.absent = i.Detail, 0
	if i.Phase == actuate.Ended {
		b.ended(n, "it has ended at its provider: "+i.Detail)
		return
	}
	n.doubtful = false
	changed := i.ID != "" && i.ID != n.ID || i.URL != "" && i.URL != n.URL
	if i.ID != "" {
		n.ID = i.ID
	}
	if i.URL != "" && n.URL != i.URL {
		n.URL = i.URL
		b.publish = true
	}
	switch {
	case i.Phase == actuate.Ending && n.Stage != StageLeaving && n.Stage != StageEnding:
		b.leave(n, "its provider ends it: "+i.Detail)
	case n.Stage == StageAsked:
		b.enter(n, StageComing, "its provider has it")
	case changed:
		b.record(n)
	}
}

// ended takes note that a node is no more.
func (b *Book) ended(n *Owned, why string) {
	switch n.Stage {
	case StageAsked, StageComing:
		b.withhold(n.Offer, withheldFor[actuate.Capacity], why)
	case StageServing:
		b.tell(slog.LevelWarn, "a node has gone by itself", slog.String("node", n.Key), slog.String("offer", n.Offer), slog.String("why", why))
	}
	b.forget(n, why)
}

// withhold rests an offer after a failure.
func (b *Book) withhold(offer string, forNs int64, why string) {
	o := b.offers[offer]
	if o == nil {
		return
	}
	o.until = b.nowNs + min(withheldMost, forNs<<min(o.failures, 8))
	o.why = why
	o.failures++
	b.tell(slog.LevelError, "an offer gives no node", slog.String("offer", offer), slog.String("err", why), slog.Float64("again_in_s", float64(o.until-b.nowNs)/1e9))
}

func (b *Book) deleted(e Deleted) {
	n := b.nodes[e.Key]
	if n == nil {
		return // an orphan, or one too many of a key: the next list will show
	}
	n.calling = false
	if e.Err != nil {
		n.Detail = e.Err.Error()
		b.later(n)
		b.tell(slog.LevelWarn, "a node was not told to end", slog.String("node", n.Key), slog.String("offer", n.Offer), slog.Any("err", e.Err))
		return
	}
	if !n.told {
		n.told, n.toldNs, n.absent = true, b.nowNs, 0
	}
	n.againNs = b.nowNs + againMostNs
	if o := b.offers[n.Offer]; o != nil {
		o.listNs = 0 // to see it gone
	}
}

// listed compares what a provider has with what is owned.
func (b *Book) listed(e Listed) {
	o := b.offers[e.Offer]
	if o == nil {
		return
	}
	o.listing = false
	if e.Err != nil {
		if o.listErr != e.Err.Error() {
			o.listErr = e.Err.Error()
			b.tell(slog.LevelError, "an offer's nodes cannot be listed", slog.String("offer", e.Offer), slog.Any("err", e.Err))
		}
		return
	}
	named := map[string]actuate.Instance{}
	orphans := map[string]Orphan{}
	for _, i := range e.Instances {
		b.found(o, i, named, orphans)
	}
	b.sorted(func(n *Owned) {
		if n.Offer != e.Offer {
			return
		}
		if i, ok := named[n.Key]; ok {
			b.present(n, i)
		} else if !e.Part {
			b.missing(n, e.AskedNs)
		}
	})
	o.orphans, o.listErr, o.seen = orphans, "", true
}

// found takes one instance of a list.
func (b *Book) found(o *offerState, i actuate.Instance, named map[string]actuate.Instance, orphans map[string]Orphan) {
	name := o.offer.Name
	if i.Phase == actuate.Ended && b.nodes[i.Key] == nil {
		return
	}
	other, twice := named[i.Key]
	n := b.nodes[i.Key]
	switch {
	case n == nil && slices.Contains(b.tombs, i.Key):
		// It was told to end, or given up, and came all the same.
		if i.Phase != actuate.Ending {
			b.do(CallDelete{Offer: name, Instance: i})
		}
		orphans[i.ID] = Orphan{name, i, b.nowNs}
	case n == nil || i.Key == "":
		b.orphan(o, i, orphans)
	case twice:
		keep, drop := other, i
		if n.ID != "" && i.ID == n.ID || n.ID != other.ID && i.Phase != actuate.Ended && other.Phase == actuate.Ended {
			keep, drop = i, other
		}
		named[i.Key] = keep
		if drop.Phase == actuate.Pending || drop.Phase == actuate.Running {
			b.tell(slog.LevelError, "a node exists twice; one is ended", slog.String("node", i.Key), slog.String("offer", name), slog.String("id", drop.ID))
			b.do(CallDelete{Offer: name, Instance: actuate.Instance{ID: drop.ID, URL: drop.URL}})
			orphans[drop.ID] = Orphan{name, drop, b.nowNs}
		}
	default:
		named[i.Key] = i
	}
}

// orphan takes a node that nobody here asked for.
func (b *Book) orphan(o *offerState, i actuate.Instance, orphans map[string]Orphan) {
	was, known := o.orphans[i.ID]
	if !known {
		was = Orphan{o.offer.Name, i, b.nowNs}
		b.tell(slog.LevelWarn, "found a node that nobody asked for", slog.String("offer", o.offer.Name), slog.String("id", i.ID),
			slog.String("key", i.Key), slog.String("then", b.set.Orphans))
	}
	was.Instance = i
	if b.set.Orphans == "report" || i.Phase == actuate.Ending || actuate.CheckKey(i.Key) != nil || b.nowNs-was.SinceNs < listEveryNs {
		orphans[i.ID] = was
		return
	}
	n := &Owned{Key: i.Key, Offer: o.offer.Name, ID: i.ID, URL: i.URL, AskedNs: b.nowNs, StageNs: b.nowNs}
	b.nodes[n.Key] = n
	b.enter(n, StageComing, "it was found and nobody had asked for it")
	if b.set.Orphans == "remove" {
		b.leave(n, "nobody asked for it")
	}
}

// present takes what a list says of a node.
func (b *Book) present(n *Owned, i actuate.Instance) {
	if n.Stage != StageEnding {
		b.learned(n, i)
		return
	}
	n.absent, n.Detail = 0, i.Detail
	if n.ID == "" {
		n.ID = i.ID
	}
	switch {
	case n.calling:
	case i.Phase == actuate.Ended:
		b.forget(n, n.Why)
	case i.Phase != actuate.Ending:
		n.told = false // it came after it was told to end, or did not hear
	}
}

// missing takes that a list does not name a node.
func (b *Book) missing(n *Owned, askedNs int64) {
	if n.calling || askedNs < n.StageNs || n.told && askedNs < n.toldNs {
		return // the list may be older than what was done since
	}
	n.absent++
	switch n.Stage {
	case StageAsked: // Create is asked again, with the same key
	case StageEnding:
		// What was never seen may yet come, if Create was on its way.
		if n.told && n.absent >= absentLists && (!n.doubtful || b.nowNs-n.toldNs >= settleNs) {
			b.forget(n, n.Why)
		}
	default:
		// A list may lag behind the making of a node.
		if n.absent >= absentLists && b.nowNs-n.StageNs >= settleNs {
			b.ended(n, "its provider has it no more")
		}
	}
}

// watched takes what the routers see.
func (b *Book) watched(e Watched) {
	for _, w := range e.Nodes {
		n := b.nodes[w.Key]
		if n == nil {
			continue
		}
		switch n.Stage {
		case StageComing:
			if w.Phase == Ready {
				b.served(n)
			}
		case StageLeaving:
			b.drains(n, w)
		}
	}
	b.sorted(func(n *Owned) {
		// The routers do not have it: they were told and took it out.
		if n.Stage == StageLeaving && !slices.ContainsFunc(e.Nodes, func(w Watch) bool { return w.Key == n.Key }) && b.emptyFor(n) {
			b.end(n, n.Why)
		}
	})
}

// served takes note of a node's first service.
func (b *Book) served(n *Owned) {
	o := b.offers[n.Offer]
	if o != nil && n.AskedNs > 0 {
		took := float64(b.nowNs-n.AskedNs) / 1e9
		if o.startUp.Known {
			took = o.startUp.Value + startUpGain*(took-o.startUp.Value)
		}
		o.startUp, o.failures, o.until = Known(took), 0, 0
	}
	b.tell(slog.LevelInfo, "node serves", slog.String("node", n.Key), slog.String("offer", n.Offer), slog.Float64("after_s", float64(b.nowNs-n.AskedNs)/1e9))
	b.enter(n, StageServing, "it serves")
}

// drains ends a leaving node once nothing is on it.
func (b *Book) drains(n *Owned, w Watch) {
	if !w.Draining && w.Phase != Draining && w.Phase != Down {
		n.empty = 0
		if b.nowNs >= n.againNs { // the routers have not heard, or were started again
			n.againNs = b.nowNs + againNs
			b.do(DrainNode{Key: n.Key})
		}
		return
	}
	if w.InFlight > 0 || w.Running.Or(0) > 0 && w.Phase != Down {
		n.empty = 0
		if b.set.DrainNs > 0 && b.nowNs-n.StageNs >= b.set.DrainNs && b.set.EndUndrained {
			b.end(n, fmt.Sprintf("%s; it had %d requests on it after the longest drain", n.Why, w.InFlight))
		}
		return
	}
	if b.emptyFor(n) {
		b.end(n, n.Why)
	}
}

// emptyFor reports whether a node has been empty for long enough.
func (b *Book) emptyFor(n *Owned) bool {
	if n.empty == 0 {
		n.empty = b.nowNs
	}
	return b.nowNs-n.empty >= emptyNs
}

// elapsed does what time alone brings about.
func (b *Book) elapsed() {
	for i := range b.set.Offers {
		o := b.offers[b.set.Offers[i].Name]
		every := listEveryNs
		if b.moving(o.offer.Name) {
			every = listSoonNs
		}
		if !o.listing && (o.listNs == 0 || b.nowNs-o.listNs >= every) {
			o.listing, o.listNs = true, b.nowNs
			b.do(CallList{Offer: o.offer.Name})
		}
	}
	b.sorted(b.elapsedNode)
}

// moving reports whether a node of an offer is on its way, to us or back.
func (b *Book) moving(offer string) bool {
	for _, n := range b.nodes {
		if n.Offer == offer && n.Stage != StageServing && n.Stage != StageLeaving {
			return true
		}
	}
	return false
}

func (b *Book) elapsedNode(n *Owned) {
	if n.StageNs == 0 { // restored: its times begin now
		n.StageNs = b.nowNs
		if n.Stage == StageLeaving {
			b.do(DrainNode{Key: n.Key})
		}
	}
	o := b.offers[n.Offer]
	if o == nil || n.calling || b.nowNs < n.againNs {
		return
	}
	switch n.Stage {
	case StageAsked:
		b.create(n)
	case StageComing:
		limit := b.startLimit(o)
		if float64(b.nowNs-n.StageNs)/1e9 < limit {
			return
		}
		why := fmt.Sprintf("it did not serve within %.0f s", limit)
		if n.Detail != "" {
			why += ": " + strings.TrimSpace(n.Detail)
		}
		b.withhold(n.Offer, withheldFor[actuate.Capacity], why)
		b.leave(n, why)
	case StageEnding:
		b.delete(n)
	}
}

// startLimit is how long a node of an offer has to come up.
func (b *Book) startLimit(o *offerState) float64 {
	usual := o.offer.StartUpSeconds
	if usual == 0 {
		usual = b.set.StartUpSeconds
	}
	return max(startAtLeast, startMultiple*max(usual, o.startUp.Or(0)))
}
