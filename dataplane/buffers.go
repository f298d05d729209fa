package dataplane

import "math/bits"

// buffers is a loop's store of empty buffers for bodies. What was given last is
// taken first: of all free memory it is the likeliest to lie in a cache still.
// Loop-owned; the zero value is ready.
type buffers struct {
	free  [bufferClasses][][]byte
	bytes int // of all that are free
}

// From the least class on, a class is a quarter of the way from one power of two to
// the next, so that a buffer is at most a quarter larger than what was asked for.
const (
	leastBufferBits = 10
	mostBufferBits  = 20
	bufferClasses   = 4*(mostBufferBits-leastBufferBits) + 1
)

// bufferClass returns the smallest class whose buffers hold so many bytes, and
// how long those are. Of more than keptBodyBytes there is no class: -1.
func bufferClass(bytes int64) (class int, size int64) {
	if bytes <= 1<<leastBufferBits {
		return 0, 1 << leastBufferBits
	}
	if bytes > keptBodyBytes {
		return -1, bytes
	}
	power := bits.Len64(uint64(bytes-1)) - 1 // 2^power < bytes ≤ 2^(power+1)
	quarter := int64(1) << (power - 2)
	n := (bytes - 1 - 1<<power) >> (power - 2) // whole quarters beyond 2^power, below bytes
	return 4*(power-leastBufferBits) + int(n) + 1, 1<<power + (n+1)*quarter
}

// take returns an empty buffer for that many bytes; for least bytes, which are no
// more, where none of the larger is free.
func (b *buffers) take(bytes, least int64) []byte {
	for _, n := range [...]int64{bytes, least} {
		if class, _ := bufferClass(n); class >= 0 && len(b.free[class]) > 0 {
			return b.pop(class)
		}
	}
	_, size := bufferClass(least)
	return make([]byte, 0, size)
}

func (b *buffers) pop(class int) []byte {
	last := len(b.free[class]) - 1
	buffer := b.free[class][last]
	b.free[class][last] = nil
	b.free[class] = b.free[class][:last]
	b.bytes -= cap(buffer)
	return buffer
}

// give keeps a buffer that nobody uses any more. It may be nil. Where too much is
// free already, buffers of the lengths that have most of it go for it: what a load
// that has passed left behind does not stay in the way of another.
func (b *buffers) give(buffer []byte) {
	class, size := bufferClass(int64(cap(buffer)))
	if class < 0 || size != int64(cap(buffer)) {
		return
	}
	for b.bytes+cap(buffer) > keptBodiesBytes {
		b.pop(b.fullest())
	}
	b.bytes += cap(buffer)
	b.free[class] = append(b.free[class], buffer[:0])
}

// fullest returns the class whose free buffers have most bytes.
func (b *buffers) fullest() (class int) {
	most := 0
	for i, free := range b.free {
		if len(free) > 0 && len(free)*cap(free[0]) > most {
			class, most = i, len(free)*cap(free[0])
		}
	}
	return class
}
