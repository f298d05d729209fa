package eventloop

import (
	"net"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Conn is one connection of a loop. Its zero value is closed; Loop.Add and
// Loop.Connect open it. Loop-owned.
type Conn struct {
	loop    *Loop
	handler Handler
	fd      int
	mark    int32 // no other connection of the loop has it
	open    bool

	connecting bool
	readable   bool // an edge has come, and Read has not found it dry since
	ended      bool // nothing comes behind what is there but io.EOF, or why the connection failed
	finished   bool // … of which it is io.EOF: the peer had said so before anything failed
	mute       bool // writing has failed
	paused     bool
	waited     bool           // what is there may have come during a pause
	fresh      bool           // … which what was read last did not
	called     bool           // stands in ready
	address    netip.AddrPort // of Connect
	failure    error          // found before what came ahead of it was read

	kept []byte // what waits for the peer: our copy …
	from int    // … of which so much has gone,
	lent []byte // and behind it what the writer has lent
}

// Open reports whether c is neither closed nor yet to be opened.
func (c *Conn) Open() bool { return c.open }

// FD returns the descriptor, valid while c is open.
func (c *Conn) FD() int { return c.fd }

// Read reads once into b. It returns 0 and no error when nothing is there now:
// Readable comes again. At the end of what the peer sends it returns io.EOF.
// The connection stays open on every error.
func (c *Conn) Read(b []byte) (n int, err error) {
	for {
		n, errno := rawRead(c.fd, b)
		if errno != unix.EINTR {
			return c.took(n, len(b), errno)
		}
	}
}

// More reports whether reading on may give something.
func (c *Conn) More() bool { return c.open && c.readable && !c.paused }

// Pause stops calls of Readable: what the peer sends stays in the kernel, whose
// window then closes.
func (c *Conn) Pause() { c.paused = true }

// Paused reports whether c is paused.
func (c *Conn) Paused() bool { return c.paused }

// Resume ends a pause. What has come meanwhile is told of soon, not from within.
func (c *Conn) Resume() {
	if !c.paused {
		return
	}
	c.paused, c.waited = false, c.readable
	c.again()
}

// Fresh reports whether what was read last came just now: it has not waited for
// the end of a pause, so that it says something of the peer as it is.
func (c *Conn) Fresh() bool { return c.fresh }

// Over reports whether the peer is known to have ended its sending direction, or
// the connection to have failed, though that may not have been read yet.
func (c *Conn) Over() bool { return c.ended }

// Failure returns why writing failed, or what Ended told of; nil = neither.
func (c *Conn) Failure() error { return c.failure }

// Mute reports whether writing to a connection made by Connect has failed: what is
// written is dropped, and reading gives what the peer has sent before, then why.
func (c *Conn) Mute() bool { return c.mute }

// again has Readable called in the next turn if there is something to read.
func (c *Conn) again() {
	if c.More() && !c.called {
		c.called = true
		c.loop.ready = append(c.loop.ready, c)
	}
}

// Write sends head and body, either of which may be empty, in one system call
// where it can be one. What the socket does not take is copied, and goes out as
// it can. On an error the connection is closed and Closed has run on return; one
// made by Connect is Mute instead, as the peer may have answered before it went.
func (c *Conn) Write(head, body []byte) { c.send(head, body, false) }

// WriteLent is Write, but what is left of body is not copied: it is the
// connection's until Pending is 0 or c is closed, and must not change.
func (c *Conn) WriteLent(head, body []byte) { c.send(head, body, true) }

// Pending returns how many bytes wait for the peer's socket to take them.
func (c *Conn) Pending() int { return len(c.kept) - c.from + len(c.lent) }

// Lent returns how many of the pending bytes are lent.
func (c *Conn) Lent() int { return len(c.lent) }

func (c *Conn) send(head, body []byte, lend bool) {
	if !c.open || c.mute || len(head)+len(body) == 0 {
		return
	}
	sent := 0
	if c.Pending() == 0 && !c.connecting {
		n, errno := rawWrite(c.fd, head, body)
		if errno != 0 && errno != unix.EAGAIN {
			c.writeFailed(errno)
			return
		}
		if sent = n; sent == len(head)+len(body) {
			return
		}
	}
	if sent < len(head) {
		c.keep(head[sent:])
		sent = 0
	} else {
		sent -= len(head)
	}
	if body = body[sent:]; lend && len(c.lent) == 0 {
		c.lent = body
	} else {
		c.keep(body)
	}
}

// keep copies bytes behind what waits.
func (c *Conn) keep(b []byte) {
	if len(b) == 0 {
		return
	}
	if len(c.lent) > 0 { // order: what was lent goes first
		lent := c.lent
		c.lent = nil
		c.keep(lent)
	}
	if c.kept == nil {
		c.kept = c.loop.buffer(len(b))
	}
	if c.from > 0 && len(c.kept)+len(b) > cap(c.kept) {
		c.kept = c.kept[:copy(c.kept, c.kept[c.from:])]
		c.from = 0
	}
	c.kept = append(c.kept, b...)
}

// drain goes on with what waits.
func (c *Conn) drain() {
	n, errno := rawWrite(c.fd, c.kept[c.from:], c.lent)
	if errno != 0 {
		if errno == unix.EAGAIN {
			return
		}
		if c.writeFailed(errno); c.open {
			c.handler.Drained(c)
		}
		return
	}
	kept := min(n, len(c.kept)-c.from)
	c.from += kept
	c.lent = c.lent[n-kept:]
	if c.from == len(c.kept) && c.kept != nil {
		c.loop.giveBack(c.kept)
		c.kept, c.from = nil, 0
	}
	if c.Pending() == 0 {
		c.lent = nil
		c.handler.Drained(c)
	}
}

// writeFailed ends an accepted connection, whose peer will take no answer. Of one
// that was made by Connect the answer may be there: a server that answers early and
// closes resets it with our bytes unread (RFC 9112, section 9.6). The error is kept,
// as the kernel tells it once.
func (c *Conn) writeFailed(errno unix.Errno) {
	if !c.address.IsValid() {
		c.end(errno)
		return
	}
	c.failed(errno)
	c.loop.giveBack(c.kept)
	c.kept, c.lent, c.from = nil, nil, 0
	c.mute, c.ended, c.readable = true, true, true
	c.again()
}

// why returns why c has failed, nil if its end is a clean one.
func (c *Conn) why() error {
	if c.failure == nil {
		if number, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && number != 0 {
			c.failed(unix.Errno(number)) // the kernel has forgotten it now
		}
	}
	return c.failure
}

// failed keeps why c has failed, the first time. EPIPE is what a reset makes of a
// connection whose peer had ended it cleanly before (tcp_reset, net/ipv4/tcp_input.c):
// that end is what stands behind the bytes.
func (c *Conn) failed(errno unix.Errno) {
	if c.failure == nil {
		c.failure = errno
		c.finished = c.finished || errno == unix.EPIPE
	}
}

// arrived says that there is something to read: bytes, the end, or a failure.
// A failure too is behind the bytes that came before it (tcp_recvmsg, net/ipv4/tcp.c).
func (c *Conn) arrived(events uint32) {
	c.readable = true
	over := events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0
	c.finished = c.finished || events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) == unix.EPOLLRDHUP
	c.ended = c.ended || over
	switch {
	case !c.paused:
		if events&unix.EPOLLIN != 0 && !over { // there may be more that waited, but something came just now
			c.waited = false
		}
		c.handler.Readable(c)
		if c.open && c.paused && c.ended { // nothing will tell of it again
			c.handler.Ended(c, c.why())
		}
		c.again()
	case over:
		c.handler.Ended(c, c.why())
	default:
		c.handler.Waits(c)
	}
}

// connected reports whether connecting has succeeded.
func (c *Conn) connected() bool {
	number, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && number != 0 {
		err = unix.Errno(number)
	}
	if err != nil {
		c.end(&ConnectError{c.address, err})
		return false
	}
	c.connecting = false
	if c.handler.Connected(c); c.open && c.Pending() > 0 {
		c.drain()
	}
	return true
}

// Connecting reports whether Connect has not come to an end yet.
func (c *Conn) Connecting() bool { return c.connecting }

// ShutdownWrite ends our sending direction. What waits is not waited for.
func (c *Conn) ShutdownWrite() error { return unix.Shutdown(c.fd, unix.SHUT_WR) }

// Close closes c at once; what waits for the peer is lost.
func (c *Conn) Close() { c.end(nil) }

// Fail closes c for a reason, such as what Read returned.
func (c *Conn) Fail(err error) { c.end(err) }

// Abort closes c with a reset, so that the peer cannot take what it got for the
// whole.
func (c *Conn) Abort() {
	if c.open {
		_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		c.end(nil)
	}
}

func (c *Conn) end(err error) {
	if !c.open {
		return
	}
	c.open, c.readable = false, false
	c.loop.conns[c.fd] = nil
	c.loop.open--
	_ = unix.Close(c.fd) // takes it out of the poller too, as nobody has a copy
	c.loop.giveBack(c.kept)
	c.kept, c.lent, c.from = nil, nil, 0
	c.handler.Closed(c, err)
}

// Untaken returns how many bytes of what was written the peer has not
// acknowledged, as far as the kernel can say.
func (c *Conn) Untaken() int {
	unsent, err := unix.IoctlGetInt(c.fd, unix.SIOCOUTQ)
	if err != nil {
		unsent = 0
	}
	return c.Pending() + unsent
}

// Quiet reports whether nothing waits to be read: neither bytes nor the end.
// What comes later cannot be told from an answer.
func (c *Conn) Quiet() bool {
	var b [1]byte
	_, _, err := unix.Recvfrom(c.fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == unix.EAGAIN
}

// rawRead and rawWrite go round the Go scheduler's bookkeeping of system calls,
// which costs more than the rest of a small request. The sockets are
// non-blocking, so a call cannot hold up the thread.

func rawRead(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// rawWrite returns how many bytes the kernel took: 0 with an error.
func rawWrite(fd int, head, body []byte) (int, unix.Errno) {
	if len(head) == 0 {
		head, body = body, nil
	}
	for {
		var n uintptr
		var errno unix.Errno
		if len(body) == 0 {
			n, _, errno = unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(head))), uintptr(len(head)))
		} else {
			iov := [2]unix.Iovec{{Base: unsafe.SliceData(head)}, {Base: unsafe.SliceData(body)}}
			iov[0].SetLen(len(head))
			iov[1].SetLen(len(body))
			n, _, errno = unix.RawSyscall(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&iov)), uintptr(len(iov)))
		}
		switch errno {
		case 0:
			return int(n), 0
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// zone turns the zone of a link-local address into its number.
func zone(a netip.Addr) uint32 {
	if a.Zone() == "" {
		return 0
	}
	if n, err := strconv.ParseUint(a.Zone(), 10, 32); err == nil {
		return uint32(n)
	}
	if i, err := net.InterfaceByName(a.Zone()); err == nil {
		return uint32(i.Index)
	}
	return 0
}
