package eventloop

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// fileConn makes a net.Conn of a descriptor.
func fileConn(t *testing.T, fd int) net.Conn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "peer")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// tcpPair returns the two ends of a TCP connection, ours as a descriptor.
func tcpPair(t *testing.T) (ours int, theirs *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	f, err := accepted.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ours, err = unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(ours, true); err != nil {
		t.Fatal(err)
	}
	return ours, nc.(*net.TCPConn)
}
