package dataplane_test

import (
	"syscall"
	"testing"
)

// shrinkQueue makes a listener's accept queue hold one connection.
func shrinkQueue(t *testing.T, raw syscall.RawConn) {
	t.Helper()
	var err error
	if e := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
}
