package eventloop

import (
	"io"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stamp is what one recvmsg(2) needs besides the bytes. Loop-owned.
type stamp struct {
	message unix.Msghdr
	bytes   unix.Iovec
	control [unix.SizeofCmsghdr + 3*16]byte // struct scm_timestamping: three times, of which the first is the kernel's own
}

// Stamp has the kernel keep with each packet for a socket when it came in
// (SO_TIMESTAMPING), for ReadStamped.
func Stamp(fd int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_RX_SOFTWARE|unix.SOF_TIMESTAMPING_SOFTWARE)
}

// ReadStamped is Read, and also says how long ago the last of what was read came
// in, 0 if that is not known.
func (c *Conn) ReadStamped(b []byte) (n int, ago time.Duration, err error) {
	s := &c.loop.stamp
	s.bytes.Base = unsafe.SliceData(b)
	s.bytes.SetLen(len(b))
	s.message = unix.Msghdr{Iov: &s.bytes, Control: &s.control[0]}
	s.message.SetIovlen(1)
	s.message.SetControllen(len(s.control))
	for {
		got, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(c.fd), uintptr(unsafe.Pointer(&s.message)), 0)
		if errno == unix.EINTR {
			continue
		}
		n, err := c.took(int(got), len(b), errno)
		if n > 0 {
			ago = s.ago()
		}
		return n, ago, err
	}
}

// ago reads how long ago it was by the clock of the day, which may have been set
// since: then it is not known.
func (s *stamp) ago() time.Duration {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&s.control[0]))
	if int(s.message.Controllen) < len(s.control) || h.Level != unix.SOL_SOCKET || h.Type != unix.SCM_TIMESTAMPING {
		return 0
	}
	at := (*unix.Timespec)(unsafe.Pointer(&s.control[unix.SizeofCmsghdr]))
	if at.Sec == 0 && at.Nsec == 0 { // it came before the kernel began to keep times
		return 0
	}
	if ago := time.Duration(time.Now().UnixNano() - at.Nano()); ago > 0 && ago < agoMost {
		return ago
	}
	return 0
}

// agoMost is more than what a packet ever waits to be read: what is older was not.
const agoMost = 10 * time.Second

// took judges what a system call gave that read into a buffer of so many bytes.
func (c *Conn) took(n, room int, errno unix.Errno) (int, error) {
	c.fresh = !c.waited
	switch {
	case errno == unix.EAGAIN && c.mute:
		return 0, c.failure
	case errno == unix.EAGAIN:
		c.readable, c.waited = false, false
		return 0, nil
	case errno != 0:
		return 0, errno
	case n == 0 && c.failure != nil && !c.finished:
		return 0, c.failure
	case n == 0:
		return 0, io.EOF
	}
	// Less than there was room for: the socket is dry, and the next byte, or
	// the end, makes a new edge (epoll(7), question 9).
	if n < room && !c.ended {
		c.readable, c.waited = false, false
	}
	return n, nil
}
