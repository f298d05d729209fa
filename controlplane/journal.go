package controlplane

import (
	"context"
	"sync"

	"warmpath/controlplane/takeover"
	"warmpath/dataplane"
)

// journalBytes bounds what is kept of requests for a successor that is not ready
// yet: a second of ten thousand requests with 8,000 tokens each.
const journalBytes = 64 << 20

// journal keeps the notes of ranks that were exported, and sends them when the
// successor hears.
type journal struct {
	nowNs func() int64

	mu      sync.Mutex
	fetched int // ranks
	ranks   map[int]journalRank
	frames  []byte
	lost    int
	wake    chan struct{} // there are frames
}

// journalRank is whose notes are kept, by slot.
type journalRank struct {
	generation uint32
	number     int // of the Fetch
}

func newJournal(nowNs func() int64) *journal {
	return &journal{nowNs: nowNs, ranks: map[int]journalRank{}, wake: make(chan struct{}, 1)}
}

// next numbers a Fetch.
func (j *journal) next() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fetched++
	return j.fetched - 1
}

// keep begins to keep the notes of a slot's tenant.
func (j *journal) keep(slot int, generation uint32, number int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ranks[slot] = journalRank{generation, number}
}

// note keeps a note. It is called on the indexer's goroutine.
func (j *journal) note(n dataplane.Note) {
	j.mu.Lock()
	defer j.mu.Unlock()
	rank, kept := j.ranks[n.Slot]
	if !kept || rank.generation != n.Generation {
		return
	}
	ok := len(j.frames) < journalBytes
	if ok {
		j.frames, ok = takeover.AppendNote(j.frames, &takeover.Note{
			Fetch: rank.number, Kind: n.Kind, AheadNs: n.AtNs - j.nowNs(), Chain: n.Chain, IDs: n.IDs,
		})
	}
	if !ok {
		j.lost++
		return
	}
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// dropped is how many notes there was no room for.
func (j *journal) dropped() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lost
}

// send hands out what is kept, and what comes, until ctx ends.
func (j *journal) send(ctx context.Context, emit func(frames []byte) error) error {
	var spare []byte
	for {
		j.mu.Lock()
		frames := j.frames
		j.frames = spare[:0]
		j.mu.Unlock()
		if len(frames) > 0 {
			if err := emit(frames); err != nil {
				return err
			}
			spare = frames
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-j.wake:
		}
	}
}
