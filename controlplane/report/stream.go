package report

import (
	"fmt"
	"slices"

	"warmpath/controlplane/report/message"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

const (
	staleNs       = 15e9      // without a report
	assemblyNs    = 15e9      // for the next part of a report
	assemblyBytes = 128 << 20 // of one report in parts
	wantedMax     = 1 << 16   // hashes asked for in one answer: 1.2 MB of JSON
	retiredMax    = 8         // epochs of the past that are told from new ones
	fullEveryNs   = 5e9       // between two full syncs that did not help …
	fullEveryMax  = 300e9     // … doubling up to this
)

// stream is the state of one rank's reports. It is pure: its methods do no I/O
// and read no clock. A report goes through take; what take returns is applied by
// the caller, who then calls done or failed, before the next take.
//
// A stream trusts its own order only: the highest seq that was applied. What
// comes with a lower one is old, whatever it says, so that a late report can
// neither bring back a block that went nor take away one that came again.
type stream struct {
	to Target // as of the latest report

	epoch   string   // "" = none heard
	retired []string // epochs that ended, latest last
	seq     uint64   // highest applied in epoch
	parts   *assembly

	heard   bool
	heardNs int64
	minimal bool // the latest report was a minimal reporter's
	tiers   [index.Tiers]tierSync
}

// tierSync is how far the index agrees with one tier of the node.
type tierSync struct {
	used      bool // a report of this epoch was about it
	gapped    bool // a report is missing
	wantFull  bool
	unproved  bool  // no digest has agreed since the last full sync
	fullNs    int64 // when that was
	fullWaste int   // full syncs in a row that did not make the digests agree
}

// assembly is a report of which not all parts have come.
type assembly struct {
	epoch   string
	seq     uint64
	parts   []*message.Report // nil where none came
	missing int
	bytes   int // of their bodies
	atNs    int64
}

// refusal says why a report is not taken.
type refusal struct {
	status int
	code   string
	field  string
	text   string
}

func (e *refusal) Error() string {
	if e.field != "" {
		return e.field + ": " + e.text
	}
	return e.text
}

// work is what take makes of a report: an answer at once, or a batch that is to
// be applied first.
type work struct {
	batch  *Batch // nil = answer stands
	answer message.Answer

	report *message.Report // whole
	epoch  string          // to be adopted when the batch is applied
	gap    bool
}

// take judges a report of bodyBytes that came at nowNs. The error is a *refusal.
func (s *stream) take(nowNs int64, to Target, r *message.Report, bodyBytes int) (work, error) {
	if r.Rank >= to.Ranks {
		return work{}, &refusal{400, "bad_report", "rank", fmt.Sprintf("%d, and the node has %d in the router's configuration (kv_events.ranks)", r.Rank, to.Ranks)}
	}
	if s.to.elsewhere(&to) {
		*s = stream{}
	}
	s.to = to
	if r.Minimal() {
		return s.takeMinimal(nowNs, r)
	}
	if r.Epoch != s.epoch && slices.Contains(s.retired, r.Epoch) {
		return work{}, &refusal{409, "wrong_epoch", "epoch", fmt.Sprintf("%q has ended: %q began after it; begin a new epoch with seq 1", r.Epoch, s.epoch)}
	}
	s.wake(nowNs)
	if r.Epoch == s.epoch && r.Seq <= s.seq {
		s.hear(nowNs)
		return work{answer: s.answer(nowNs, r.Tier)}, nil
	}
	whole, err := s.assemble(nowNs, r, bodyBytes)
	if err != nil {
		return work{}, err
	}
	if whole == nil {
		s.hear(nowNs)
		return work{answer: message.Answer{Seq: s.seqIn(r.Epoch)}}, nil
	}
	b := batchOf(to, whole)
	b.Clear = s.epoch != r.Epoch // also before the first: what was guessed of the node goes
	return work{batch: b, report: whole, epoch: r.Epoch, gap: r.Seq != s.seqIn(r.Epoch)+1}, nil
}

// takeMinimal judges a report without epoch and seq. Where another kind of
// reporter was at work, it must have fallen silent before: two that disagree on
// what a hash is would undo each other's work.
func (s *stream) takeMinimal(nowNs int64, r *message.Report) (work, error) {
	if s.to.Scheme == "" {
		return work{}, &refusal{400, "bad_report", "epoch", "missing; send epoch and seq, or set hash_scheme of this node in the router's configuration"}
	}
	b := batchOf(s.to, r)
	if s.epoch != "" {
		if s.trust(nowNs) != fleet.TrustStale {
			return work{}, &refusal{400, "bad_report", "epoch", "missing; another reporter of this worker sends epochs"}
		}
		*s = stream{to: s.to}
		b.Clear = true
	}
	return work{batch: b, report: r}, nil
}

// seqIn is the highest seq that was applied in an epoch.
func (s *stream) seqIn(epoch string) uint64 {
	if epoch == s.epoch {
		return s.seq
	}
	return 0
}

func batchOf(to Target, r *message.Report) *Batch {
	b := &Batch{Slot: to.Slot + r.Rank, Generation: to.Generation, Model: to.Model, Tier: r.Tier}
	if r.Minimal() {
		b.Scheme = to.Scheme
	}
	switch r.Route {
	case message.Stored:
		b.Stored = r.Blocks
	case message.Eviction:
		b.Removed = names(to.Scheme, &r.Evicted)
	case message.Sync:
		b.Replace, b.Active = r.Full, names(to.Scheme, &r.Active)
		b.Described = r.Blocks
		if !r.Minimal() {
			b.Wants = wantedMax
		}
	}
	return b
}

// names cuts whole digests to the 64 bits that the engine would send. vLLM keeps
// a digest's last ones, SGLang its first ones, and of a prompt's digest either
// would do.
func names(scheme string, h *message.Hashes) []uint64 {
	if len(h.Long) == 0 {
		return h.Short
	}
	list := make([]uint64, len(h.Long))
	for i := range h.Long {
		if scheme == SchemeVLLM {
			list[i] = h.Long[i].Tail()
		} else {
			list[i] = h.Long[i].Name()
		}
	}
	return list
}

// assemble returns the whole report once all of its parts are there, nil before.
func (s *stream) assemble(nowNs int64, r *message.Report, bodyBytes int) (*message.Report, error) {
	if r.Parts == 1 {
		s.parts = nil // an older one will never be whole
		return r, nil
	}
	a := s.parts
	if a == nil || a.epoch != r.Epoch || a.seq != r.Seq {
		a = &assembly{epoch: r.Epoch, seq: r.Seq, parts: make([]*message.Report, r.Parts), missing: r.Parts}
		s.parts = a
	}
	a.atNs = nowNs
	switch {
	case len(a.parts) != r.Parts:
		return nil, &refusal{400, "bad_report", "parts", fmt.Sprintf("%d, and other parts of seq %d say %d", r.Parts, r.Seq, len(a.parts))}
	case a.parts[r.Part-1] != nil: // sent again, since its answer was lost
		return nil, nil
	case a.bytes+bodyBytes > assemblyBytes:
		s.parts = nil
		return nil, &refusal{413, "too_large", "parts", fmt.Sprintf("the parts of seq %d have more than %d bytes together", r.Seq, assemblyBytes)}
	}
	for _, p := range a.parts {
		if p != nil && (p.Route != r.Route || p.Tier != r.Tier || p.Model != r.Model || p.Full != r.Full) {
			return nil, &refusal{400, "bad_report", "part", fmt.Sprintf("%d of seq %d differs from part %d in route, tier, model or full", r.Part, r.Seq, p.Part)}
		}
	}
	a.parts[r.Part-1] = r
	a.bytes += bodyBytes
	if a.missing--; a.missing > 0 {
		return nil, nil
	}
	s.parts = nil
	return a.join(), nil
}

// join makes one report of all parts. The digest, if any, is the last one given.
func (a *assembly) join() *message.Report {
	whole := *a.parts[0]
	whole.Part, whole.Parts = 1, 1
	for _, p := range a.parts[1:] {
		whole.Blocks = append(whole.Blocks, p.Blocks...)
		whole.Evicted.Short = append(whole.Evicted.Short, p.Evicted.Short...)
		whole.Active.Short = append(whole.Active.Short, p.Active.Short...)
		if p.HasDigest {
			whole.HasDigest, whole.Digest = true, p.Digest
		}
	}
	return &whole
}

// done notes that the batch of w was applied, and returns the answer.
func (s *stream) done(nowNs int64, w *work, got Result) message.Answer {
	s.hear(nowNs)
	s.minimal = w.report.Minimal()
	if s.minimal {
		return message.Answer{}
	}
	s.adopt(w)
	t := &s.tiers[w.report.Tier]
	if w.report.Full {
		t.gapped, t.wantFull = false, false
		t.unproved, t.fullNs = true, nowNs
	}
	if w.report.HasDigest {
		t.compare(w.report.Digest == got.Digest)
	}
	a := s.answer(nowNs, w.report.Tier)
	if w.report.Route == message.Sync && a.Want == "" {
		a.WantBlocks = got.Wanted
	}
	return a
}

// adopt moves to the epoch and the seq of a report that was applied. What is
// missing may have been about any tier.
func (s *stream) adopt(w *work) {
	if w.epoch != s.epoch {
		if s.epoch != "" {
			s.retired = append(s.retired, s.epoch)
			s.retired = s.retired[max(0, len(s.retired)-retiredMax):]
		}
		s.epoch, s.tiers = w.epoch, [index.Tiers]tierSync{}
	}
	s.seq = w.report.Seq
	s.tiers[w.report.Tier].used = true
	if w.gap {
		s.lose()
	}
}

// lose notes that nobody knows what is missing.
func (s *stream) lose() {
	for i := range s.tiers {
		if t := &s.tiers[i]; t.used {
			t.gapped, t.wantFull = true, true
		}
	}
}

// compare draws the conclusion from two digests. If they differ right after a
// full sync, nothing was lost on the way: our own index could not keep it all,
// so that it knows less than there is but nothing wrong, and asking again and
// again would help nobody.
func (t *tierSync) compare(equal bool) {
	switch {
	case equal:
		t.gapped, t.wantFull, t.unproved, t.fullWaste = false, false, false, 0
	case t.unproved && !t.gapped:
		if !t.wantFull {
			t.wantFull = true
			t.fullWaste++
		}
	default:
		t.gapped, t.wantFull = true, true
	}
}

// failed notes that nobody knows whether the batch of w was applied.
func (s *stream) failed(w *work) {
	if w.report.Minimal() {
		return
	}
	s.adopt(w)
	s.lose()
}

func (s *stream) hear(nowNs int64) { s.heard, s.heardNs = true, nowNs }

// answer is what the reporter of a tier is told.
func (s *stream) answer(nowNs int64, tier index.Tier) message.Answer {
	a := message.Answer{Seq: s.seq}
	if t := &s.tiers[tier]; t.wantFull && (t.gapped || nowNs-t.fullNs >= t.pauseNs()) {
		a.Want = message.WantFull
	}
	return a
}

// pauseNs is how long after a full sync that did not help the next one is asked
// for.
func (t *tierSync) pauseNs() int64 {
	pause := int64(fullEveryNs)
	for i := 1; i < t.fullWaste && pause < fullEveryMax; i++ {
		pause *= 2
	}
	return min(pause, fullEveryMax)
}

// trust says how far the stream's entries can be believed at nowNs: gapped from
// when a report is missing to the next full sync, stale after 15 s without any.
//
// A minimal reporter speaks when something goes: its silence says nothing, and
// neither does what it has not named. What such a node holds is learned from
// what is sent there, and there is no stream to trust.
func (s *stream) trust(nowNs int64) fleet.Trust {
	switch {
	case !s.heard:
		return fleet.TrustCold
	case s.minimal:
		return fleet.TrustNone
	case nowNs-s.heardNs > staleNs:
		return fleet.TrustStale
	case slices.ContainsFunc(s.tiers[:], func(t tierSync) bool { return t.gapped }):
		return fleet.TrustGapped
	default:
		return fleet.TrustLive
	}
}

// wake ends a silence. What was known of a silent node has been given up
// (state, trustSeen), so that all of it is wanted again.
func (s *stream) wake(nowNs int64) {
	if s.trust(nowNs) == fleet.TrustStale {
		s.lose()
	}
}

// heldBytes is the length of the bodies behind parts that wait for others.
func (s *stream) heldBytes() int {
	if s.parts == nil {
		return 0
	}
	return s.parts.bytes
}

// expire forgets a report whose parts stopped coming.
func (s *stream) expire(nowNs int64) {
	if s.parts != nil && nowNs-s.parts.atNs > assemblyNs {
		s.parts = nil
	}
}
