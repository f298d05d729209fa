package sentinel

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"warmpath/controlplane/state"
	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
)

// watch is what is known of one incarnation that has requests, or had them just
// now.
type watch struct {
	node   *state.Node // as it is now
	turn   int         // when there was something to be looked at
	busyNs int64       // since when it is seen to have requests; 0 = it has none
	nextNs int64       // it is not asked before
	saidNs int64       // Silent was told of the time since then, and Alive not after; 0 = it was not

	// The exchange under way; beganNs 0 = none is.
	beganNs, untilNs, gapNs int64
	asked                   []syn

	late  syn   // the last of an exchange in vain, if its socket is not nil
	taken []syn // those that were answered, until the node's program ends them

	addressOf
}

type syn struct {
	sentNs int64
	socket Socket // nil: it could not be sent, as there is no way
}

// look does for one node what is due. It reports whether there is something to
// be looked at again.
func (w *watch) look(k *Keeper, now int64, busy bool) bool {
	load := w.node.Load
	w.lookLate(k, now)
	w.lookTaken(k, now)
	if w.beganNs != 0 {
		w.lookAsked(k, now)
	}
	heard := load.HeardNs.Load()
	if w.saidNs != 0 && heard > w.saidNs {
		w.saidNs, w.nextNs = 0, min(w.nextNs, now+silenceNs) // it may die again, and the pause was for one that is dead
		k.opt.Alive(w.node, heard)
	}
	if !busy {
		w.breakOff(k)
		w.busyNs = 0
		return w.late.socket != nil || len(w.taken) > 0
	}
	if w.busyNs == 0 {
		w.busyNs = now
	}
	switch {
	case w.beganNs == 0 && now-max(heard, w.busyNs) >= silenceNs && now >= w.nextNs:
		w.begin(k, now)
	case w.beganNs != 0 && heard > w.beganNs:
		w.breakOff(k)
	case w.beganNs != 0 && now >= w.untilNs && len(w.asked) == syns && now-w.asked[syns-1].sentNs >= w.gapNs:
		w.inVain(k, now, now-max(heard, w.busyNs))
	case w.beganNs != 0 && now >= w.beganNs+int64(len(w.asked))*w.gapNs:
		w.ask(k, now)
	}
	return true
}

// begin starts an exchange, if it is known where, and within the bounds.
func (w *watch) begin(k *Keeper, now int64) {
	if !w.find(k, now, w.node.Endpoint.Address) || len(w.taken) >= untakenMost || k.full() {
		return
	}
	// What took longer may hold a SYN that was lost, or the time-out of another of
	// the node's addresses, and says nothing of the way.
	length := max(exchangeNs, connects*min(w.node.Load.ConnectNs.Load(), firstRetryNs))
	w.beganNs, w.untilNs, w.gapNs = now, now+length, length/syns
	k.running++
	w.ask(k, now)
}

// ask sends the next SYN of the exchange.
func (w *watch) ask(k *Keeper, now int64) {
	if len(w.asked) == syns {
		return
	}
	s, err := k.opt.Open(w.addresses[len(w.asked)%len(w.addresses)])
	switch {
	case err == nil:
		w.asked = append(w.asked, syn{now, s})
		w.lookAsked(k, now) // of a host that is near the answer may be there
	case backend.FromPeer(err):
		w.answered(k, now, OutcomeRefused)
	case backend.DialClass(err) == backend.Local:
		w.breakOff(k)
		w.nextNs = now + shortPauseNs
	default:
		w.asked = append(w.asked, syn{now, nil})
	}
}

// lookAsked ends the exchange if one of its SYNs was answered.
func (w *watch) lookAsked(k *Keeper, now int64) {
	for i := range w.asked {
		a := &w.asked[i]
		if a.socket == nil {
			continue
		}
		switch a.socket.Look() {
		case Waiting:
		case Unreachable: // whoever says so, it is not the node
			a.close()
		case Refused:
			w.answered(k, now, OutcomeRefused)
			return
		default:
			w.node.Load.Connected(now - a.sentNs)
			w.take(k, a)
			w.answered(k, now, OutcomeAnswered)
			return
		}
	}
}

// answered ends the exchange: the host is there.
func (w *watch) answered(k *Keeper, now int64, o Outcome) {
	w.node.Load.HeardNs.Store(now)
	k.count(w.node.Spec.Name, o)
	w.end(k)
	if o == OutcomeRefused {
		w.nextNs = now + silenceNs
		k.opt.Refused(w.node)
	}
}

// inVain ends the exchange: nothing came. Its last SYN is listened for still, so
// that a node that is only far away is known for it from then on.
func (w *watch) inVain(k *Keeper, now, silentNs int64) {
	k.count(w.node.Spec.Name, OutcomeUnanswered)
	began, took := w.beganNs, now-w.beganNs
	if last := &w.asked[syns-1]; w.late.socket == nil && last.socket != nil && k.late < lateMost {
		w.late, last.socket = *last, nil
		k.late++
	}
	w.end(k)
	w.nextNs = now + silenceNs
	if w.node.Cause == fleet.CauseDead {
		w.nextNs = now + deadPauseNs
	}
	w.saidNs = began
	k.opt.Silent(w.node, began, fmt.Sprintf("%d sentinels got no answer within %v, and nothing came for %v",
		syns, time.Duration(took).Round(time.Millisecond), time.Duration(silentNs).Round(time.Millisecond)))
}

// breakOff ends the exchange, if one is under way, as if it had not been.
func (w *watch) breakOff(k *Keeper) {
	if w.beganNs != 0 {
		k.count(w.node.Spec.Name, OutcomeVoid)
		w.end(k)
	}
}

// end closes what is left of the exchange.
func (w *watch) end(k *Keeper) {
	for i := range w.asked {
		w.asked[i].close()
	}
	if w.beganNs != 0 {
		k.running--
	}
	w.asked, w.beganNs = w.asked[:0], 0
}

// take keeps a socket that was answered until the node's program has ended it.
func (w *watch) take(k *Keeper, a *syn) {
	w.taken = append(w.taken, *a)
	a.socket = nil
	k.taken++
}

// lookLate looks whether the last SYN of an exchange in vain was answered after
// all. If that can only be its own answer, it says how far away the node is.
func (w *watch) lookLate(k *Keeper, now int64) {
	if w.late.socket == nil {
		return
	}
	answer, took := w.late.socket.Look(), now-w.late.sentNs
	if answer == Waiting && took < lateNs {
		return
	}
	if answer == Answered || answer == Refused {
		w.node.Load.HeardNs.Store(now)
		if took < firstRetryNs {
			w.node.Load.ConnectNs.Store(took)
		}
	}
	if answer == Answered {
		w.take(k, &w.late)
	}
	w.late.close()
	k.late--
}

// lookTaken closes the sockets that the node's program has ended, or that it has
// not taken for so long that it is not going to.
func (w *watch) lookTaken(k *Keeper, now int64) {
	kept := w.taken[:0]
	for _, a := range w.taken {
		if a.socket.Look() == Ended || now-a.sentNs >= takenNs {
			a.close()
			k.taken--
			continue
		}
		kept = append(kept, a)
	}
	w.taken = kept
}

// forget closes all that is open.
func (w *watch) forget(k *Keeper) {
	w.end(k)
	if w.late.socket != nil {
		w.late.close()
		k.late--
	}
	for i := range w.taken {
		w.taken[i].close()
		k.taken--
	}
	w.taken = nil
}

func (a *syn) close() {
	if a.socket != nil {
		a.socket.Close()
		a.socket = nil
	}
}

// addressOf is where a node is. A name is looked up beside, and now and then
// anew; a node without an address is not asked, which proves nothing.
type addressOf struct {
	addresses []netip.AddrPort
	found     chan []netip.AddrPort // of the look-up under way; nil = none is
	againNs   int64                 // when to look up next
}

const (
	lookUpEveryNs = int64(30e9)
	lookUpRetryNs = int64(1e9)
	lookUpWithin  = 5 * time.Second
)

// find reports whether it is known where the node is.
func (a *addressOf) find(k *Keeper, now int64, address string) bool {
	if a.addresses != nil && a.againNs == 0 {
		return true
	}
	if at, err := netip.ParseAddrPort(address); err == nil {
		a.addresses = []netip.AddrPort{at}
		return true
	}
	select {
	case found := <-a.found:
		a.found, a.againNs = nil, now+lookUpRetryNs
		if len(found) > 0 {
			a.addresses, a.againNs = found, now+lookUpEveryNs
		}
	default:
	}
	if a.found == nil && now >= a.againNs {
		found := make(chan []netip.AddrPort, 1)
		a.found = found
		k.lookups.Go(func() {
			ctx, cancel := context.WithTimeout(k.ctx, lookUpWithin)
			defer cancel()
			at, _ := k.opt.Resolve(ctx, address) // that it cannot be looked up says nothing of the node
			found <- at
		})
	}
	return a.addresses != nil
}
