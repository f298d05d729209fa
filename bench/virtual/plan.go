package virtual

import "slices"

// plan begins the next row of steps, if there is anything to do.
func (e *Engine) plan(nowNs int64) {
	preempted := e.soonest <= e.steps && e.growDecoding()
	room := e.cfg.ChunkTokens - len(e.next)
	costNs, prefills := int64(0), false
	if n := len(e.running); n > len(e.next) { // one is in the middle of its prompt
		q := e.running[n-1]
		tokens := min(q.length()-int(q.computed), room)
		if e.grow(q, int(q.computed), tokens) {
			costNs += e.prefill(q, tokens)
			room -= tokens
			prefills = true
		} else {
			e.preempt()
			preempted = true
		}
	}
	for !preempted && room > 0 && len(e.waiting) > 0 && len(e.running) < e.cfg.MaxRunning {
		q := e.waiting[0]
		tokens, ok := e.admit(q, room)
		if !ok {
			break
		}
		costNs += e.prefill(q, tokens)
		room -= tokens
		prefills = true
	}
	if len(e.running) == 0 {
		return
	}
	e.startNs, e.eachNs = nowNs, costNs+e.cfg.stepNs(len(e.running))
	e.row = 1
	if !prefills && !preempted {
		e.row = e.soonest - e.steps
	}
}

// prefill notes that a request computes so many tokens in this step and returns
// what they cost. The last token of one that was put back costs its place only.
func (e *Engine) prefill(q *Job, tokens int) int64 {
	q.planned = int32(tokens)
	if tokens == 1 && q.generated > 0 && int(q.computed) == q.length()-1 {
		return 0
	}
	return e.cfg.PrefillNs(int(q.computed), tokens)
}

// growDecoding takes the blocks that decoding requests need in this step, from the
// youngest if none is free. It reports whether one was put back.
func (e *Engine) growDecoding() (preempted bool) {
	for i := 0; i < len(e.next); i++ {
		if e.next[i] > e.steps {
			continue
		}
		q := e.running[i]
		computed := int(q.Prompt) + int(q.base+e.steps) - 1
		for i < len(e.next) && !e.grow(q, computed, 1) {
			e.preempt()
			preempted = true
		}
		if i < len(e.next) {
			e.next[i] = e.due(q)
		}
	}
	e.settle()
	return preempted
}

// admit moves the head of the queue into the batch, with what the cache holds of it
// and blocks for its first chunk. The last token is always computed.
func (e *Engine) admit(q *Job, room int) (tokens int, ok bool) {
	size := e.cfg.BlockTokens
	hits, unheld := e.Cache.match(q.Contents[:min(len(q.Contents), (q.length()-1)/size)], q.held[:0])
	q.held = hits
	cached := len(hits) * size
	tokens = min(q.length()-cached, room)
	fresh := (cached+tokens+size-1)/size - len(hits)
	if unheld+fresh > e.Cache.Free() {
		q.held = hits[:0]
		return 0, false
	}
	e.waiting = slices.Delete(e.waiting, 0, 1)
	e.running = append(e.running, q)
	e.Cache.hold(hits)
	q.computed, q.stored = int32(cached), int32(len(hits))
	if !q.started {
		q.started, q.cached = true, q.computed
	}
	if !e.grow(q, cached, tokens) {
		panic("BUG: blocks that were counted free are not")
	}
	return tokens, true
}

// grow takes the blocks that n more tokens need and says what those hold that they
// fill.
func (e *Engine) grow(q *Job, computed, n int) (ok bool) {
	size := e.cfg.BlockTokens
	if need := (computed+n+size-1)/size - len(q.held); need > 0 {
		if q.held, ok = e.Cache.take(q.held, need); !ok {
			return false
		}
	}
	e.store(q, computed+n)
	return true
}

// preempt puts the youngest running request back to the front of the queue; what it
// computed is lost but for what stays in the cache.
func (e *Engine) preempt() {
	last := len(e.running) - 1
	q := e.running[last]
	e.running[last] = nil
	e.running = e.running[:last]
	if last < len(e.next) {
		e.next = e.next[:last]
		q.generated = int32(q.base + e.steps)
		e.store(q, q.length()-1)
	}
	e.Cache.release(q.held)
	q.held, q.computed, q.stored, q.planned = q.held[:0], 0, 0, 0
	e.waiting = slices.Insert(e.waiting, 0, q)
	e.Preemptions++
}
