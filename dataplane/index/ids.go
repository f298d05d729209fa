package index

// ids is a writer-owned hash table from 64-bit keys to small ids whose keys
// are kept elsewhere. An entry is one uint32: 7 bits of the key over 25 bits
// of the id, so that a look-up fetches another entry's key once in 128 times.
// Entries never move but when the table is rebuilt. The zero table is empty.
type ids struct {
	buckets []idBucket
	count   int
	least   int // buckets: a table that was reserved does not shrink
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

// touch loads a word of the bucket of a key, so that it is in the cache when
// find asks for it. What it returns has no meaning.
func (t *ids) touch(key uint64) uint32 {
	if len(t.buckets) == 0 {
		return 0
	}
	return t.buckets[t.home(key)].overflow
}

// guess returns an id in the bucket of a key that may be the key's, without
// looking at keys; 0 if there is none.
func (t *ids) guess(key uint64) uint32 {
	if len(t.buckets) == 0 {
		return 0
	}
	tag := idTag(key)
	for _, e := range t.buckets[t.home(key)].entries {
		if e != 0 && e&^idMask == tag {
			return e & idMask
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

// next returns the id of an entry in a bucket, from modulo their number or after
// it, going round, and that bucket; 0 if the table is empty. It is how a table
// is emptied.
func (t *ids) next(from int) (id uint32, bucket int) {
	for range t.buckets {
		from %= len(t.buckets)
		for _, e := range t.buckets[from].entries {
			if e != 0 {
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
		for _, e := range t.buckets[i].entries {
			if e != 0 && !f(e&idMask) {
				return
			}
		}
	}
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
			if len(t.buckets) > max(4, t.least) && t.count*10 < len(t.buckets)*idEntries*3 {
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

// reserve makes an empty table so large that count entries never rebuild it, and
// returns its bytes.
func (t *ids) reserve(count int) int64 {
	t.least = count*6/(idEntries*5) + 2
	t.buckets = make([]idBucket, t.least)
	return int64(t.least) * idBucketBytes
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
