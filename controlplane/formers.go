package controlplane

import (
	"errors"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// formers are the processes that this one, or one before it, took over from, until they
// have ended: what they have under way at nodes is counted nowhere else.
type formers struct {
	mu   sync.Mutex
	held []former // guarded by mu
}

// former is one of them. Its pid may be somebody else's once it has ended; its pidfd
// never is.
type former struct {
	pid   int
	pidfd int // -1 = the kernel gives none
}

// SetFormers says which processes may have requests under way from before this one. Each
// is remembered until it has ended.
func (c *ControlPlane) SetFormers(pids []int) {
	c.formers.add(pids)
}

// add remembers those that have not ended.
func (f *formers) add(pids []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pid := range pids {
		if pid <= 0 || pid == os.Getpid() || slices.ContainsFunc(f.held, func(h former) bool { return h.pid == pid }) {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == nil:
			f.held = append(f.held, former{pid, fd})
		case errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT):
			// It has ended, or what has its number now is a thread.
		default: // an old kernel, a sandbox, no descriptor left
			f.held = append(f.held, former{pid, -1})
		}
	}
}

// running returns those that have not ended, and forgets the others.
func (f *formers) running() (pids []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = slices.DeleteFunc(f.held, func(h former) bool {
		ended := h.ended()
		if ended {
			h.close()
		}
		return ended
	})
	for _, h := range f.held {
		pids = append(pids, h.pid)
	}
	return pids
}

// forget ends asking.
func (f *formers) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.held {
		h.close()
	}
	f.held = nil
}

// ended reports whether the process has ended. Where that cannot be told it has not.
func (h *former) ended() bool {
	if h.pidfd < 0 {
		return errors.Is(unix.Kill(h.pid, 0), unix.ESRCH)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.pidfd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}

func (h *former) close() {
	if h.pidfd >= 0 {
		_ = unix.Close(h.pidfd)
	}
}
