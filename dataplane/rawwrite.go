package dataplane

import (
	"unsafe"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// writeBoth writes head and body, either of which may be empty, to c in one
// system call where it can be one. It goes round the Go scheduler's bookkeeping
// of system calls, which costs more than the loop's other work on a small
// request: the socket is non-blocking, so the call cannot hold up the thread.
// What the kernel does not take, and every error, goes to gnet, which buffers
// or closes: the connection may be closed on return. Neither slice is kept.
func (l *loop) writeBoth(c gnet.Conn, head, body []byte) {
	sent := 0
	if c.OutboundBuffered() == 0 {
		sent = rawWritev(c.Fd(), head, body)
	}
	switch {
	case sent == len(head)+len(body):
	case sent >= len(head):
		_, _ = c.Write(body[sent-len(head):])
	case len(body) == 0:
		_, _ = c.Write(head[sent:])
	default:
		l.vec[0], l.vec[1] = head[sent:], body
		_, _ = c.Writev(l.vec[:])
		l.vec[0], l.vec[1] = nil, nil
	}
}

// rawWritev returns how many bytes the kernel took; 0 on any error.
func rawWritev(fd int, head, body []byte) int {
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
	if errno != 0 {
		return 0
	}
	return int(n)
}
