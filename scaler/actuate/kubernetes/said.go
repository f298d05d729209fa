package kubernetes

import (
	"context"
	"log/slog"
	"maps"
	"time"
)

const (
	// quiet is how long something must not have happened to be worth saying again.
	quiet = 10 * time.Minute
	// mostSaid bounds what is told apart: some words change each time, as a port does.
	mostSaid = 16
)

// said is what was logged, and when it last happened.
type said map[string]time.Time

// again reports whether that was said before, or cannot be kept.
func (s said) again(words string, now time.Time) bool {
	maps.DeleteFunc(s, func(_ string, last time.Time) bool { return now.Sub(last) >= quiet })
	_, known := s[words]
	if !known && len(s) >= mostSaid {
		return true
	}
	s[words] = now
	return known
}

// say logs a failure once for each cause, however often it is met: lists are asked for
// every few seconds.
func (a *Actuator) say(level slog.Level, what string, err error) {
	a.mu.Lock()
	again := a.said.again(what+": "+err.Error(), time.Now())
	a.mu.Unlock()
	if again {
		level = slog.LevelDebug
	}
	a.opt.Log.Log(context.Background(), level, what, "workload", a.name(), "err", err)
}
