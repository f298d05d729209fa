package backend

import "testing"

// TestLive: each connection is looked at in its turn, whoever comes and goes.
func TestLive(t *testing.T) {
	var v Live
	conns := make([]*Conn, 5)
	for i := range conns {
		conns[i] = &Conn{Slot: 2}
		v.Add(conns[i])
		v.Add(conns[i]) // another socket of the same
	}
	v.Add(&Conn{Slot: 0})
	if v.Of(2) != 5 || v.Of(0) != 1 || v.Of(1) != 0 || v.Of(9) != 0 {
		t.Fatalf("%d, %d, %d connections", v.Of(2), v.Of(0), v.Of(1))
	}
	v.Remove(conns[1])
	v.Remove(conns[1])
	v.Remove(conns[4])
	seen := map[*Conn]int{}
	for range 2 * v.Of(2) {
		seen[v.Next(2)]++
	}
	if len(seen) != 3 || seen[conns[0]] != 2 || seen[conns[2]] != 2 || seen[conns[3]] != 2 {
		t.Errorf("seen %v", seen)
	}
	for _, c := range conns {
		v.Remove(c)
	}
	if v.Of(2) != 0 {
		t.Errorf("%d connections are left", v.Of(2))
	}
}
