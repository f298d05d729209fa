package chat

import (
	"bytes"
	"math"
	"slices"
)

// sortByKeys sorts values by keys, stably, as Python's sorted does; reverse
// keeps the order of equals too.
func (m *Machine) sortByKeys(op operator, values, keys []Value, reverse bool) error {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	var failed error
	slices.SortStableFunc(order, func(i, j int) int {
		if failed != nil {
			return 0
		}
		if failed = m.step(); failed != nil {
			return 0
		}
		n, ordered, err := m.order(op, keys[i], keys[j])
		if err == nil && !ordered {
			err = inexact("the order of nan")
		}
		if failed = err; reverse {
			return -n
		}
		return n
	})
	if failed != nil {
		return failed
	}
	sorted := m.newValues(2 * len(values))
	for i, from := range order {
		sorted[i], sorted[len(values)+i] = values[from], keys[from]
	}
	copy(values, sorted)
	copy(keys, sorted[len(values):])
	return nil
}

func filterSort(m *Machine, in Value, p []Value) (Value, error) {
	var paths []attributePath
	if given(p[2]) && p[2].kind == KindString {
		for _, text := range bytes.Split(m.Bytes(p[2]), []byte(",")) {
			path, err := m.splitPath(text)
			if err != nil {
				return in, err
			}
			paths = append(paths, path)
		}
	} else {
		path, err := m.attributePath(p[2])
		if err != nil {
			return in, err
		}
		paths = []attributePath{path}
	}
	list, err := m.toList(in)
	if err != nil {
		return in, err
	}
	keys := m.newValues(list.Len())
	for i, item := range list.ref.items {
		key := m.newValues(len(paths))
		for j, path := range paths {
			v, err := path.get(m, item)
			if err == nil {
				v, err = m.folded(v, truthOf(p[1]))
			}
			if err != nil {
				return in, err
			}
			key[j] = v
		}
		keys[i] = m.List(key...)
	}
	return list, m.sortByKeys(opLess, list.ref.items, keys, truthOf(p[0]))
}

func filterDictsort(m *Machine, in Value, p []Value) (Value, error) {
	by := 0
	if given(p[1]) {
		switch {
		case p[1].Is("key"):
		case p[1].Is("value"):
			by = 1
		default:
			return in, raised(`You can only sort by either "key" or "value"`)
		}
	}
	if in.kind != KindDict {
		return in, raised("'%s' object has no attribute 'items'", in.typeName())
	}
	list, err := m.toList(Value{kind: kindView, n: viewItems, ref: in.ref})
	if err != nil {
		return in, err
	}
	keys := m.newValues(list.Len())
	for i, pair := range list.ref.items {
		if keys[i], err = m.folded(pair.At(by), truthOf(p[0])); err != nil {
			return in, err
		}
	}
	return list, m.sortByKeys(opLess, list.ref.items, keys, truthOf(p[2]))
}

// extremum makes min and max: the first of the items beyond which there is
// none.
func extremum(op operator) boundFunc {
	return func(m *Machine, in Value, p []Value) (Value, error) {
		path, err := m.attributePath(p[1])
		if err != nil {
			return in, err
		}
		c, err := m.iterate(in)
		if err != nil {
			return in, err
		}
		best, bestKey := noFirst, Value{kind: kindMissing}
		for {
			item, ok, err := c.next(m)
			if !ok || err != nil {
				return best, err
			}
			key, err := path.get(m, item)
			if err == nil {
				key, err = m.folded(key, truthOf(p[0]))
			}
			if err != nil {
				return in, err
			}
			beyond := !given(bestKey)
			if !beyond {
				if beyond, err = m.compare(op, key, bestKey); err != nil {
					return in, err
				}
			}
			if beyond {
				best, bestKey = item, key
			}
		}
	}
}

func filterUnique(m *Machine, in Value, p []Value) (Value, error) {
	caseSensitive, attribute := truthOf(p[0]), p[1]
	it := &iterator{}
	it.start = func(m *Machine) (cursor, error) {
		path, err := m.attributePath(attribute)
		if err != nil {
			return cursor{}, err
		}
		seen := m.Dict(0)
		it.step = func(m *Machine, item Value) (Value, bool, error) {
			key, err := path.get(m, item)
			if err == nil {
				key, err = m.folded(key, caseSensitive)
			}
			if err != nil {
				return item, false, err
			}
			before := seen.Len()
			err = m.SetValue(seen, key, None())
			return item, seen.Len() > before, err
		}
		return m.iterate(in)
	}
	return m.newIterator(it), nil
}

// filterGroupby returns pairs of a key and the items that have it. aux marks
// the pairs, which have attributes.
func filterGroupby(m *Machine, in Value, p []Value) (Value, error) {
	path, err := m.attributePath(p[0])
	if err != nil {
		return in, err
	}
	list, err := m.toList(in)
	if err != nil {
		return in, err
	}
	items := list.ref.items
	keys := m.newValues(len(items))
	for i, item := range items {
		key, err := path.getOr(m, item, p[1])
		if err == nil {
			key, err = m.folded(key, truthOf(p[2]))
		}
		if err != nil {
			return in, err
		}
		keys[i] = key
	}
	if err := m.sortByKeys(opLess, items, keys, false); err != nil {
		return in, err
	}
	groups := m.List()
	for start := 0; start < len(items); {
		end := start + 1
		for ; end < len(items); end++ {
			if same, err := m.equal(keys[end], keys[start]); err != nil {
				return in, err
			} else if !same {
				break
			}
		}
		key, err := path.getOr(m, items[start], p[1])
		if err != nil {
			return in, err
		}
		group := m.tuple(key, m.List(items[start:end]...))
		group.ref.aux = groupMark
		m.Append(groups, group)
		start = end
	}
	return groups, nil
}

var groupMark = new(function)

func filterSum(m *Machine, in Value, p []Value) (Value, error) {
	path, err := m.attributePath(p[0])
	if err != nil {
		return in, err
	}
	sum := Int(0)
	if given(p[1]) {
		sum = p[1]
	}
	if sum.kind == KindString {
		return in, raised("sum() can't sum strings [use ''.join(seq) instead]")
	}
	c, err := m.iterate(in)
	if err != nil {
		return in, err
	}
	var exact compensated
	for {
		item, ok, err := c.next(m)
		if err != nil {
			return sum, err
		}
		if !ok {
			return sum, exact.check(sum)
		}
		if item, err = path.get(m, item); err != nil {
			return in, err
		}
		if sum, err = m.binary(opAdd, sum, item); err != nil {
			return in, err
		}
		exact.add(item, sum)
	}
}

// compensated adds as Python's sum does from 3.12 on: floats with the error of
// each addition kept, until an int comes that needs more than 64 bits. Before
// 3.12 it added plainly; where the results differ, the sum depends on the
// engine's Python.
type compensated struct {
	sum, lost    float64
	begun, plain bool
}

// add adds an item; sum is the plain sum with it.
func (c *compensated) add(item, sum Value) {
	if sum.kind != KindFloat {
		return
	}
	if !c.begun {
		c.begun, c.sum = true, sum.float()
		return
	}
	x, err := floatOf(item)
	if err != nil {
		return
	}
	if item.ref != nil && !c.plain {
		c.sum, c.plain = c.total(), true
	}
	t := c.sum + x
	switch {
	case c.plain || item.kind != KindFloat:
	case math.Abs(c.sum) >= math.Abs(x):
		c.lost += c.sum - t + x
	default:
		c.lost += x - t + c.sum
	}
	c.sum = t
}

func (c *compensated) total() float64 {
	if c.plain || c.lost == 0 || math.IsInf(c.lost, 0) || math.IsNaN(c.lost) {
		return c.sum
	}
	return c.sum + c.lost
}

func (c *compensated) check(sum Value) error {
	if c.begun && c.total() != sum.float() {
		return inexact("the sum of floats, which depends on the version of Python")
	}
	return nil
}

// filterBatch yields lists of linecount items.
func filterBatch(m *Machine, in Value, p []Value) (Value, error) {
	count, fill := p[0], p[1]
	return m.newIterator(&iterator{start: func(m *Machine) (cursor, error) {
		list, err := m.toList(in)
		if err != nil {
			return cursor{}, err
		}
		n, err := intArg(count, 0)
		if err != nil || n <= 0 {
			return cursor{}, inexact("batch by a number that is not positive")
		}
		out := m.List()
		for rest := list.ref.items; len(rest) > 0; {
			line := m.List(rest[:min(n, len(rest))]...)
			rest = rest[line.Len():]
			if given(fill) && !fill.IsNone() {
				if err := m.reserve((n - line.Len()) * m.values.size()); err != nil {
					return cursor{}, err
				}
				for line.Len() < n {
					m.Append(line, fill)
				}
			}
			m.Append(out, line)
		}
		return m.iterate(out)
	}}), nil
}

// filterSlice yields the given number of lists of nearly the same length.
func filterSlice(m *Machine, in Value, p []Value) (Value, error) {
	count, fill := p[0], p[1]
	return m.newIterator(&iterator{start: func(m *Machine) (cursor, error) {
		list, err := m.toList(in)
		if err != nil {
			return cursor{}, err
		}
		n, err := intArg(count, 0)
		if err != nil || n <= 0 || n > mostRange {
			return cursor{}, inexact("slice by that number")
		}
		out := m.List()
		items := list.ref.items
		short, longer := len(items)/n, len(items)%n
		for i := range n {
			size := short
			if i < longer {
				size++
			}
			column := m.List(items[:size]...)
			items = items[size:]
			if given(fill) && !fill.IsNone() && i >= longer {
				m.Append(column, fill)
			}
			m.Append(out, column)
		}
		return m.iterate(out)
	}}), nil
}
