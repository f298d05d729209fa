package scenario

import "math"

// timer is something that happens at a time. Those of one time happen in the order
// in which they were set.
type timer struct {
	atNs int64
	seq  uint64
	do   func(nowNs int64)
}

// timers is a binary heap.
type timers struct {
	list []timer
	seq  uint64
}

func (t *timers) set(atNs int64, do func(nowNs int64)) {
	t.seq++
	t.list = append(t.list, timer{atNs, t.seq, do})
	for i := len(t.list) - 1; i > 0; {
		up := (i - 1) / 2
		if !t.less(i, up) {
			break
		}
		t.list[i], t.list[up] = t.list[up], t.list[i]
		i = up
	}
}

func (t *timers) less(i, j int) bool {
	a, b := &t.list[i], &t.list[j]
	return a.atNs < b.atNs || a.atNs == b.atNs && a.seq < b.seq
}

func (t *timers) nextNs() int64 {
	if len(t.list) == 0 {
		return math.MaxInt64
	}
	return t.list[0].atNs
}

func (t *timers) pop() timer {
	first, last := t.list[0], len(t.list)-1
	t.list[0] = t.list[last]
	t.list[last] = timer{}
	t.list = t.list[:last]
	for i := 0; ; {
		least := i
		for _, down := range []int{2*i + 1, 2*i + 2} {
			if down < last && t.less(down, least) {
				least = down
			}
		}
		if least == i {
			return first
		}
		t.list[i], t.list[least] = t.list[least], t.list[i]
		i = least
	}
}

// wakes is a heap of slots by the time at which their engines are to be woken, in
// which a slot's time can be changed. Among equal times the lowest slot is first.
type wakes struct {
	atNs  []int64 // by slot
	order []int32 // slots, as a heap
	place []int32 // of each slot in it
}

func newWakes(slots int) wakes {
	w := wakes{make([]int64, slots), make([]int32, slots), make([]int32, slots)}
	for i := range slots {
		w.atNs[i], w.order[i], w.place[i] = math.MaxInt64, int32(i), int32(i)
	}
	return w
}

func (w *wakes) next() (slot int, atNs int64) {
	slot = int(w.order[0])
	return slot, w.atNs[slot]
}

func (w *wakes) set(slot int, atNs int64) {
	was := w.atNs[slot]
	w.atNs[slot] = atNs
	if atNs < was {
		w.rise(int(w.place[slot]))
	} else if atNs > was {
		w.sink(int(w.place[slot]))
	}
}

func (w *wakes) less(a, b int32) bool {
	return w.atNs[a] < w.atNs[b] || w.atNs[a] == w.atNs[b] && a < b
}

func (w *wakes) rise(i int) {
	slot := w.order[i]
	for i > 0 {
		up := (i - 1) / 2
		if !w.less(slot, w.order[up]) {
			break
		}
		w.put(i, w.order[up])
		i = up
	}
	w.put(i, slot)
}

func (w *wakes) sink(i int) {
	slot := w.order[i]
	for {
		down := 2*i + 1
		if down >= len(w.order) {
			break
		}
		if down+1 < len(w.order) && w.less(w.order[down+1], w.order[down]) {
			down++
		}
		if !w.less(w.order[down], slot) {
			break
		}
		w.put(i, w.order[down])
		i = down
	}
	w.put(i, slot)
}

func (w *wakes) put(i int, slot int32) {
	w.order[i], w.place[slot] = slot, int32(i)
}
