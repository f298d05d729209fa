package dataplane

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"
)

// lack says once that this host lacks something, and once that it has not for
// a while. Its methods may be called by any goroutine.
type lack struct {
	log          *slog.Logger
	begins, ends string
	after        time.Duration // without it, it is over
	on           atomic.Bool
	heal         *time.Timer
}

func (s *lack) init(log *slog.Logger, after time.Duration, begins, ends string) {
	s.log, s.after, s.begins, s.ends = log, after, begins, ends
	s.heal = time.AfterFunc(after, s.healed)
}

// seen takes one failure for want of something.
func (s *lack) seen(err error) {
	if !s.on.Swap(true) {
		s.log.Error(s.begins, "err", err, "remedy", lackRemedy(err))
	}
	s.heal.Reset(s.after)
}

func (s *lack) healed() {
	if s.on.Swap(false) {
		s.log.Info(s.ends, "without_failure_for", s.after)
	}
}

func (s *lack) stop() { s.heal.Stop() }

func lackRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "raise RLIMIT_NOFILE or lower limits.connections"
	case errors.Is(err, syscall.ENFILE):
		return "raise fs.file-max"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "widen net.ipv4.ip_local_port_range"
	default:
		return "free kernel memory"
	}
}
