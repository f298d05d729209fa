package zmtp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Socket types of our side.
const (
	Sub    = "SUB"
	Dealer = "DEALER"
)

// MaxFrames bounds the frames of one message. Event batches have 3, replayed
// ones up to 4.
const MaxFrames = 16

// Options are the same for all connections of a socket.
type Options struct {
	Type string // Sub or Dealer
	// MaxMessageBytes bounds the frames of one message together.
	MaxMessageBytes int
	// HandshakeTimeout bounds connecting and greeting, and each Send.
	HandshakeTimeout time.Duration
	// Bind opens a Listener's socket; nil is net.ListenConfig's.
	Bind Bind
}

// Bind opens a listening socket, as net.ListenConfig.Listen does.
type Bind func(ctx context.Context, network, address string) (net.Listener, error)

// Conn is one connection. Recv and Send may be called by one goroutine each;
// Close and SetReadDeadline by any.
type Conn struct {
	options Options
	conn    net.Conn
	reader  *bufio.Reader
	header  [8]byte  // of the frame in hand: its length
	buffer  []byte   // frames of the message in hand, one behind the other
	ends    []int    // of the frames in buffer
	frames  [][]byte // handed out by Recv
	out     []byte   // what Send writes
}

// newConn wraps a connected stream that was not greeted yet.
func newConn(stream net.Conn, o Options) *Conn {
	return &Conn{options: o, conn: stream, reader: bufio.NewReaderSize(stream, 64<<10)}
}

// RemoteAddr names the peer for messages.
func (c *Conn) RemoteAddr() string {
	if a := c.conn.RemoteAddr().String(); a != "" && a != "@" {
		return a
	}
	return c.conn.LocalAddr().String() // of a unix socket only the listener has a name
}

// Close ends the connection; a Recv or Send that waits returns net.ErrClosed.
func (c *Conn) Close() error { return c.conn.Close() }

// SetReadDeadline bounds the Recv that waits and all later ones.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.conn.SetReadDeadline(t) }

// Subscribe asks a publisher for the topics with a prefix; "" are all. It is
// sent as a message (RFC 29, ZMTP 3.0): commands are for 3.1.
func (c *Conn) Subscribe(prefix string) error {
	return c.Send(append([]byte{1}, prefix...))
}

// Send writes one message.
func (c *Conn) Send(frames ...[]byte) error {
	c.out = c.out[:0]
	for i, frame := range frames {
		flags := byte(0)
		if i < len(frames)-1 {
			flags = flagMore
		}
		c.out = appendFrame(c.out, flags, frame)
	}
	return c.write(c.out)
}

func (c *Conn) write(b []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.options.HandshakeTimeout)); err != nil {
		return err
	}
	_, err := c.conn.Write(b)
	return err
}

// Recv returns the frames of the next message; they are valid until the next
// call. It returns io.EOF when the peer ended the connection between two
// messages. After any error the connection is of no more use.
func (c *Conn) Recv() ([][]byte, error) {
	c.reuse()
	for {
		start := len(c.buffer)
		flags, err := c.readFrame()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			if err := c.obey(c.buffer[start:]); err != nil {
				return nil, err
			}
			c.buffer = c.buffer[:start]
			continue
		}
		if len(c.ends) == MaxFrames {
			return nil, fmt.Errorf("message of more than %d frames: the peer publishes no event batches", MaxFrames)
		}
		c.ends = append(c.ends, len(c.buffer))
		if flags&flagMore == 0 {
			return c.split(), nil
		}
	}
}

// reuse makes the memory ready for another message, unless it had grown.
func (c *Conn) reuse() {
	if cap(c.buffer) > keepBytes {
		c.buffer = nil
	}
	c.buffer, c.ends, c.frames = c.buffer[:0], c.ends[:0], c.frames[:0]
}

// split cuts the buffer into frames.
func (c *Conn) split() [][]byte {
	start := 0
	for _, end := range c.ends {
		c.frames = append(c.frames, c.buffer[start:end:end])
		start = end
	}
	return c.frames
}

// obey follows a command that came between messages.
func (c *Conn) obey(body []byte) error {
	name, rest, err := command(body)
	if err != nil {
		return err
	}
	switch string(name) {
	case "ERROR":
		return peerError(rest)
	case "PING": // a time to live of two bytes, then what PONG gives back
		if len(rest) < 2 {
			return errors.New("PING without a time to live")
		}
		return c.write(appendFrame(nil, flagCommand, append([]byte("\x04PONG"), rest[2:]...)))
	}
	return nil // commands of later versions
}

// command splits a command into its name and the rest.
func command(body []byte) (name, rest []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return nil, nil, errors.New("command without a name")
	}
	return body[1 : 1+body[0]], body[1+body[0]:], nil
}

// peerError is what an ERROR command says.
func peerError(rest []byte) error {
	if len(rest) > 0 {
		rest = rest[1:min(len(rest), 1+int(rest[0]))]
	}
	return fmt.Errorf("the peer refused the connection: %q", rest)
}
