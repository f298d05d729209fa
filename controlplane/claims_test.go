package controlplane

import (
	"errors"
	"slices"
	"testing"
	"time"

	"warmpath/scaler"
)

// A claim that is not made again ends, and with it the waiting for its nodes.
func TestClaimsEnd(t *testing.T) {
	var c claims
	now := time.Now()
	if err := c.take(scaler.Claim{ID: "1", Fleet: "f", Model: "m", May: true}, now); err != nil {
		t.Fatal(err)
	}
	c.setOwn(true)
	if got := c.coming("own"); !slices.Equal(got, []string{"own", "m"}) {
		t.Errorf("coming: %q", got)
	}
	later := now.Add(scaler.ClaimSeconds*time.Second - 1)
	if c.expire(later) || c.take(scaler.Claim{ID: "2", Fleet: "f"}, later) == nil {
		t.Error("it ended early")
	}
	later = later.Add(1)
	if err := c.take(scaler.Claim{ID: "2", Fleet: "f"}, later); err != nil {
		t.Errorf("it has not ended: %v", err)
	}
	if !c.expire(later) || c.expire(later) {
		t.Error("it was not dropped once")
	}
	if got := c.coming("own"); !slices.Equal(got, []string{"own"}) {
		t.Errorf("coming: %q", got)
	}
	twin := scaler.Claim{ID: "2", Process: "copy", Fleet: "f"}
	if err := c.take(twin, later); !errors.Is(err, ErrTwin) {
		t.Errorf("a process with the same journal: %v", err)
	}
	_ = c.take(scaler.Claim{ID: "2", Fleet: "f", May: true, Ends: true}, later)
	if c.take(twin, later) != nil || c.take(scaler.Claim{ID: "2", Fleet: "f"}, later) == nil {
		t.Error("the end of the process before was not heard")
	}
	later = later.Add(scaler.TwinSeconds * time.Second)
	if err := c.take(scaler.Claim{ID: "2", Fleet: "f"}, later); err != nil {
		t.Errorf("the process before was killed: %v", err)
	}
	for i := range 2 * mostClaims {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26))
		_ = c.take(scaler.Claim{ID: name, Fleet: name, Model: name}, later.Add(time.Hour))
	}
	if len(c.held) > mostClaims {
		t.Errorf("%d claims are kept", len(c.held))
	}
}
