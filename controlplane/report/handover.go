package report

import (
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

// Saved is what another process needs of one rank's reports in order to go on
// with them, besides what the index holds of the rank. Times are before now.
type Saved struct {
	Epoch    string                 `json:"epoch"` // "" = none heard
	Retired  []string               `json:"retired,omitempty"`
	Seq      uint64                 `json:"seq"` // highest applied in Epoch
	HeardNs  int64                  `json:"heard_ns"`
	Minimal  bool                   `json:"minimal"`
	Tiers    [index.Tiers]SavedTier `json:"tiers"`
	Unplaced bool                   `json:"unplaced"` // the rank has blocks that the index has not
}

// SavedTier is how far the index agrees with one tier of the node.
type SavedTier struct {
	Used      bool  `json:"used"`
	Gapped    bool  `json:"gapped"`
	WantFull  bool  `json:"want_full"`
	Unproved  bool  `json:"unproved"`
	FullNs    int64 `json:"full_ns"`
	FullWaste int   `json:"full_waste"`
}

// save returns the state of the stream, false if nothing was heard.
func (s *stream) save(nowNs int64) (Saved, bool) {
	if !s.heard {
		return Saved{}, false
	}
	saved := Saved{Epoch: s.epoch, Retired: s.retired, Seq: s.seq, HeardNs: nowNs - s.heardNs, Minimal: s.minimal}
	for i, t := range s.tiers {
		saved.Tiers[i] = SavedTier{t.used, t.gapped, t.wantFull, t.unproved, nowNs - t.fullNs, t.fullWaste}
	}
	return saved, true
}

// restored is a stream that goes on from what another one has saved. What waited
// for its other parts is sent again. Where blocks are missing that the index had
// no place for, all is asked for again.
func restored(nowNs int64, to *Target, saved *Saved) *stream {
	s := &stream{
		to: *to, epoch: saved.Epoch, retired: saved.Retired, seq: saved.Seq,
		heard: true, heardNs: nowNs - max(saved.HeardNs, 0), minimal: saved.Minimal,
	}
	for i, t := range saved.Tiers {
		s.tiers[i] = tierSync{t.Used, t.Gapped, t.WantFull, t.Unproved, nowNs - max(t.FullNs, 0), max(t.FullWaste, 0)}
	}
	if saved.Unplaced {
		s.lose()
	}
	return s
}

// Held are the reports of a worker that wait.
type Held struct {
	s    *Server
	of   *worker
	name string
}

// Hold makes the reports of a worker wait until Release, so that what was applied
// and what Save returns are of one moment. One that is under way is applied
// first.
func (s *Server) Hold(worker string) *Held {
	of := s.workerOf(worker)
	of.mu.Lock()
	return &Held{s, of, worker}
}

// Save returns the state of one rank's reports, false if there were none.
func (h *Held) Save(rank int) (Saved, bool) {
	st := h.of.streams[rank]
	if st == nil {
		return Saved{}, false
	}
	return st.save(h.s.opt.NowNs())
}

// Release ends the wait. moved says that another process takes the worker's
// reports from now on: here they are refused, to be sent again.
func (h *Held) Release(moved bool) {
	h.of.moved = moved
	h.of.mu.Unlock()
}

// Restore goes on with a rank's reports where another process was. The index
// holds what it had. It returns how far that is to be trusted; the error is the
// Directory's.
func (s *Server) Restore(worker string, rank int, saved Saved) (fleet.Trust, error) {
	to, err := s.opt.Directory.Find(worker, "")
	if err != nil {
		return fleet.TrustNone, err
	}
	w := s.workerOf(worker)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams[rank] = restored(s.opt.NowNs(), &to, &saved)
	s.tell(w, worker, rank, true)
	return w.told[rank].trust, nil
}

// Unplaced reports whether a slot has blocks beside the index.
func (p *Placer) Unplaced(slot int) bool {
	for tier := range index.Tier(index.Tiers) {
		if a := p.aside[shelf{slot, tier}]; a != nil && len(a.entries) > 0 {
			return true
		}
	}
	return false
}

// Adopt takes up prompts of a node with a minimal reporter that another process
// has named: the index holds them, and a report may take them away by their
// names. It returns how many it holds.
func (p *Placer) Adopt(slot int, r *index.Run) (taken int) {
	each := len(r.Units) / max(1, len(r.Blocks))
	known := p.promptsOf(slot)
	for i, name := range r.Blocks {
		is, gone := known.note(name, r.Units[i*each:(i+1)*each])
		if gone != nil {
			p.hold(slot, gone, false)
		}
		if p.hold(slot, is, true); is.held {
			taken++
		}
	}
	return taken
}

func (p *Placer) promptsOf(slot int) *prompts {
	known := p.prompts[slot]
	if known == nil {
		known = newPrompts(promptsMax)
		p.prompts[slot] = known
	}
	return known
}
