package dataplane

import (
	"testing"

	"warmpath/dataplane/wire"
)

// TestBufferClasses: each length has the least class that holds it, no more than a
// quarter too large, and each class is the one of its own length.
func TestBufferClasses(t *testing.T) {
	before, beforeSize := 0, int64(0)
	for n := int64(1); n <= keptBodyBytes; n++ {
		class, size := bufferClass(n)
		switch {
		case size < n, n > 1<<leastBufferBits && size-n > n/4:
			t.Fatalf("%d bytes get a buffer of %d", n, size)
		case class < before, class > before+1, (class == before) != (size == beforeSize) && before+class > 0:
			t.Fatalf("%d bytes have class %d of %d bytes, behind class %d of %d", n, class, size, before, beforeSize)
		}
		if own, ownSize := bufferClass(size); own != class || ownSize != size {
			t.Fatalf("class %d of %d bytes has itself the class %d of %d", class, size, own, ownSize)
		}
		before, beforeSize = class, size
	}
	if before != bufferClasses-1 {
		t.Errorf("the last class is %d of %d", before, bufferClasses)
	}
	if class, size := bufferClass(keptBodyBytes + 1); class != -1 || size != keptBodyBytes+1 {
		t.Errorf("one byte more than the largest has class %d of %d bytes", class, size)
	}
}

func TestBuffersTakeAndGive(t *testing.T) {
	var b buffers
	first, second := b.take(5000, 5000), b.take(5000, 5000)
	if len(first) != 0 || cap(first) != 5<<10 {
		t.Fatalf("5,000 bytes get a buffer of %d in %d", len(first), cap(first))
	}
	b.give(first[:100])
	b.give(second)
	b.give(nil)
	b.give(make([]byte, 5001)) // of no class
	if b.bytes != 2*5<<10 {
		t.Fatalf("%d bytes are free", b.bytes)
	}
	if got := b.take(4999, 1); &got[:1][0] != &second[:1][0] || len(got) != 0 {
		t.Error("what was given last is not taken first")
	}
	if got := b.take(100_000, 4900); &got[:1][0] != &first[:1][0] {
		t.Error("where none of the larger is free, the least is not taken")
	}
	b.give(b.take(100_000, 100_000))
	if got := b.take(100_000, 10); cap(got) < 100_000 || b.bytes != 0 {
		t.Errorf("a free larger one is not taken: %d bytes, %d free", cap(got), b.bytes)
	}
}

// TestBuffersBound: what is free stays within its bound, and a load that has passed
// does not stay in the way of another.
func TestBuffersBound(t *testing.T) {
	var b buffers
	for range keptBodiesBytes/keptBodyBytes + 3 {
		b.give(make([]byte, keptBodyBytes))
		if b.bytes > keptBodiesBytes {
			t.Fatalf("%d bytes are free, at most %d are allowed", b.bytes, keptBodiesBytes)
		}
	}
	small := b.take(4096, 4096)
	b.give(small)
	if got := b.take(4096, 4096); &got[:1][0] != &small[:1][0] {
		t.Error("large buffers that nobody needs keep a small one out")
	}
	if n := keptBodiesBytes - b.bytes; n != keptBodyBytes {
		t.Errorf("%d bytes went for 4096", n)
	}
}

// TestBodiesGrowInProportion: a body of unknown length that comes byte by byte is
// copied a few times over, not once a byte.
func TestBodiesGrowInProportion(t *testing.T) {
	var l loop
	x := &exchange{}
	x.req.Body = wire.BodyChunked
	grown, at := 0, (*byte)(nil)
	for range 5 << 20 {
		l.keepBody(x, []byte{'x'})
		if now := &x.data[0]; now != at {
			grown, at = grown+1, now
		}
	}
	if len(x.data) != 5<<20 || grown > 50 {
		t.Errorf("%d bytes, moved %d times", len(x.data), grown)
	}
}
