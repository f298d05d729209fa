package indexer

import (
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prefix"
)

const (
	echoAfterNs = int64(1e9) // after the first token; engines report within a step
	maxEchoes   = 4096       // awaited at once; more prove nothing more
)

// echo is a unit that a rank has to report: it has computed the prompt, and
// did not hold the unit before. That it reports this very unit proves that its
// tokens were ours; that it reports nothing, or others, that they were not.
type echo struct {
	slot       int
	generation uint32
	class      uint8
	unit       prefix.Hash
	dueNs      int64
}

func (x *Indexer) awaitEcho(n dataplane.Note) {
	if len(n.Chain) == 0 || len(x.echoes) >= maxEchoes || x.opt.Echo == nil {
		return
	}
	// What is expected must not lapse before it was looked at.
	x.writer.Settle(n.Slot, n.Chain[:1], max(n.AtNs, x.opt.NowNs()+2*echoAfterNs))
	x.echoes = append(x.echoes, echo{n.Slot, n.Generation, n.Class, n.Chain[0], x.opt.NowNs() + echoAfterNs})
}

// checkEchoes judges what is due. A rank that was not live all the while proves
// nothing.
func (x *Indexer) checkEchoes() {
	now, done := x.opt.NowNs(), 0
	for _, e := range x.echoes {
		if e.dueNs > now {
			break
		}
		done++
		if n := x.snap.Owner(e.slot); x.isTenant(e.slot, e.generation) && n.Trust[e.slot-n.Slot] == fleet.TrustLive {
			x.opt.Echo(e.slot, e.generation, e.class, !x.writer.Expected(e.slot, e.unit))
		}
	}
	x.echoes = x.echoes[:copy(x.echoes, x.echoes[done:])]
}
