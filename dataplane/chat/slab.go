package chat

import "unsafe"

// slab gives out slices of T that live until reset. Once it has seen the
// largest use it holds one chunk and allocates no more.
type slab[T any] struct {
	chunks [][]T // the last one is being used; the others are full
	used   int   // of the last chunk
	taken  int   // of all chunks, in elements
}

const (
	slabFirst = 4 << 10  // bytes of the first chunk
	slabKeep  = 16 << 20 // bytes that a slab keeps over a reset
	stackKeep = 4 << 10  // elements that a stack keeps over a reset
)

// size returns the bytes of one element.
func (s *slab[T]) size() int {
	var t T
	return int(unsafe.Sizeof(t))
}

// held returns the bytes of memory that the slab keeps.
func (s *slab[T]) held() int {
	n := 0
	for _, c := range s.chunks {
		n += len(c)
	}
	return n * s.size()
}

// take returns n zero elements, with no capacity beyond them.
func (s *slab[T]) take(n int) []T {
	if n == 0 {
		return nil
	}
	if len(s.chunks) == 0 || len(s.chunks[len(s.chunks)-1])-s.used < n {
		s.chunks = append(s.chunks, make([]T, max(n, slabFirst/s.size(), s.taken)))
		s.used = 0
	}
	chunk := s.chunks[len(s.chunks)-1]
	s.used += n
	s.taken += n
	return chunk[s.used-n : s.used : s.used]
}

// extend returns old with n zero elements added: in place if old was the last
// to be taken, so that nobody can have the memory behind it, else in a copy.
func (s *slab[T]) extend(old []T, n int) []T {
	if len(old) > 0 && n > 0 && len(s.chunks) > 0 {
		chunk := s.chunks[len(s.chunks)-1]
		if s.used >= len(old) && &chunk[s.used-1] == &old[len(old)-1] && len(chunk)-s.used >= n {
			start := s.used - len(old)
			s.used += n
			s.taken += n
			return chunk[start:s.used:s.used]
		}
	}
	grown := s.take(len(old) + n)
	copy(grown, old)
	return grown
}

// release gives back the last n elements of a slice that was the last to be
// taken, if it still is.
func (s *slab[T]) release(last []T, n int) {
	if n == 0 || len(last) < n {
		return
	}
	chunk := s.chunks[len(s.chunks)-1]
	if s.used >= n && &chunk[s.used-1] == &last[len(last)-1] {
		clear(chunk[s.used-n : s.used])
		s.used -= n
		s.taken -= n
	}
}

// reset takes everything back. What lay there is cleared, for it may hold on
// to the body of a request.
func (s *slab[T]) reset() {
	if len(s.chunks) == 0 {
		return
	}
	if len(s.chunks) == 1 && len(s.chunks[0])*s.size() <= slabKeep {
		clear(s.chunks[0][:s.used])
	} else {
		var all int
		for _, c := range s.chunks {
			all += len(c)
		}
		clear(s.chunks)
		s.chunks = s.chunks[:0]
		if all*s.size() <= slabKeep {
			s.chunks = append(s.chunks, make([]T, all))
		}
	}
	s.used, s.taken = 0, 0
}
