package report

import (
	"context"
	"errors"
	"testing"

	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
)

// The index's own writer is a Writer.
var _ Writer = (*index.Writer)(nil)

// doer runs functions at once, for a tenant or not, or says why it does not.
type doer struct {
	tenant bool
	err    error
}

func (d doer) Do(_ context.Context, _ int, _ uint32, do func(bool)) error {
	if d.err == nil {
		do(d.tenant)
	}
	return d.err
}

func TestOn(t *testing.T) {
	x := newTwin()
	p := NewPlacer(x, func(string) (uint64, int) { return 7, 16 })
	b := &Batch{Stored: []message.Block{{Hash: 1, Tokens: make([]uint32, 16), BlockTokens: 16}}}
	if got, err := On(doer{tenant: true}, p).Apply(t.Context(), b); err != nil || got.Digest.Count != 1 {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := On(doer{}, p).Apply(t.Context(), b); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if _, err := On(doer{err: context.DeadlineExceeded}, p).Apply(t.Context(), b); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if len(x.blocks[shelf{}]) != 1 || x.blocks[shelf{}][1].refs != 1 {
		t.Error("what was not for this tenant was applied")
	}
}
