package load

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The loop's sockets never block, so that the runtime need not hear of these
// calls: that saves a tenth of a microsecond each, and the errors need no
// memory.

func sysRead(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), errno
}

func sysWrite(fd int, p []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return int(n), errno
}

// poller waits for sockets, with a timeout of nanoseconds where the kernel has
// one (Linux 5.11).
type poller struct {
	fd     int
	events [256]unix.EpollEvent
	until  unix.Timespec
	coarse bool // milliseconds only
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	return &poller{fd: fd}, nil
}

// wait returns the sockets that are ready, after timeoutNs at the latest. With a
// coarse kernel it returns up to a millisecond early.
func (p *poller) wait(timeoutNs int64) ([]unix.EpollEvent, error) {
	timeoutNs = max(timeoutNs, 0)
	if !p.coarse {
		p.until = unix.NsecToTimespec(timeoutNs)
		n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])),
			uintptr(len(p.events)), uintptr(unsafe.Pointer(&p.until)), 0, 0)
		switch errno {
		case 0:
			return p.events[:n], nil
		case unix.EINTR:
			return nil, nil
		case unix.ENOSYS, unix.EPERM: // EPERM: a seccomp filter that does not know it
			p.coarse = true
		default:
			return nil, errno
		}
	}
	const most = 1000 // milliseconds: the caller asks again
	n, err := unix.EpollWait(p.fd, p.events[:], int(min(timeoutNs/1e6, most)))
	if err == unix.EINTR {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return p.events[:n], nil
}

// add watches fd; slot and generation come back in the events.
func (p *poller) add(fd int, events uint32, slot, generation int32) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: slot, Pad: generation})
}

func (p *poller) change(fd int, events uint32, slot, generation int32) error {
	return unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: slot, Pad: generation})
}

func (p *poller) close() { _ = unix.Close(p.fd) }
