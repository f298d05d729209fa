package eventloop

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// eventsATurn is how many events one turn takes at most; the others are still
// there in the next.
const eventsATurn = 256

// poller is what a loop waits with: an epoll instance (epoll(7)), and an
// eventfd by which other goroutines end the wait when they have a task for it.
type poller struct {
	epoll, wake int
	events      [eventsATurn]unix.EpollEvent

	parking *os.File        // the epoll instance, as the runtime's poller knows it; nil = it does not
	raw     syscall.RawConn // of parking
	came    int             // events, of the latest park …
	fault   error           // … or why there are none
	arrived func(fd uintptr) bool

	tasks  atomic.Pointer[task] // what was put in last; all behind it in turn
	gate   sync.RWMutex         // held to read by those who put in, to write by who closes
	closed bool
}

// task is an entry of a stack that is put upon one by one, and taken whole.
type task struct {
	run   func()
	below *task
}

func openPoller() (*poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	p := &poller{epoll: epoll, wake: wake}
	// Edge-triggered, each write wakes, and nobody needs to read the eventfd: its
	// count would be full after 2^64 of them.
	if err := p.watch(wake, 0, unix.EPOLLIN); err != nil {
		p.free()
		return nil, err
	}
	p.preparePark()
	return p, nil
}

// preparePark has the runtime's poller watch the epoll instance, which is readable when
// something has happened. Where that fails, park is wait.
func (p *poller) preparePark() {
	fd, err := unix.FcntlInt(uintptr(p.epoll), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return
	}
	if unix.SetNonblock(fd, true) != nil { // which tells os.NewFile to register it
		_ = unix.Close(fd)
		return
	}
	f := os.NewFile(uintptr(fd), "eventloop")
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close()
		return
	}
	p.parking, p.raw = f, raw
	p.arrived = func(uintptr) bool {
		events, err := p.look()
		p.came, p.fault = len(events), err
		return len(events) > 0 || err != nil
	}
}

// watch registers a descriptor, edge-triggered. What is reported of it carries
// the mark.
func (p *poller) watch(fd int, mark int32, events uint32) error {
	e := unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(fd), Pad: mark}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// look returns what has happened by now, which may be nothing. Like rawRead it
// goes round the scheduler's bookkeeping: it does not wait.
func (p *poller) look() ([]unix.EpollEvent, error) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(p.epoll),
		uintptr(unsafe.Pointer(&p.events[0])), eventsATurn, 0, 0, 0)
	return p.happened(int(n), errno)
}

// wait returns what has happened, and waits until something has.
func (p *poller) wait() ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(p.epoll, p.events[:], -1)
	if err != nil {
		return p.happened(n, err.(unix.Errno))
	}
	return p.happened(n, 0)
}

// park is wait, asleep as goroutines sleep and not as a system call. A thread in a long
// system call keeps the runtime's monitor awake for 10 ms, 50 µs a time (sysmon in
// runtime/proc.go), which is most of what a router takes that has nothing to do. Being
// woken takes a little longer.
func (p *poller) park() ([]unix.EpollEvent, error) {
	if p.raw == nil {
		return p.wait()
	}
	if err := p.raw.Read(p.arrived); err != nil {
		return nil, fmt.Errorf("wait for events: %w", err)
	}
	return p.events[:p.came], p.fault
}

func (p *poller) happened(n int, errno unix.Errno) ([]unix.EpollEvent, error) {
	switch errno {
	case 0:
		return p.events[:n], nil
	case unix.EINTR:
		return nil, nil
	}
	return nil, fmt.Errorf("epoll_wait: %w", errno)
}

// put adds a task and wakes the loop, false when the poller is closed. Any
// goroutine may call it.
func (p *poller) put(run func()) bool {
	p.gate.RLock()
	defer p.gate.RUnlock()
	if p.closed {
		return false
	}
	below := p.tasks.Load()
	for t := (&task{run: run, below: below}); !p.tasks.CompareAndSwap(below, t); {
		below = p.tasks.Load()
		t.below = below
	}
	if below == nil { // who finds tasks there knows that it was woken for them
		one := [8]byte{1}
		_, _ = unix.Write(p.wake, one[:])
	}
	return true
}

// take returns the tasks in the order in which they were put in, linked by below.
func (p *poller) take() *task {
	var first *task
	for t := p.tasks.Swap(nil); t != nil; {
		next := t.below
		t.below = first
		first, t = t, next
	}
	return first
}

// close lets no task in any more. Those that are in can still be taken.
func (p *poller) close() {
	p.gate.Lock()
	p.closed = true
	p.gate.Unlock()
}

// free closes the descriptors, behind close.
func (p *poller) free() {
	if p.parking != nil {
		_ = p.parking.Close()
	}
	_ = unix.Close(p.wake)
	_ = unix.Close(p.epoll)
}
