package index

// ids is a writer-owned hash table from 64-bit keys to small ids whose keys
// are kept elsewhere. An entry is one uint32: 7 bits of the key over 25 bits
// of the id, so that a look-up fetches another entry's key once in 128 times.
// Entries never move but when the table is rebuilt. The zero table is empty.
type ids struct {
	buckets []idBucket
	count   int
}

// idBucket is a cache line: entries, and how many keys found the bucket full
// and went on to a later one.
type idBucket struct {
	entries  [idEntries]uint32
	overflow uint32
}

const (
	idEntries     = 15
	idBucketBytes = 64
	idBits        = 25
	idMask        = 1<<idBits - 1
	maxID         = idMask
)

// keyed knows the keys of ids.
type keyed interface{ keyOf(id uint32) uint64 }

// home spreads keys anew: those of one segment are alike in their first bits.
func (t *ids) home(key uint64) int {
	return int((key * 0xD6E8FEB86659FD93 >> 32) * uint64(len(t.buckets)) >> 32)
}

func idTag(key uint64) uint32 { return uint32(key) &^ idMask }

// find returns the id of key, 0 if there is none.
func (t *ids) find(key uint64, keys keyed) uint32 {
	if t.count == 0 {
		return 0
	}
	tag := idTag(key)
	i := t.home(key)
	for range t.buckets {
		b := &t.buckets[i]
		for _, e := range b.entries {
			if e != 0 && e&^idMask == tag && keys.keyOf(e&idMask) == key {
				return e & idMask
			}
		}
		if b.overflow == 0 {
			return 0
		}
		if i++; i == len(t.buckets) {
			i = 0
		}
	}
	return 0
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
	i := t.home(key)
	for range t.buckets {
		b := &t.buckets[i]
		for j := range b.entries {
			if b.entries[j] == 0 {
				b.entries[j] = idTag(key) | id
				return
			}
		}
		b.overflow++
		if i++; i == len(t.buckets) {
			i = 0
		}
	}
	panic("BUG: index: no free entry in an id table that is not full")
}

// remove takes out a key that is in the table under this id, and returns by
// how many bytes the table shrank.
func (t *ids) remove(key uint64, id uint32, keys keyed) (shrunk int64) {
	want := idTag(key) | id
	i := t.home(key)
	for range t.buckets {
		b := &t.buckets[i]
		for j := range b.entries {
			if b.entries[j] != want {
				continue
			}
			b.entries[j] = 0
			t.count--
			if len(t.buckets) > 4 && t.count*10 < len(t.buckets)*idEntries*3 {
				return -t.rebuild(keys)
			}
			return 0
		}
		b.overflow--
		if i++; i == len(t.buckets) {
			i = 0
		}
	}
	panic("BUG: index: removed an id that is not in its table")
}

// rebuild makes the table five eighths full and returns by how many bytes it
// grew.
func (t *ids) rebuild(keys keyed) (grown int64) {
	old := t.buckets
	t.buckets = make([]idBucket, t.count*8/(idEntries*5)+1)
	t.count = 0
	for i := range old {
		for _, e := range old[i].entries {
			if e != 0 {
				t.put(keys.keyOf(e&idMask), e&idMask)
			}
		}
	}
	return int64(len(t.buckets)-len(old)) * idBucketBytes
}
