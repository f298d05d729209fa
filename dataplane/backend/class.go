package backend

import (
	"errors"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Class says how a try at a node ended; what may be done next follows from it
// alone. It is data, so that no code matches error texts.
type Class uint8

const (
	// OK: the node gave an answer.
	OK Class = iota
	// Refused: no connection could be made; nothing was sent.
	Refused
	// Stale: a reused connection was closed before a byte of an answer came.
	// Nodes close idle connections whenever they like (uvicorn after 5 s), so
	// this says nothing about the node's health.
	Stale
	// Reset: a fresh connection ended before an answer came.
	Reset
	// Malformed: the answer was not HTTP that may be passed on.
	Malformed
	// Status: the node answered 500, 502, 503 or 504.
	Status
	// ErrorEvent: the first event of a 200 stream was an error.
	ErrorEvent
	// Silent: the head or the first event did not come in time.
	Silent
	// Dead: the node was found dead while the request waited there.
	Dead
	// MidStream: the node failed after bytes of its answer went to the client.
	MidStream
	// Local: this host could not connect (no descriptors, ports or memory); the
	// node is not to blame, and another node would not fare better.
	Local
	// Deadline: the request took longer than it may; the node is not to blame.
	Deadline
	// ClientGone: the client left; the node is not to blame.
	ClientGone
	// Outrun: the request was at two nodes, and the other one's answer was taken;
	// the node is not to blame.
	Outrun

	classes // their number
)

// Classes is the number of classes, for tables by class.
const Classes = int(classes)

var classNames = [...]string{"ok", "refused", "stale", "reset", "malformed", "status", "error_event", "silent", "dead", "mid_stream", "local", "deadline", "client_gone", "outrun"}

// String returns the value of the label `reason` of warmpath_retries_total.
func (c Class) String() string { return classNames[c] }

// Blames reports whether the class counts as a failure of the node.
func (c Class) Blames() bool {
	switch c {
	case OK, Stale, Local, Deadline, ClientGone, Outrun:
		return false
	default:
		return true
	}
}

// Lost reports whether the node died under the request, as opposed to giving
// a bad answer or none. A request lost to a dead node moves once without
// asking the retry budget.
func (c Class) Lost() bool { return c == Refused || c == Stale || c == Reset || c == Dead }

// Retryable reports whether another node may be tried, provided that no byte
// has gone to the client.
func (c Class) Retryable() bool {
	switch c {
	case Refused, Stale, Reset, Malformed, Status, ErrorEvent, Silent, Dead:
		return true
	default:
		return false
	}
}

// ClientStatus is the status a client gets when a request ended in class c and
// nothing else can be tried (design, section 11).
func (c Class) ClientStatus() int {
	switch c {
	case Silent, Deadline:
		return 504
	case Local:
		return 503
	default:
		return 502
	}
}

// DialClass says what a failure to connect means. Running out of descriptors,
// memory or ports is this host's fault; all else is the node's or the way's to it.
func DialClass(err error) Class {
	for _, own := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EAGAIN, syscall.ENOSPC,
	} {
		if errors.Is(err, own) {
			return Local
		}
	}
	// A look-up says only in words why it could not ask (net.DNSError).
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) && !dns.IsNotFound && noSocket() {
		return Local
	}
	return Refused
}

// FromPeer reports whether it was the node's host that ended a connection, or
// refused it: that is a sign of life, which a time-out is not.
func FromPeer(err error) bool {
	for _, said := range []error{io.EOF, syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE} {
		if errors.Is(err, said) {
			return true
		}
	}
	return false
}

// noSocket reports whether this host has none left.
func noSocket() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOBUFS || err == unix.ENOMEM
}
