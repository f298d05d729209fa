package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// greetingBytes is the length of a greeting (RFC 23): signature, version,
// mechanism, as-server, filler.
const greetingBytes = 64

// peers are the socket types that may be at the other end.
var peers = map[string][]string{
	Sub:    {"PUB", "XPUB"},
	Dealer: {"ROUTER", "DEALER", "REP"},
}

func greeting() []byte {
	g := make([]byte, greetingBytes)
	g[0], g[9], g[10] = 0xFF, 0x7F, 3
	copy(g[12:32], "NULL")
	return g
}

// Handshake greets the peer and learns its socket type. It must succeed before
// anything else is done. After an error the connection is closed.
func (c *Conn) Handshake() error {
	err := c.handshake()
	if err != nil {
		_ = c.Close() // the error in hand says why
		return fmt.Errorf("greet %s: %w", c.RemoteAddr(), err)
	}
	return nil
}

func (c *Conn) handshake() error {
	if err := c.SetReadDeadline(time.Now().Add(c.options.HandshakeTimeout)); err != nil {
		return err
	}
	if err := c.write(greeting()); err != nil {
		return err
	}
	var theirs [greetingBytes]byte
	if _, err := io.ReadFull(c.reader, theirs[:]); err != nil {
		return fmt.Errorf("no ZMTP greeting came: %w", err)
	}
	mechanism := bytes.TrimRight(theirs[12:32], "\x00")
	switch {
	case theirs[0] != 0xFF || theirs[9] != 0x7F:
		return errors.New("what answers is no ZeroMQ socket: check host and port")
	case theirs[10] < 3:
		return fmt.Errorf("the peer speaks ZMTP %d: libzmq 4 or later is needed", theirs[10])
	case string(mechanism) != "NULL":
		return fmt.Errorf("the peer wants the security mechanism %q: only NULL is spoken", mechanism)
	}
	return c.ready()
}

// ready exchanges the READY commands of the NULL mechanism.
func (c *Conn) ready() error {
	body := appendProperty([]byte("\x05READY"), "Socket-Type", c.options.Type)
	if c.options.Type == Dealer {
		body = appendProperty(body, "Identity", "")
	}
	if err := c.write(appendFrame(nil, flagCommand, body)); err != nil {
		return err
	}
	c.reuse()
	flags, err := c.readFrame()
	if err != nil {
		return fmt.Errorf("no READY came: %w", err)
	}
	if flags&flagCommand == 0 {
		return errors.New("a message came before READY")
	}
	name, rest, err := command(c.buffer)
	switch {
	case err != nil:
		return err
	case string(name) == "ERROR":
		return peerError(rest)
	case string(name) != "READY":
		return fmt.Errorf("command %q came instead of READY", name)
	}
	kind, err := property(rest, "socket-type")
	if err != nil {
		return err
	}
	if !slices.Contains(peers[c.options.Type], kind) {
		return fmt.Errorf("the peer is a %s socket, wanted %s: are the event and the replay endpoint swapped?", kind, peers[c.options.Type][0])
	}
	return c.SetReadDeadline(time.Time{})
}

// appendProperty appends one name and value of a READY command.
func appendProperty(dst []byte, name, value string) []byte {
	dst = append(append(dst, byte(len(name))), name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// property finds a value by its name in lower case; names are compared without
// regard to case (RFC 23).
func property(b []byte, name string) (string, error) {
	for len(b) > 0 {
		n := 1 + int(b[0])
		if len(b) < n+4 {
			return "", errors.New("READY is cut short")
		}
		size := uint64(binary.BigEndian.Uint32(b[n:]))
		if uint64(len(b)-n-4) < size {
			return "", errors.New("READY is cut short")
		}
		value := b[n+4 : n+4+int(size)]
		if string(bytes.ToLower(b[1:n])) == name {
			return string(value), nil
		}
		b = b[n+4+int(size):]
	}
	return "", fmt.Errorf("READY has no %s", name)
}
