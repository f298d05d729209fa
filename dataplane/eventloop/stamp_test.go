package eventloop

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stamped makes a connection over loopback that is stamped, and its peer.
func stamped(t testing.TB) (*Conn, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	c := &Conn{}
	if err := l.Connect(c, ln.Addr().(*net.TCPAddr).AddrPort(), &ignore{}, func(fd int) {
		if err := Stamp(fd); err != nil {
			t.Fatal(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); _ = peer.Close() })
	return c, peer
}

type ignore struct{}

func (ignore) Readable(*Conn)      {}
func (ignore) Drained(*Conn)       {}
func (ignore) Connected(*Conn)     {}
func (ignore) Waits(*Conn)         {}
func (ignore) Ended(*Conn, error)  {}
func (ignore) Closed(*Conn, error) {}

// here waits until something can be read of c.
func here(t testing.TB, c *Conn) {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}
	for n := 0; n == 0; {
		var err error
		if n, err = unix.Poll(p, 5000); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

// TestReadStamped: what lay in the socket for a while is told apart from what came
// just now.
func TestReadStamped(t *testing.T) {
	c, peer := stamped(t)
	b := make([]byte, 16)
	const lies = 50 * time.Millisecond
	for end := time.Now().Add(5 * time.Second); ; { // the kernel begins to keep times a moment after it was told to
		_, _ = peer.Write([]byte("late"))
		here(t, c)
		<-time.After(lies)
		n, ago, err := c.ReadStamped(b)
		if n != 4 || err != nil {
			t.Fatalf("read %d bytes, %v", n, err)
		}
		if ago >= lies && ago < 20*lies {
			break
		}
		if ago != 0 || time.Now().After(end) {
			t.Fatalf("what lay there for %v is said to have come %v ago", lies, ago)
		}
	}
	if n, ago, err := c.ReadStamped(b); n != 0 || ago != 0 || err != nil {
		t.Errorf("of nothing %d bytes came %v ago, %v", n, ago, err)
	}
	_, _ = peer.Write([]byte("soon"))
	here(t, c)
	if n, ago, err := c.ReadStamped(b); n != 4 || ago <= 0 || ago > lies || err != nil {
		t.Errorf("%d bytes came %v ago, %v", n, ago, err)
	}
	_ = peer.Close()
	here(t, c)
	if n, _, err := c.ReadStamped(b); n != 0 || err == nil {
		t.Errorf("at the end %d bytes, %v", n, err)
	}
}

func TestReadStampedAllocatesNothing(t *testing.T) {
	c, peer := stamped(t)
	b := make([]byte, 1)
	_, _ = peer.Write(make([]byte, 200))
	here(t, c)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = c.ReadStamped(b) }); n != 0 {
		t.Errorf("a read costs %v allocations", n)
	}
}

// BenchmarkRead is what a time stamp costs a read of 100 bytes that lie there.
func BenchmarkRead(b *testing.B) {
	for name, read := range map[string]func(*Conn, []byte) (int, error){
		"plain":   func(c *Conn, to []byte) (int, error) { return c.Read(to) },
		"stamped": func(c *Conn, to []byte) (int, error) { n, _, err := c.ReadStamped(to); return n, err },
	} {
		b.Run(name, func(b *testing.B) {
			c, peer := stamped(b)
			fd, err := peer.(*net.TCPConn).File()
			if err != nil {
				b.Fatal(err)
			}
			defer fd.Close()
			const reads, bytes = 400, 100
			from, to := make([]byte, reads*bytes), make([]byte, bytes)
			for b.Loop() {
				b.StopTimer()
				_, _ = rawWrite(int(fd.Fd()), from, nil)
				here(b, c)
				b.StartTimer()
				for got := 0; got < len(from); {
					n, err := read(c, to)
					if err != nil {
						b.Fatal(err)
					}
					got += n
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*reads), "ns/read")
		})
	}
}
