package index

import (
	"math"
	"math/bits"
	"unsafe"
)

// ids is a writer-owned hash table from 64-bit keys to small ids whose keys
// are kept elsewhere. An entry is one uint32: 7 bits of the key over 25 bits
// of the id, so that a look-up fetches another entry's key once in 128 times.
// Entries never move but when the table is rebuilt. The zero table is empty.
type ids struct {
	buckets []idBucket
	count   int
	least   int // buckets: a table that was reserved does not shrink
}

// idBucket is a cache line of sixteen numbers of 32 bits, two a word: fifteen
// entries, and how many keys found the bucket full and went on to a later one.
// An entry of 0 is free. Entry i is half i/8 of word i%8; overflow is the last.
type idBucket [idWords]uint64

const (
	idWords       = 8
	idEntries     = 2*idWords - 1
	idBucketBytes = 64
	idBits        = 25
	idMask        = 1<<idBits - 1
	maxID         = idMask
	tagMask       = math.MaxUint32 &^ idMask
)

// keyed knows the keys of ids, and where it has them.
type keyed interface {
	keyOf(id uint32) uint64
	line(id uint32) unsafe.Pointer
}

// home spreads keys anew: those of one segment are alike in their first bits.
func (t *ids) home(key uint64) uint64 {
	return (key * 0xD6E8FEB86659FD93 >> 32) * uint64(len(t.buckets)) >> 32
}

func idTag(key uint64) uint32 { return uint32(key) & tagMask }

// halves of a word: their first bits, and the number 1 in each.
const (
	idFirst = 0x80000000_80000000
	idOnes  = 0x00000001_00000001
)

func (b *idBucket) entry(i int) uint32 { return uint32(b[i%idWords] >> (i / idWords % 2 * 32)) }

func (b *idBucket) set(i int, e uint32) {
	shift := i / idWords % 2 * 32
	b[i%idWords] = b[i%idWords]&^(math.MaxUint32<<shift) | uint64(e)<<shift
}

func (b *idBucket) overflow() uint32 { return b.entry(idEntries) }

func (b *idBucket) setOverflow(n uint32) { b.set(idEntries, n) }

// match returns the entries that are as want in the bits of mask, one bit each.
// It does without branches: which entries are in use cannot be foreseen, and
// branches on that cost more than the line's way from memory.
func (b *idBucket) match(want, mask uint32) (m uint32) {
	w, k := uint64(want)*idOnes, uint64(mask)*idOnes
	var found uint64
	found = idZeros((b[0] ^ w) & k)
	found = found>>1 | idZeros((b[1]^w)&k)
	found = found>>1 | idZeros((b[2]^w)&k)
	found = found>>1 | idZeros((b[3]^w)&k)
	found = found>>1 | idZeros((b[4]^w)&k)
	found = found>>1 | idZeros((b[5]^w)&k)
	found = found>>1 | idZeros((b[6]^w)&k)
	found = found>>1 | idZeros((b[7]^w)&k)
	return uint32(found>>24&0xFF|found>>56<<idWords) & (1<<idEntries - 1)
}

// idZeros returns the first bit of each half that is 0.
func idZeros(x uint64) uint64 { return ^(x&^idFirst + (idFirst - idOnes) | x) & idFirst }

// find returns the id of key, 0 if there is none.
func (t *ids) find(key uint64, keys keyed) uint32 {
	if t.count == 0 {
		return 0
	}
	tag := idTag(key)
	home := t.home(key)
	i := home
	for k := range t.buckets {
		b := &t.buckets[i]
		for m := b.match(tag, tagMask); m != 0; m &= m - 1 {
			id := b.entry(bits.TrailingZeros32(m)) & idMask
			if id != 0 && keys.keyOf(id) == key {
				return id
			}
		}
		if b.overflow() == 0 {
			return 0
		}
		i = after(home, k+1, len(t.buckets))
	}
	return 0
}

// line is where find looks for a key first.
func (t *ids) line(key uint64) unsafe.Pointer {
	if len(t.buckets) == 0 {
		return nil
	}
	return unsafe.Pointer(&t.buckets[t.home(key)])
}

// guess returns an id in the bucket of a key that may be the key's, without
// looking at keys; 0 if there is none.
func (t *ids) guess(key uint64) uint32 {
	if len(t.buckets) == 0 {
		return 0
	}
	b := &t.buckets[t.home(key)]
	return b.entry(bits.TrailingZeros32(b.match(idTag(key), tagMask)|1<<(idEntries-1))) & idMask
}

// insert adds a key that is not in the table and returns by how many bytes
// the table grew.
func (t *ids) insert(key uint64, id uint32, keys keyed) (grown int64) {
	if t.count*6 >= len(t.buckets)*idEntries*5 {
		grown = t.rebuild(keys)
	}
	t.put(key, id)
	return grown
}

func (t *ids) put(key uint64, id uint32) {
	t.count++
	home := t.home(key)
	i := home
	for k := range t.buckets {
		b := &t.buckets[i]
		if m := b.match(0, math.MaxUint32); m != 0 {
			b.set(bits.TrailingZeros32(m), idTag(key)|id)
			return
		}
		b.setOverflow(b.overflow() + 1)
		i = after(home, k+1, len(t.buckets))
	}
	panic("BUG: index: no free entry in an id table that is not full")
}

// next returns the id of an entry in a bucket, from modulo their number or after
// it, going round, and that bucket; 0 if the table is empty. It is how a table
// is emptied.
func (t *ids) next(from int) (id uint32, bucket int) {
	for range t.buckets {
		from %= len(t.buckets)
		for i := range idEntries {
			if e := t.buckets[from].entry(i); e != 0 {
				return e & idMask, from
			}
		}
		from++
	}
	return 0, 0
}

// each calls f with every id until it returns false.
func (t *ids) each(f func(id uint32) bool) {
	for i := range t.buckets {
		for j := range idEntries {
			if e := t.buckets[i].entry(j); e != 0 && !f(e&idMask) {
				return
			}
		}
	}
}

// remove takes out a key that is in the table under this id, and returns by
// how many bytes the table shrank.
func (t *ids) remove(key uint64, id uint32, keys keyed) (shrunk int64) {
	want := idTag(key) | id
	home := t.home(key)
	i := home
	for k := range t.buckets {
		b := &t.buckets[i]
		if m := b.match(want, math.MaxUint32); m != 0 {
			b.set(bits.TrailingZeros32(m), 0)
			t.count--
			if len(t.buckets) > max(4, t.least) && t.count*10 < len(t.buckets)*idEntries*3 {
				return -t.rebuild(keys)
			}
			return 0
		}
		b.setOverflow(b.overflow() - 1)
		i = after(home, k+1, len(t.buckets))
	}
	panic("BUG: index: removed an id that is not in its table")
}

// reserve makes an empty table so large that count entries never rebuild it, and
// returns its bytes.
func (t *ids) reserve(count int) int64 {
	t.least = (count*6/(idEntries*5) + 3) &^ 1
	t.buckets = make([]idBucket, t.least)
	return int64(t.least) * idBucketBytes
}

// rebuild makes the table five ninths full and returns by how many bytes it
// grew.
func (t *ids) rebuild(keys keyed) (grown int64) {
	old := t.buckets
	t.buckets = make([]idBucket, (t.count*9/(idEntries*5)+2)&^1)
	used := make([]uint8, len(t.buckets)) // entries of a bucket
	for i := range min(len(old), ahead) {
		old[i].expect(keys)
	}
	for i := range old {
		if i+ahead < len(old) {
			old[i+ahead].expect(keys)
		}
		for j := range idEntries {
			if e := old[i].entry(j); e != 0 {
				t.fill(used, keys.keyOf(e&idMask), e)
			}
		}
	}
	return int64(len(t.buckets)-len(old)) * idBucketBytes
}

// ahead is how many buckets rebuild has keys on their way for.
const ahead = 2

// fill is put for a table from which nothing was taken, so that the entries of
// each bucket that are used come first.
func (t *ids) fill(used []uint8, key uint64, e uint32) {
	home := t.home(key)
	i := home
	for k := 0; used[i] == idEntries; k++ {
		t.buckets[i].setOverflow(t.buckets[i].overflow() + 1)
		i = after(home, k+1, len(t.buckets))
	}
	t.buckets[i].set(int(used[i]), e)
	used[i]++
}

// expect asks for the keys of the entries.
func (b *idBucket) expect(keys keyed) {
	var l lines
	n := 0
	for i := range idEntries {
		if e := b.entry(i); e != 0 {
			l[n%batch] = keys.line(e & idMask)
			n++
		}
	}
	prefetch(&l, n)
}
