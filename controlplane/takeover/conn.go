package takeover

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// conn sends and receives frames, and descriptors beside them. One goroutine
// receives and one sends.
type conn struct {
	unix *net.UnixConn
	peer unix.Ucred

	in          []byte // received …
	read        int    // … and taken so far
	rights      []byte // scratch
	descriptors []int  // received and not taken, in order
	out         []byte // scratch
}

const (
	receiveBytes   = 64 << 10 // at a time
	maxDescriptors = 16       // that wait for their frames; each frame has one
)

// errStranger says that the other side belongs to somebody else.
var errStranger = errors.New("it belongs to another user")

// newConn takes a connection, and closes it if the other side is a stranger.
func newConn(c *net.UnixConn) (*conn, error) {
	n := &conn{unix: c, rights: make([]byte, unix.CmsgSpace(4*maxDescriptors))}
	raw, err := c.SyscallConn()
	if err == nil {
		var peer *unix.Ucred
		ctrl := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
		if err = errors.Join(ctrl, err); err == nil {
			n.peer = *peer
			err = checkPeer(peer.Uid, os.Geteuid())
		}
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return n, nil
}

// checkPeer takes the same user, and root.
func checkPeer(uid uint32, own int) error {
	if uid != 0 && int(uid) != own {
		return fmt.Errorf("%w (%d, this process: %d); start both as the same one", errStranger, uid, own)
	}
	return nil
}

func (c *conn) close() {
	_ = c.unix.Close()
	for _, fd := range c.descriptors {
		_ = unix.Close(fd)
	}
	c.descriptors = nil
}

// within bounds all that is done from now on.
func (c *conn) within(d time.Duration) { _ = c.unix.SetDeadline(time.Now().Add(d)) }

// send sends a frame.
func (c *conn) send(kind Kind, body []byte) error {
	c.out = AppendFrame(c.out[:0], kind, body)
	return c.write(c.out)
}

// write sends what AppendFrame has made.
func (c *conn) write(frames []byte) error {
	_, err := c.unix.Write(frames)
	return err
}

// sendValue sends a message.
func (c *conn) sendValue(kind Kind, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	return c.send(kind, b)
}

// sendSocket sends a message with the socket that it names.
func (c *conn) sendSocket(name SocketName, socket syscall.Conn) error {
	b, err := encode(name)
	if err != nil {
		return err
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	frame := AppendFrame(nil, SocketPassed, b)
	// Not through a copy of the descriptor: package os makes a socket blocking
	// when it gives away its number, and the copy is the same socket.
	ctrl := raw.Control(func(fd uintptr) {
		var n int
		if n, _, err = c.unix.WriteMsgUnix(frame, unix.UnixRights(int(fd)), nil); err == nil && n < len(frame) {
			_, err = c.unix.Write(frame[n:])
		}
	})
	return errors.Join(ctrl, err)
}

// receive returns the next frame. Its body is valid until the next call.
func (c *conn) receive() (kind Kind, body []byte, err error) {
	for {
		kind, body, n, err := ParseFrame(c.in[c.read:])
		if err != nil {
			return 0, nil, err
		}
		if n > 0 {
			c.read += n
			return kind, body, nil
		}
		if err := c.more(); err != nil {
			return 0, nil, err
		}
	}
}

// hungUp reports whether the other side sends nothing any more: it has closed the
// connection, or has ended.
func (c *conn) hungUp() (gone bool) {
	raw, err := c.unix.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 0)
		gone = err == nil && n > 0
	})
	return gone || err != nil
}

// more reads what has come, with the descriptors beside it.
func (c *conn) more() error {
	c.in = append(c.in[:0], c.in[c.read:]...)
	c.read = 0
	have := len(c.in)
	c.in = append(c.in, make([]byte, receiveBytes)...)
	n, rights, flags, _, err := c.unix.ReadMsgUnix(c.in[have:], c.rights)
	c.in = c.in[:have+max(n, 0)]
	if rights > 0 {
		err = errors.Join(err, c.takeRights(c.rights[:rights]))
	}
	switch {
	case err != nil:
		return err
	case flags&unix.MSG_CTRUNC != 0:
		return errors.New("descriptors were lost on their way; raise the limit of open ones (LimitNOFILE= of a systemd unit)")
	case n == 0 && have > 0:
		return io.ErrUnexpectedEOF
	case n == 0:
		return io.EOF
	}
	return nil
}

func (c *conn) takeRights(b []byte) error {
	messages, err := unix.ParseSocketControlMessage(b)
	if err != nil {
		return err
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return err
		}
		c.descriptors = append(c.descriptors, fds...)
	}
	if len(c.descriptors) > maxDescriptors {
		return errors.New("more descriptors came than were announced")
	}
	return nil
}

// socket makes a listener of the descriptor that came with the last frame.
func (c *conn) socket() (net.Listener, error) {
	if len(c.descriptors) == 0 {
		return nil, errors.New("no descriptor came with it")
	}
	fd := c.descriptors[0]
	c.descriptors = c.descriptors[1:]
	f := os.NewFile(uintptr(fd), "listening socket")
	defer f.Close()
	if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens != 1 {
		return nil, errors.Join(errors.New("the descriptor is no listening socket"), err)
	}
	return net.FileListener(f)
}
