package netlab

import (
	"net"
	"testing"
	"time"
)

func TestLab(t *testing.T) {
	l := New(t)
	address := l.Serve(l.Node, Echo)
	var c net.Conn
	if err := l.Router.In(func() (err error) {
		c, err = net.Dial("tcp", address.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo := func(within time.Duration) error {
		_, _ = c.Write([]byte("x"))
		_ = c.SetReadDeadline(time.Now().Add(within))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	if err := echo(5 * time.Second); err != nil {
		t.Error(err)
	}
	l.Lose(1000)
	if echo(100*time.Millisecond) == nil {
		t.Error("an answer from a dead host")
	}
	l.Lose(0)
	if err := echo(5 * time.Second); err != nil {
		t.Error(err)
	}
	if _, err := net.DialTimeout("tcp", address.String(), 50*time.Millisecond); err == nil {
		t.Error("the lab can be reached from outside")
	}
}
