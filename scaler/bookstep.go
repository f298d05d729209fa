package scaler

import (
	"fmt"
	"log/slog"
	"strings"

	"warmpath/scaler/actuate"
)

// ordered takes what Plan decided.
func (b *Book) ordered(e Ordered) {
	for _, key := range e.Undrain {
		n := b.nodes[key]
		if n == nil || n.Stage != StageLeaving || n.final {
			continue
		}
		stage := StageServing
		if !n.served { // that it comes up in time is watched again
			stage = StageComing
		}
		b.enter(n, stage, whyBack)
		b.do(DrainNode{Key: key, Back: true})
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
	if o == nil || b.nowNs < o.until || len(b.nodes) >= MostNodes || o.offer.Quota > 0 && b.at(offer)+len(o.orphans) >= o.offer.Quota {
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

// giveUp has a node leave for good.
func (b *Book) giveUp(n *Owned, why string) {
	n.final = true
	b.leave(n, why)
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
		b.refused(n, e.Err.Error())
	case e.Err != nil:
		n.Detail, n.unsure = e.Err.Error(), true
		b.later(n)
		b.tell(slog.LevelWarn, "it is not known whether a node was made", slog.String("node", n.Key), slog.String("offer", n.Offer), slog.Any("err", e.Err))
		if n.tries >= giveUpAfter && n.Stage == StageAsked {
			b.withhold(n.Offer, withheldFor[actuate.Capacity], e.Err.Error())
			b.end(n, "its provider does not answer: "+e.Err.Error())
		}
	default:
		n.doubtful, n.tries = false, 0
		if !n.isOther(e.Instance) { // else it is there twice, or was: the next list will show
			b.learned(n, e.Instance)
		}
	}
	if b.nodes[n.Key] == n && n.Stage == StageEnding && !n.calling {
		b.delete(n)
	}
}

// refused takes that a Create was refused. That call made nothing, but an earlier one
// may have, and a list may have shown it meanwhile.
func (b *Book) refused(n *Owned, why string) {
	switch {
	case n.Stage != StageAsked && n.Stage != StageEnding || n.ID != "":
	case !n.unsure:
		b.forget(n, why)
	case n.Stage == StageAsked:
		b.end(n, why)
	}
}

// isOther reports whether an instance of the node's key is not the one that is known.
func (n *Owned) isOther(i actuate.Instance) bool { return n.ID != "" && i.ID != "" && i.ID != n.ID }

// learned takes what a provider says of a node.
func (b *Book) learned(n *Owned, i actuate.Instance) {
	n.Detail, n.absent = i.Detail, 0
	if i.Phase == actuate.Ended {
		b.ended(n, withDetail("it has ended at its provider", i.Detail))
		return
	}
	n.doubtful = false
	changed := i.ID != "" && i.ID != n.ID || i.URL != "" && i.URL != n.URL
	if n.isOther(i) && n.URL != "" { // the URL was the other one's
		n.URL, b.publish = "", true
	}
	if i.ID != "" {
		n.ID = i.ID
	}
	if i.URL != "" && n.URL != i.URL {
		n.URL, b.publish = i.URL, true
	}
	switch {
	case i.Phase == actuate.Ending && n.Stage != StageLeaving && n.Stage != StageEnding:
		b.giveUp(n, withDetail("its provider ends it", i.Detail))
	case n.Stage == StageAsked:
		b.enter(n, StageComing, "its provider has it")
	case changed:
		b.record(n)
	}
}

// withDetail adds a provider's words, if there are any.
func withDetail(why, detail string) string {
	if detail = strings.TrimSpace(detail); detail != "" {
		why += ": " + detail
	}
	return why
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
	if o == nil || b.nowNs < o.until { // what else was under way fails for the same cause: it counts once
		return
	}
	o.until = b.nowNs + min(withheldMost, forNs<<min(o.failures, 8))
	o.why = why
	o.failures++
	b.tell(slog.LevelError, "an offer gives no node", slog.String("offer", offer), slog.String("err", why), slog.Float64("again_in_s", float64(o.until-b.nowNs)/1e9))
}

func (b *Book) deleted(e Deleted) {
	n := b.nodes[e.Key]
	if n == nil { // not ours, or one too many of a key: the next list will show
		if o := b.offers[e.Offer]; o != nil {
			b.strayed(o, e)
		}
		return
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
		o.soon = true // to see it gone
	}
}

// strayed takes what came of telling an instance to end that stands for no node of ours.
func (b *Book) strayed(o *offerState, e Deleted) {
	delete(o.strays, e.ID)
	if e.Err == nil || b.nowNs < o.strayNs {
		return // it is told again with each list
	}
	o.strayPause = min(withheldMost, max(sayAgainNs, 2*o.strayPause))
	o.strayNs = b.nowNs + o.strayPause
	b.tell(slog.LevelError, "a node that is not ours to keep was not told to end", slog.String("offer", e.Offer), slog.String("node", e.Key), slog.String("id", e.ID), slog.Any("err", e.Err))
}

// listed compares what a provider has with what is owned.
func (b *Book) listed(e Listed) {
	o := b.offers[e.Offer]
	if o == nil {
		return
	}
	o.listing = false
	if e.Err != nil {
		b.unlisted(o, e.Err)
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
		} else if !e.Part || n.Stage == StageEnding {
			b.missing(n, e)
		}
	})
	if o.listErr != "" {
		b.tell(slog.LevelInfo, "an offer's nodes can be listed again", slog.String("offer", e.Offer))
	}
	o.orphans, o.listErr, o.seen, o.sayNs, o.sayPause = orphans, "", true, 0, 0
}

// unlisted takes that a list failed. Providers put numbers of requests and ports into
// their words, so that no two failures say the same: those are not all news.
func (b *Book) unlisted(o *offerState, err error) {
	if o.listErr != err.Error() && b.nowNs >= o.sayNs {
		o.sayPause = min(withheldMost, max(sayAgainNs, 2*o.sayPause))
		o.sayNs = b.nowNs + o.sayPause
		b.tell(slog.LevelError, "an offer's nodes cannot be listed", slog.String("offer", o.offer.Name), slog.Any("err", err))
	}
	o.listErr = err.Error()
}

// found takes one instance of a list.
func (b *Book) found(o *offerState, i actuate.Instance, named map[string]actuate.Instance, orphans map[string]Orphan) {
	name := o.offer.Name
	if i.Phase == actuate.Ended && b.nodes[i.Key] == nil {
		return
	}
	other, twice := named[i.Key]
	n := b.nodes[i.Key]
	tomb, buried := b.buried(i.Key)
	switch {
	case n == nil && buried:
		// It was told to end, or given up, and came all the same. What routers may have
		// sent to is drained before.
		switch {
		case tomb.met && i.Phase == actuate.Running && i.URL != "":
			named[i.Key] = i
			b.takeUp(o, i, "it was gone and is there again")
			return
		case i.Phase != actuate.Ending:
			b.stray(o, i)
		}
		orphans[i.ID] = Orphan{name, i, b.nowNs}
	case n == nil || i.Key == "":
		b.orphan(o, i, orphans)
	case twice && i.ID == other.ID: // one node, listed twice
	case twice:
		keep, drop := other, i
		if n.ID != "" && i.ID == n.ID || n.ID != other.ID && i.Phase != actuate.Ended && other.Phase == actuate.Ended {
			keep, drop = i, other
		}
		named[i.Key] = keep
		if drop.Phase == actuate.Pending || drop.Phase == actuate.Running {
			if b.stray(o, actuate.Instance{ID: drop.ID, URL: drop.URL}) {
				b.tell(slog.LevelError, "a node exists twice; one is ended", slog.String("node", i.Key), slog.String("offer", name), slog.String("id", drop.ID))
			}
			orphans[drop.ID] = Orphan{name, drop, b.nowNs}
		}
	default:
		named[i.Key] = i
	}
}

// stray ends an instance that stands for no node of ours, unless that is under way.
func (b *Book) stray(o *offerState, i actuate.Instance) bool {
	if o.strays[i.ID] {
		return false
	}
	o.strays[i.ID] = true
	b.do(CallDelete{Offer: o.offer.Name, Instance: i})
	return true
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
	// As long as no router takes what this scaler says, it may be another one's.
	unheard := b.watchedNs == 0 || b.nowNs-b.watchedNs >= heardWithin
	if b.set.Orphans == "report" || unheard || i.Phase == actuate.Ending || actuate.CheckKey(i.Key) != nil || b.nowNs-was.SinceNs < listEveryNs {
		orphans[i.ID] = was
		return
	}
	n := b.own(o, i, "it was found and nobody had asked for it")
	if b.set.Orphans == "remove" {
		b.giveUp(n, "nobody asked for it")
	}
}

// own makes a node ours that a list has named.
func (b *Book) own(o *offerState, i actuate.Instance, why string) *Owned {
	n := &Owned{Key: i.Key, Offer: o.offer.Name, ID: i.ID, URL: i.URL, AskedNs: b.nowNs, StageNs: b.nowNs}
	b.nodes[n.Key] = n
	b.enter(n, StageComing, why)
	return n
}

// takeUp has a node leave that was forgotten and is there.
func (b *Book) takeUp(o *offerState, i actuate.Instance, why string) {
	b.tell(slog.LevelWarn, "a node that was gone is there again; it is drained and ended", slog.String("node", i.Key), slog.String("offer", o.offer.Name))
	b.giveUp(b.own(o, i, why), why)
}

// present takes what a list says of a node.
func (b *Book) present(n *Owned, i actuate.Instance) {
	if n.Stage != StageEnding {
		switch {
		case i.Phase == actuate.Ended && n.calling: // the call's answer may bring another one
		case n.isOther(i) && n.atWork && n.absent < absentLive: // and where is the one that the routers see?
			n.absent++
		default:
			b.learned(n, i)
		}
		return
	}
	if n.isOther(i) && i.Phase != actuate.Ended {
		n.told, n.againNs = false, 0 // that one was not told
	}
	n.absent, n.Detail = 0, i.Detail
	if i.ID != "" {
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
func (b *Book) missing(n *Owned, e Listed) {
	if n.calling || e.AskedNs < n.StageNs || n.told && e.AskedNs < n.toldNs {
		return // the list may be older than what was done since
	}
	n.absent++
	switch n.Stage {
	case StageAsked: // Create is asked again, with the same key
	case StageEnding:
		// What was never seen may yet come, if Create was on its way; and a list that
		// cannot name all would have named what it heard of.
		if n.told && n.absent >= absentLists && (!n.doubtful && !e.Part || b.nowNs-n.toldNs >= settleNs) {
			b.forget(n, n.Why)
		}
	default:
		// A list may lag behind the making of a node, and err: what serves is there.
		if n.absent == absentLive && n.atWork {
			b.tell(slog.LevelWarn, "a node is at work that its provider does not list", slog.String("node", n.Key), slog.String("offer", n.Offer))
		}
		unseen := n.URL != "" && b.watchedNs == 0 // the routers have not been heard yet
		if n.absent >= absentLists && !n.atWork && !unseen && b.nowNs-n.StageNs >= settleNs {
			b.ended(n, "its provider has it no more")
		}
	}
}

// watched takes what the routers see.
func (b *Book) watched(e Watched) {
	b.watchedNs = b.nowNs
	seen := make(map[string]Watch, len(e.Nodes))
	for _, w := range e.Nodes {
		seen[w.Key] = w
	}
	b.sorted(func(n *Owned) {
		w, there := seen[n.Key]
		n.atWork = there && w.Phase != Down && (w.Phase == Ready || w.InFlight > 0)
		switch {
		case n.Stage != StageServing || there:
			n.lostNs = 0
		case n.lostNs == 0:
			n.lostNs = b.nowNs
		}
		switch {
		case n.Stage == StageComing && there && w.Phase == Ready:
			b.served(n)
		case n.Stage == StageComing && n.URL != "":
			b.overdue(n)
		case n.Stage == StageLeaving && there:
			b.drains(n, w)
		case n.Stage == StageLeaving && b.emptyFor(n): // the routers were told and took it out
			b.end(n, n.Why)
		}
	})
}

// served takes note of a node's first service.
func (b *Book) served(n *Owned) {
	o := b.offers[n.Offer]
	attrs := []slog.Attr{slog.String("node", n.Key), slog.String("offer", n.Offer)}
	if o != nil && n.AskedNs > 0 {
		took := float64(b.nowNs-n.AskedNs) / 1e9
		attrs = append(attrs, slog.Float64("after_s", took))
		if o.startUp.Known {
			took = o.startUp.Value + startUpGain*(took-o.startUp.Value)
		}
		o.startUp, o.failures, o.until = Known(took), 0, 0
	}
	n.served = true
	b.tell(slog.LevelInfo, "node serves", attrs...)
	b.enter(n, StageServing, "it serves")
}

// drains ends a leaving node once nothing is on it.
func (b *Book) drains(n *Owned, w Watch) {
	if !w.Draining && w.Phase != Draining {
		n.empty = 0               // be it down now, it may be up and be sent to in a moment
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
		if o.soon {
			every = listLeastNs
		}
		if !o.listing && (o.listNs == 0 || b.nowNs-o.listNs >= every) {
			o.listing, o.listNs, o.soon = true, b.nowNs, false
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
		if b.offers[n.Offer] == nil {
			b.tell(slog.LevelError, "a node's offer is not configured any more: the node can neither be listed nor ended", slog.String("node", n.Key),
				slog.String("offer", n.Offer), slog.String("remedy", "bring the offer back under its name until its nodes have gone"))
		}
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
		if n.URL == "" { // of others the routers may know better
			b.overdue(n)
		}
	case StageEnding:
		b.delete(n)
	}
}

// overdue gives up a node that has not come up in time.
func (b *Book) overdue(n *Owned) {
	o := b.offers[n.Offer]
	if o == nil || n.StageNs == 0 {
		return
	}
	limit := b.startLimit(o)
	if float64(b.nowNs-n.StageNs)/1e9 < limit {
		return
	}
	why := withDetail(fmt.Sprintf("it did not serve within %.0f s", limit), n.Detail)
	b.withhold(n.Offer, withheldFor[actuate.Capacity], why)
	b.giveUp(n, why)
}

// startLimit is how long a node of an offer has to come up.
func (b *Book) startLimit(o *offerState) float64 {
	usual := o.offer.StartUpSeconds
	if usual == 0 {
		usual = b.set.StartUpSeconds
	}
	return max(startAtLeast, startMultiple*max(usual, o.startUp.Or(0)))
}
