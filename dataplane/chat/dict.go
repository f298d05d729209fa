package chat

import (
	"hash/maphash"
	"math"
)

// indexFrom is the size from which a dict has an index: below it, comparing
// all keys is faster.
const indexFrom = 17

var hashSeed = maphash.MakeSeed() // chosen anew by each process: nobody can prepare colliding keys

// Dict returns an empty dict with room for n members; it grows beyond.
func (m *Machine) Dict(n int) Value {
	o := m.newObject()
	m.charge(n * m.entries.size())
	o.entries = m.entries.take(n)[:0]
	return Value{kind: KindDict, ref: o}
}

// Set gives a key of a dict its value: in its place if the key is there, else
// at the end. The dict must be one that this Machine made and that no template
// has seen yet. The key is copied if it is new.
func (m *Machine) Set(dict Value, key string, value Value) {
	if i := dict.ref.findString(key); i >= 0 {
		dict.ref.entries[i].value = value
		return
	}
	m.addEntry(dict.ref, m.Copy(key), value)
}

// SetValue is Set for a key that is a Value: a str, None, bool, int, float, or
// a tuple of such. All other keys are refused.
func (m *Machine) SetValue(dict, key, value Value) error {
	key, err := m.asKey(key)
	if err != nil {
		return err
	}
	i, err := m.find(dict.ref, key)
	if err != nil {
		return err
	}
	if i >= 0 {
		dict.ref.entries[i].value = value
	} else {
		m.addEntry(dict.ref, key, value)
	}
	return nil
}

func (m *Machine) addEntry(o *object, key, value Value) {
	if len(o.entries) == cap(o.entries) {
		n := 2*len(o.entries) + 4
		m.charge(n * m.entries.size())
		grown := m.entries.take(n)
		o.entries = grown[:copy(grown, o.entries)]
	}
	o.entries = append(o.entries, entry{key, value})
	if len(o.entries) >= indexFrom {
		m.index(o)
	}
}

// index adds the last member to the index, or builds it.
func (m *Machine) index(o *object) {
	if n := len(o.entries); 2*n <= len(o.index) {
		o.link(n - 1)
		return
	}
	size := 4 * indexFrom
	for size < 4*len(o.entries) {
		size *= 2
	}
	m.charge(size * m.indexes.size())
	o.index = m.indexes.take(size)
	for i := range o.entries {
		o.link(i)
	}
}

// link puts the i-th member into the index.
func (o *object) link(i int) {
	at := int(hashOf(o.entries[i].key) % uint64(len(o.index)))
	for o.index[at] != 0 {
		at = (at + 1) % len(o.index)
	}
	o.index[at] = int32(i + 1)
}

// hashOf returns the same for keys that are equal in Python. Keys are as asKey
// returns them.
func hashOf(key Value) uint64 {
	switch key.kind {
	case KindString:
		return maphash.Bytes(hashSeed, key.text)
	case KindBool, KindInt:
		if key.ref == nil {
			return mixHash(uint64(key.n))
		}
		f, _ := floatOf(key) // equal to a float at most if that float is this one
		return mixHash(math.Float64bits(f))
	case KindFloat:
		f := key.float()
		if n := int64(f); float64(n) == f && f < 1<<63 {
			return mixHash(uint64(n))
		}
		return mixHash(math.Float64bits(f))
	case KindTuple:
		hash := uint64(len(key.ref.items))
		for _, item := range key.ref.items {
			hash = mixHash(hash ^ hashOf(item))
		}
		return hash
	}
	return uint64(key.kind)
}

func mixHash(x uint64) uint64 {
	return maphash.Comparable(hashSeed, x)
}

// asKey returns a value as a key of a dict: strings in one plain piece.
func (m *Machine) asKey(v Value) (Value, error) {
	switch v.kind {
	case KindString:
		if v.form == formPlain {
			return v, nil
		}
		return Text(m.Bytes(v)), nil
	case KindNone, KindBool, KindInt, KindFloat, KindUndefined:
		return v, nil
	case KindTuple:
		if err := m.enter(); err != nil {
			return Value{}, err
		}
		defer m.leave()
		key := m.tuple(v.ref.items...)
		for i, item := range key.ref.items {
			k, err := m.asKey(item)
			if err != nil {
				return Value{}, err
			}
			key.ref.items[i] = k
		}
		return key, nil
	case KindList, KindDict:
		return Value{}, raised("unhashable type: '%s'", v.typeName())
	}
	return Value{}, inexact("a %s as a key of a dict", v.typeName())
}

// find returns the position of a key as asKey returns it, or -1.
func (m *Machine) find(o *object, key Value) (int, error) {
	if key.kind == KindString {
		return o.findText(key.text), nil
	}
	if len(o.index) == 0 {
		for i := range o.entries {
			if same, err := m.equal(o.entries[i].key, key); same || err != nil {
				return i, err
			}
		}
		return -1, nil
	}
	at := int(hashOf(key) % uint64(len(o.index)))
	for o.index[at] != 0 {
		i := int(o.index[at] - 1)
		if same, err := m.equal(o.entries[i].key, key); same || err != nil {
			return i, err
		}
		at = (at + 1) % len(o.index)
	}
	return -1, nil
}

// findText returns the position of a key that is a str, or -1.
func (o *object) findText(key []byte) int {
	if len(o.index) == 0 {
		return scanKeys(o, key)
	}
	return probeKeys(o, key, maphash.Bytes(hashSeed, key))
}

// findString is findText without a conversion, which would allocate.
func (o *object) findString(key string) int {
	if len(o.index) == 0 {
		return scanKeys(o, key)
	}
	return probeKeys(o, key, maphash.String(hashSeed, key))
}

func scanKeys[T string | []byte](o *object, key T) int {
	for i := range o.entries {
		k := &o.entries[i].key
		if len(k.text) == len(key) && k.kind == KindString && string(k.text) == string(key) {
			return i
		}
	}
	return -1
}

func probeKeys[T string | []byte](o *object, key T, hash uint64) int {
	at := int(hash % uint64(len(o.index)))
	for o.index[at] != 0 {
		i := int(o.index[at] - 1)
		if k := &o.entries[i].key; k.kind == KindString && string(k.text) == string(key) {
			return i
		}
		at = (at + 1) % len(o.index)
	}
	return -1
}
