package discover

import (
	"context"

	"warmpath/controlplane/state"
)

// Owned is the source of the nodes that the scaler asked for. Until it was told of
// them it says nothing: what a process that was taken over from had of them stands.
type Owned struct{ holder }

// NewOwned returns an empty source.
func NewOwned() *Owned { return &Owned{newHolder()} }

// Name is state.ScalerSource.
func (o *Owned) Name() string { return state.ScalerSource }

// Run implements Source.
func (o *Owned) Run(ctx context.Context, to Listener) error {
	select {
	case <-ctx.Done():
		return nil
	case <-o.changed:
	}
	return o.run(ctx, to)
}

// Replace swaps the whole set. A node whose spec is not valid is left out, and is in
// the error, which joins all of them. It may be called by any goroutine.
func (o *Owned) Replace(nodes []state.Spec) error {
	checked, err := checkAll(nodes)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.store(checked)
	return err
}
