package kernel

import (
	"testing"

	"warmpath/dataplane/fleet"
)

// A node where nothing happens is read seldom, once its connections are gone, and at
// once again when something does.
func TestQuietNodes(t *testing.T) {
	tenant, n := &fleet.Node{Load: &fleet.Load{}}, &node{}
	for i := range quietAfter {
		if n.mayWait(tenant, false) {
			t.Fatalf("waits after %d reads", i)
		}
	}
	if !n.mayWait(tenant, false) || n.mayWait(tenant, true) {
		t.Error("a quiet node is read but when it is its turn")
	}
	tenant.Load.Requests.Add(1)
	for range 2 * quietAfter {
		if n.mayWait(tenant, false) {
			t.Fatal("a node with a request waits")
		}
	}
	tenant.Load.Requests.Add(-1)
	tenant.Load.Successes.Add(1)
	for i := range quietAfter + 1 {
		if n.mayWait(tenant, false) {
			t.Fatalf("waits %d reads after its last request", i)
		}
	}
	if !n.mayWait(tenant, false) {
		t.Error("it never waits again")
	}
}
