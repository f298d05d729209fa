package report

import (
	"errors"
	"net"
	"testing"
)

// pipes is a listener whose connections are pipes, as many as there are in it.
type pipes struct {
	net.Listener
	left int
}

func (p *pipes) Accept() (net.Conn, error) {
	if p.left--; p.left < 0 {
		return nil, errors.New("no more")
	}
	a, _ := net.Pipe()
	return a, nil
}

func TestConnectionsBound(t *testing.T) {
	l := &limited{Listener: &pipes{left: connectionsMax + 5}}
	var last net.Conn
	for range connectionsMax {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		last = c
	}
	if _, err := l.Accept(); err == nil || l.open.Load() != connectionsMax {
		t.Errorf("one beyond the bound was taken: %v, %d open", err, l.open.Load())
	}
	_ = last.Close()
	_ = last.Close()
	l.Listener = &pipes{left: 1}
	if _, err := l.Accept(); err != nil || l.open.Load() != connectionsMax {
		t.Errorf("the place of a closed one: %v, %d open", err, l.open.Load())
	}
}
