package dataplane

import "math/bits"

// buffers is a loop's store of empty buffers for bodies. What was given last is
// taken first: of all free memory it is the likeliest to lie in a cache still.
// Loop-owned; the zero value is ready.
type buffers struct {
	free  [bufferClasses][][]byte
	bytes int // of all that are free
}

// A class is a quarter of the way from one power of two to the next, so that a
// buffer is at most a quarter larger than what was asked for.
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

// take returns an empty buffer for that many bytes, or for least bytes where
// none of the larger is free.
func (b *buffers) take(bytes, least int64) []byte {
	class, _ := bufferClass(bytes)
	if class >= 0 {
		if n := len(b.free[class]); n > 0 {
			buffer := b.free[class][n-1]
			b.free[class][n-1] = nil
			b.free[class] = b.free[class][:n-1]
			b.bytes -= cap(buffer)
			return buffer
		}
	}
	if least < bytes {
		return b.take(least, least)
	}
	_, size := bufferClass(bytes)
	return make([]byte, 0, size)
}

// give keeps a buffer that nobody uses any more, within bounds. It may be nil.
func (b *buffers) give(buffer []byte) {
	class, size := bufferClass(int64(cap(buffer)))
	if class < 0 || size != int64(cap(buffer)) || b.bytes+cap(buffer) > keptBodiesBytes {
		return
	}
	b.bytes += cap(buffer)
	b.free[class] = append(b.free[class], buffer[:0])
}
