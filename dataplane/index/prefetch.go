//go:build (amd64 || arm64) && !purego

package index

import "unsafe"

// lines are addresses of cache lines that will be needed soon.
type lines [batch]unsafe.Pointer

// prefetch asks for the first n lines, at most all, and does not wait for them,
// as a load would: a processor retires loads in order, so a few that miss its
// caches fill its window and what follows them no longer runs ahead. A line may
// be nil; that costs as much as another.
//
//go:noescape
func prefetch(l *lines, n int)
