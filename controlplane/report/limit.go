package report

import (
	"net"
	"sync"
	"sync/atomic"
)

// connectionsMax bounds the connections of all reporters: descriptors belong to
// requests first.
const connectionsMax = 2048

// limited closes connections beyond a number as soon as they come.
type limited struct {
	net.Listener
	open atomic.Int64
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= connectionsMax {
			return &counted{Conn: c, of: l}, nil
		}
		l.open.Add(-1)
		_ = c.Close()
	}
}

// counted is a connection that gives its place back, once.
type counted struct {
	net.Conn
	of   *limited
	once sync.Once
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.once.Do(func() { c.of.open.Add(-1) })
	return c.Conn.Close()
}
