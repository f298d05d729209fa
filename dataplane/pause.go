package dataplane

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"golang.org/x/sys/unix"
)

// pauser stops and restarts reading of one connection of a loop. gnet has no
// back-pressure: what a handler does not consume it buffers without bound, and
// so does it with what a slow peer does not take. The way out is to change the
// events of the connection in the loop's own epoll set, whose descriptor gnet
// keeps to itself; it is read by reflection once a loop, checked at start.
//
// gnet itself asks for readability again when a write to the same connection
// was partial or has drained; a paused connection may therefore be woken by
// one read buffer more, which is why pause is called again after each such
// write.
type pauser struct{ epoll int }

// newPauser finds the epoll descriptor of loop and proves on c, any open
// connection of that loop, that it can be used.
func newPauser(loop gnet.EventLoop, c gnet.Conn) (p pauser, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("gnet's event loop has no field poller.fd as v2.10.0 has: pin that version")
		}
	}()
	fd := reflect.ValueOf(loop).Elem().FieldByName("poller").Elem().FieldByName("fd").Int()
	p = pauser{epoll: int(fd)}
	if err := p.pause(c, false); err != nil {
		return p, fmt.Errorf("pause reading in gnet's epoll set: %w", err)
	}
	return p, p.resume(c)
}

// pause stops reading. What the peer still sends stays in the kernel, whose
// window then closes. hangup says whether the peer's leaving should still be
// seen at once: right for clients, whose half-close counts as leaving, wrong
// for nodes, whose last bytes may wait unread behind it.
func (p pauser) pause(c gnet.Conn, hangup bool) error {
	if hangup {
		return p.set(c, unix.EPOLLRDHUP)
	}
	return p.set(c, 0)
}

// resume restarts reading with the events that gnet itself uses.
func (p pauser) resume(c gnet.Conn) error { return p.set(c, netpoll.ReadEvents) }

func (p pauser) set(c gnet.Conn, events uint32) error {
	if c.OutboundBuffered() > 0 {
		events |= netpoll.WriteEvents // keep draining what it has to send
	}
	return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_MOD, c.Fd(), &unix.EpollEvent{Events: events, Fd: int32(c.Fd())})
}
