package controlplane

import (
	"slices"
	"testing"

	"warmpath/dataplane"
	"warmpath/scaler"
)

// What the data plane counts by and what the scaler reads by are written down twice,
// as neither may import the other.
func TestBoundsAgree(t *testing.T) {
	if !slices.Equal(dataplane.UncachedBounds, scaler.TokenBounds) {
		t.Errorf("uncached tokens are counted by %v and read by %v", dataplane.UncachedBounds, scaler.TokenBounds)
	}
	if !slices.Equal(dataplane.TTFTBounds, scaler.TTFTBounds) {
		t.Errorf("times to first tokens are counted by %v and read by %v", dataplane.TTFTBounds, scaler.TTFTBounds)
	}
}
