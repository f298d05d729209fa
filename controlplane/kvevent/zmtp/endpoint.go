package zmtp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// keepAlive finds peers that vanished without a word in 25 s: an engine may
// rightly be silent for hours.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// address turns an endpoint into what package net wants. A host of "*" means
// all interfaces.
func address(endpoint string) (network, addr string, err error) {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	switch {
	case ok && scheme == "ipc" && rest != "":
		return "unix", rest, nil
	case ok && scheme == "tcp":
		host, port, err := net.SplitHostPort(rest)
		if _, number := strconv.ParseUint(port, 10, 16); err == nil && number == nil {
			if host == "*" {
				host = ""
			}
			return "tcp", net.JoinHostPort(host, port), nil
		}
	}
	return "", "", fmt.Errorf("endpoint %q: want tcp://host:port or ipc://path", endpoint)
}

// CheckEndpoint says what is wrong with an endpoint's form.
func CheckEndpoint(endpoint string) error {
	_, _, err := address(endpoint)
	return err
}

// ForRank is the endpoint of a data-parallel rank: the port is raised by rank,
// as vLLM and SGLang do. Other transports have no ranks but 0; port 0 (any)
// stays.
func ForRank(endpoint string, rank int) (string, error) {
	if rank == 0 || endpoint == "" {
		return endpoint, nil
	}
	network, addr, err := address(endpoint)
	if err != nil {
		return "", err
	}
	if network != "tcp" {
		return "", fmt.Errorf("endpoint %q: rank %d needs a tcp endpoint, whose port it raises", endpoint, rank)
	}
	host, port, _ := net.SplitHostPort(addr) // address has checked it
	number, _ := strconv.Atoi(port)
	if number == 0 {
		return endpoint, nil
	}
	if number += rank; rank < 0 || number > 65535 {
		return "", fmt.Errorf("endpoint %q: rank %d has no port: ports end at 65535", endpoint, rank)
	}
	if host == "" {
		host = "*"
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// Dial connects and greets. ctx ends it early.
func Dial(ctx context.Context, endpoint string, o Options) (*Conn, error) {
	network, addr, err := address(endpoint)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: o.HandshakeTimeout, KeepAliveConfig: keepAlive}
	stream, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := newConn(stream, o)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	return c, nil
}

// Listener is a bound socket.
type Listener struct {
	listener net.Listener
	options  Options
}

// Listen binds an endpoint. A unix socket that a dead process left behind is
// removed.
func Listen(ctx context.Context, endpoint string, o Options) (*Listener, error) {
	network, addr, err := address(endpoint)
	if err != nil {
		return nil, err
	}
	bind := o.Bind
	if bind == nil {
		var config net.ListenConfig
		bind = config.Listen
	}
	l, err := bind(ctx, network, addr)
	if err != nil && network == "unix" && abandoned(addr) {
		_ = os.Remove(addr) // the next attempt tells if it could not be
		l, err = bind(ctx, network, addr)
	}
	if err != nil {
		return nil, err
	}
	return &Listener{l, o}, nil
}

// abandoned reports whether nobody listens on a unix socket that exists.
func abandoned(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Accept returns the next connection, which is not greeted yet: call Handshake
// on a goroutine of its own, so that a silent peer holds up nobody.
func (l *Listener) Accept() (*Conn, error) {
	stream, err := l.listener.Accept()
	if err != nil {
		return nil, err
	}
	if tcp, ok := stream.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // a connection that has ended says so by itself
	}
	return newConn(stream, l.options), nil
}

// Addr is the bound address.
func (l *Listener) Addr() net.Addr { return l.listener.Addr() }

// Close ends listening; an Accept that waits returns net.ErrClosed.
func (l *Listener) Close() error { return l.listener.Close() }

// IsWildcard reports whether an endpoint has no host to dial.
func IsWildcard(endpoint string) bool {
	network, addr, err := address(endpoint)
	if err != nil || network != "tcp" {
		return false
	}
	host, _, _ := net.SplitHostPort(addr) // address has checked it
	return host == "" || host == "0.0.0.0" || host == "::"
}
