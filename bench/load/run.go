package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"runtime"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"warmpath/bench/load/stamp"
)

// spareDescriptors are what the rest of the process may need.
const spareDescriptors = 64

// Run sends requests as o says and returns what it measured. It returns
// *OptionsError when o cannot be used. When ctx ends early it returns what was
// measured until then, with an error that wraps the context's. Failed requests
// are no error of Run: they are in the report.
//
// While it runs, GOMAXPROCS is at least 2: with no spare processor the runtime
// takes the loop's away in every wait. So measure with one Run at a time.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	l := &loop{o: o, t: newTally(), buf: make([]byte, readBytes), timeoutNs: int64(o.Timeout)}
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, &OptionsError{fmt.Errorf("check URL: %w", err)}
	}
	if err := l.target.resolve(ctx, u); err != nil {
		return nil, err
	}
	l.requests = buildRequests(u, &o)
	if l.most, err = descriptors(&o); err != nil {
		return nil, err
	}
	if l.poll, err = newPoller(); err != nil {
		return nil, fmt.Errorf("make epoll instance: %w", err)
	}
	defer l.poll.close()
	wake, err := newWaker(l.poll)
	if err != nil {
		return nil, fmt.Errorf("make event descriptor: %w", err)
	}
	defer wake.close()
	defer context.AfterFunc(ctx, wake.wake)()

	if before := runtime.GOMAXPROCS(0); before < 2 {
		runtime.GOMAXPROCS(2)
		defer runtime.GOMAXPROCS(before)
	}
	ended := make(chan error, 1)
	go func() {
		// The thread is given back as it was, because its end would be that of
		// processes that it started and that are to die with their parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0: its default
		l.start()
		ended <- l.run()
	}()
	if err := <-ended; err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return l.report(), fmt.Errorf("measure load: ended early: %w", err)
	}
	return l.report(), nil
}

// start fixes the times of the run.
func (l *loop) start() {
	l.now = stamp.Now()
	l.open = l.now + int64(l.o.Warmup)
	l.shut = l.open + int64(l.o.Duration)
	l.t.lastEnd = l.open
	if l.o.Rate > 0 {
		l.arrivals = newArrivals(&l.o, l.now, l.shut)
		return
	}
	const perConnection = 25_000 // ns, where there is no warm-up: 40000 a second
	spread := max(int64(l.o.Warmup)/2, int64(l.o.Concurrency)*perConnection)
	l.starts = newStarts(l.o.Concurrency, l.now, spread)
}

// buildRequests writes head and body of each request.
func buildRequests(u *url.URL, o *Options) [][]byte {
	path := u.RequestURI()
	if len(o.Bodies) > 0 && (u.Path == "" || u.Path == "/") {
		path = "/v1/chat/completions"
	}
	bodies, method := o.Bodies, "POST"
	if len(bodies) == 0 {
		bodies, method = [][]byte{nil}, "GET"
	}
	names := make([]string, 0, len(o.Headers))
	for name := range o.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	requests := make([][]byte, len(bodies))
	for i, body := range bodies {
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: warmbench\r\n", method, path, u.Host)
		if o.Stream {
			b.WriteString("Accept: text/event-stream\r\n")
		}
		for _, name := range names {
			fmt.Fprintf(&b, "%s: %s\r\n", name, o.Headers[name])
		}
		if body != nil {
			fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
		}
		b.WriteString("\r\n")
		b.Write(body)
		requests[i] = b.Bytes()
	}
	return requests
}

// descriptors raises the process's bound of open files where that is needed and
// allowed, and returns how many connections may be open.
func descriptors(o *Options) (int, error) {
	want := uint64(o.MaxConnections + spareDescriptors)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read limit of open files: %w", err)
	}
	if limit.Cur >= want {
		return o.MaxConnections, nil
	}
	raised := unix.Rlimit{Cur: want, Max: max(limit.Max, want)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
		return o.MaxConnections, nil
	}
	if limit.Max > limit.Cur {
		raised = unix.Rlimit{Cur: limit.Max, Max: limit.Max}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
			limit = raised
		}
	}
	if o.Rate == 0 || limit.Cur <= 2*spareDescriptors {
		return 0, fmt.Errorf("open %d connections: this process may have %d open files; raise it with ulimit -n", o.MaxConnections, limit.Cur)
	}
	return min(o.MaxConnections, int(limit.Cur)-spareDescriptors), nil
}

// target is where connections go.
type target struct {
	address unix.Sockaddr
	family  int
	local   bool // on this host, by IPv4
}

// resolve looks the host up, once for the run.
func (t *target) resolve(ctx context.Context, u *url.URL) error {
	port := 80
	if p := u.Port(); p != "" {
		var err error
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return &OptionsError{fmt.Errorf("check URL port %q: use 1 to 65535", p)}
		}
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return fmt.Errorf("look up host %q: %w", u.Hostname(), err)
	}
	if len(addresses) == 0 {
		return errors.New("look up host " + strconv.Quote(u.Hostname()) + ": it has no address")
	}
	address := addresses[0].Unmap()
	for _, a := range addresses { // most servers listen on IPv4 at least
		if a.Unmap().Is4() {
			address = a.Unmap()
			break
		}
	}
	t.set(address, port)
	return nil
}

func (t *target) set(address netip.Addr, port int) {
	if address.Is4() {
		t.family, t.local = unix.AF_INET, address.IsLoopback()
		t.address = &unix.SockaddrInet4{Port: port, Addr: address.As4()}
		return
	}
	t.family = unix.AF_INET6
	t.address = &unix.SockaddrInet6{Port: port, Addr: address.As16()}
}

// dial begins a connection; unix.EINPROGRESS says that it will come about later.
// An address has some 28000 local ports, and when half of them are taken the
// kernel searches long for each further one; so on loopback each 5000 connections
// have an address of their own.
func (t *target) dial(slot int) (fd int, err error) {
	const perAddress = 5_000
	fd, err = unix.Socket(t.family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) // without it small requests only wait longer
	if group := slot / perAddress; t.local && group > 0 {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
		from := &unix.SockaddrInet4{Addr: [4]byte{127, 1, byte(group >> 8), byte(group)}}
		if err := unix.Bind(fd, from); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
	}
	if err = unix.Connect(fd, t.address); err != nil && err != unix.EINPROGRESS {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, err
}

// waker ends the loop's wait from another goroutine.
type waker struct{ fd int }

func newWaker(p *poller) (*waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	if err := p.add(fd, unix.EPOLLIN, wakeSlot, 0); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return &waker{fd: fd}, nil
}

func (w *waker) wake() { _, _ = unix.Write(w.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (w *waker) close() { _ = unix.Close(w.fd) }
