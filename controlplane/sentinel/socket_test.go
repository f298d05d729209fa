package sentinel

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// becomes looks at a socket until it is as wanted.
func becomes(t *testing.T, s Socket, want Answer) {
	t.Helper()
	deadline := time.After(5 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for got := s.Look(); got != want; got = s.Look() {
		select {
		case <-deadline:
			t.Fatalf("the answer is %d, want %d", got, want)
		case <-tick.C:
		}
	}
}

// Over real sockets: the kernel answers, then the program, if there is one.
func TestSocket(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(ln.Addr().String())
	s, err := open(at)
	if err != nil {
		t.Fatal(err)
	}
	becomes(t, s, Answered) // nobody accepts
	if s.Look() != Answered {
		t.Error("it was taken by nobody")
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the program read %d bytes, %v; want the end at once", n, err)
	}
	if _, err := c.Write([]byte("a greeting")); err != nil {
		t.Error(err)
	}
	_ = c.Close()
	becomes(t, s, Ended)
	s.Close()

	_ = ln.Close()
	if s, err = open(at); err != nil {
		return // refused at once
	}
	becomes(t, s, Refused)
	s.Close()
}
