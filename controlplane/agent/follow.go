package agent

import (
	"context"

	"warmpath/controlplane/kvevent"
)

// FromEngine is the Source of an engine's event port. from is that of rank 0.
func FromEngine(from kvevent.Source) Source {
	return func(ctx context.Context, rank int, to Sink) error {
		f := &follower{to: to}
		at := from
		at.Rank = rank
		s, err := kvevent.NewSubscriber(at, f.deliver)
		if err != nil {
			return err
		}
		s.Run(ctx)
		return nil
	}
}

// follower tells a Sink what a Subscriber delivers.
type follower struct {
	to      Sink
	decoder kvevent.Decoder
	begun   bool
	seq     uint64 // of the latest batch
	trust   kvevent.Trust
}

// deliver always has room. A sequence number that is not above the one before
// is another engine process's: replays bring none twice.
func (f *follower) deliver(d kvevent.Delivery) bool {
	defer d.Release()
	if d.Clear {
		f.to.Void()
	}
	if d.Payload != nil {
		f.batch(d)
	}
	if d.Trust != f.trust {
		f.trust = d.Trust
		f.to.Trust(d.Trust)
	}
	return true
}

func (f *follower) batch(d kvevent.Delivery) {
	if b := d.Decode(&f.decoder); b != nil {
		if f.begun && d.Seq <= f.seq {
			f.to.Restarted()
		}
		f.begun, f.seq = true, d.Seq
		f.to.Events(b)
	}
}
