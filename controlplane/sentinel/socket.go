package sentinel

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Answer is what became of a SYN so far.
type Answer uint8

const (
	Waiting     Answer = iota // nothing came
	Answered                  // the node's kernel has answered
	Ended                     // and its program has taken the connection, and ended it
	Refused                   // a reset came: the host is there, and nobody listens
	Unreachable               // somebody on the way says that there is no way
)

// Socket is one SYN.
type Socket interface {
	// Look says what has come. It does not wait.
	Look() Answer
	Close()
}

type socket struct {
	fd        int
	connected bool
}

// open sends a SYN.
func open(at netip.AddrPort) (Socket, error) {
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	family := unix.AF_INET6
	if ip := at.Addr().Unmap(); ip.Is4() {
		to, family = &unix.SockaddrInet4{Port: int(at.Port()), Addr: ip.As4()}, unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil, fmt.Errorf("open sentinel: %w", err)
	}
	if err := unix.Connect(fd, to); err != nil && err != unix.EINPROGRESS {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("send sentinel to %v: %w", at, err)
	}
	return &socket{fd: fd}, nil
}

// Look asks the kernel, so that what has come counts however late this process
// is in asking.
func (s *socket) Look() Answer {
	ask := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
	if s.connected {
		ask[0].Events = unix.POLLIN
	}
	if n, err := unix.Poll(ask[:], 0); n <= 0 || err != nil {
		return s.sofar()
	}
	if s.connected {
		var b [64]byte
		if n, _ := unix.Read(s.fd, b[:]); n > 0 { // a greeting; the end comes behind it
			return Answered
		}
		return Ended
	}
	number, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err == nil && number == 0:
		s.connected = true
		_ = unix.Shutdown(s.fd, unix.SHUT_WR) // its program sees the end as soon as it takes the connection
		return Answered
	case unix.Errno(number) == unix.ECONNREFUSED || unix.Errno(number) == unix.ECONNRESET:
		return Refused
	}
	return Unreachable
}

func (s *socket) sofar() Answer {
	if s.connected {
		return Answered
	}
	return Waiting
}

func (s *socket) Close() { _ = unix.Close(s.fd) }
