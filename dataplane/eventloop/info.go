package eventloop

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Info reads TCP_INFO of c (tcp(7)). It reports false when there is none to be
// had: c is not open. What an older kernel does not tell is zero. bytes is how much
// of it this kernel tells.
func (c *Conn) Info(into *unix.TCPInfo) (bytes int, ok bool) {
	if !c.open {
		return 0, false
	}
	*into = unix.TCPInfo{}
	size := uint32(unsafe.Sizeof(*into))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(c.fd), unix.IPPROTO_TCP, unix.TCP_INFO,
		uintptr(unsafe.Pointer(into)), uintptr(unsafe.Pointer(&size)), 0)
	return int(size), errno == 0
}
