package chat

// Limits bound the work of one use of a Machine, from one Reset to the next.
// A field that is 0 stands for its default.
type Limits struct {
	// Steps counts evaluated expressions and statements, and elements that
	// filters visit.
	Steps int
	// Depth counts nested calls of macros and recursive loops, and nested
	// containers in JSON, in comparisons and in output.
	Depth int
	// OutputBytes bounds Rope.Size.
	OutputBytes int
	// ArenaBytes bounds the memory of values and of text made by the template.
	ArenaBytes int
}

// DefaultLimits are far above what chat templates need, and low enough that a
// request at the limit costs little.
var DefaultLimits = Limits{Steps: 1 << 20, Depth: 150, OutputBytes: 256 << 20, ArenaBytes: 64 << 20}

func (l Limits) orDefault() Limits {
	fill := func(field *int, otherwise int) {
		if *field <= 0 {
			*field = otherwise
		}
	}
	fill(&l.Steps, DefaultLimits.Steps)
	fill(&l.Depth, DefaultLimits.Depth)
	fill(&l.OutputBytes, DefaultLimits.OutputBytes)
	fill(&l.ArenaBytes, DefaultLimits.ArenaBytes)
	return l
}

// Machine owns the memory of values and renders templates. The zero Machine is
// ready; it belongs to one goroutine at a time.
type Machine struct {
	// Limits may be changed before a Reset; they hold from then on.
	Limits Limits
	// Now is what strftime_now sees; needed only if Template.UsesTime.
	Now Clock

	limits Limits // Limits with defaults, of this use
	steps  int    // left
	depth  int    // used
	room   int    // bytes of arena left
	fault  error  // the limit that was exceeded

	bytes    slab[byte]
	values   slab[Value]
	entries  slab[entry]
	objects  slab[object]
	segments slab[Segment]
	indexes  slab[int32]
	slots    slab[Value] // variables of running functions
	frames   slab[frame]
	loops    slab[loopState]

	// Scratch: what is under construction. Users of the stacks take what is
	// above the length that they found, and give it back.
	stack      []Value   // items of lists, arguments of calls
	entryStack []entry   // members of dicts
	pieces     []Segment // captured output
	scratch    []byte    // text; not kept over a call of anything that may use it

	run run
}

// Reset takes back all values made by the Machine and starts a new use.
func (m *Machine) Reset() {
	m.limits = m.Limits.orDefault()
	m.steps, m.depth, m.room, m.fault = m.limits.Steps, 0, m.limits.ArenaBytes, nil
	m.bytes.reset()
	m.values.reset()
	m.entries.reset()
	m.objects.reset()
	m.segments.reset()
	m.indexes.reset()
	m.slots.reset()
	m.frames.reset()
	m.loops.reset()
	m.stack, m.entryStack, m.pieces = emptied(m.stack), emptied(m.entryStack), emptied(m.pieces)
	if cap(m.scratch) > slabKeep {
		m.scratch = nil
	}
	m.run = run{context: emptied(m.run.context)}
}

// emptied returns a stack that holds on to nothing. All of its memory has to be
// cleared for that, so that of a large one is given up.
func emptied[T any](stack []T) []T {
	if cap(stack) > stackKeep {
		return nil
	}
	clear(stack[:cap(stack)])
	return stack[:0]
}

// Used returns the steps and the bytes of memory that were used since the last
// Reset: what the work has cost.
func (m *Machine) Used() (steps, arenaBytes int) {
	return m.limits.Steps - m.steps, m.limits.ArenaBytes - m.room
}

// Held returns about how many bytes of memory the Machine keeps for its next
// use.
func (m *Machine) Held() int {
	return m.bytes.held() + m.values.held() + m.entries.held() + m.objects.held() + m.segments.held() +
		m.indexes.held() + m.slots.held() + m.frames.held() + m.loops.held() + cap(m.scratch) +
		cap(m.stack)*m.values.size() + cap(m.entryStack)*m.entries.size() + cap(m.pieces)*m.segments.size()
}

// Err returns the limit that the Machine has exceeded since its Reset, if any.
// Values made after that are not to be relied on.
func (m *Machine) Err() error { return m.fault }

// ready makes the first use of a zero Machine the same as one after Reset.
func (m *Machine) ready() {
	if m.limits.Steps == 0 {
		m.Reset()
	}
}

// step counts one step of work.
func (m *Machine) step() error { return m.stepN(1) }

func (m *Machine) stepN(n int) error {
	m.steps -= n
	if m.steps < 0 {
		return m.outOfSteps()
	}
	return nil
}

func (m *Machine) outOfSteps() error {
	if m.fault == nil {
		m.exceed("the template takes too many steps (Limits.Steps)")
	}
	return m.fault
}

// exceed makes every later step fail.
func (m *Machine) exceed(what string) {
	if m.fault == nil {
		m.fault = &Error{Class: Limit, Message: what}
	}
	m.steps = -1
}

// enter counts one level of recursion, which leave ends.
func (m *Machine) enter() error {
	if m.depth >= m.limits.Depth {
		m.exceed("nested too deeply (Limits.Depth)")
		return m.fault
	}
	m.depth++
	return nil
}

func (m *Machine) leave() { m.depth-- }

// bytesPerStep is how much text costs as much as one step.
const bytesPerStep = 256

// charge accounts for memory. Going beyond the limit is found at the next step:
// what one step allocates is bounded by what exists already, or by reserve.
func (m *Machine) charge(bytes int) {
	m.ready()
	m.room -= bytes
	if m.room < 0 {
		m.exceed("the template needs too much memory (Limits.ArenaBytes)")
	}
}

// reserve refuses an allocation whose size the template has computed.
func (m *Machine) reserve(bytes int) error {
	if bytes < 0 || bytes > m.room {
		m.exceed("the template needs too much memory (Limits.ArenaBytes)")
		return m.fault
	}
	return nil
}

func (m *Machine) newObject() *object {
	m.charge(m.objects.size())
	return &m.objects.take(1)[0]
}

func (m *Machine) newValues(n int) []Value {
	m.charge(n * m.values.size())
	return m.values.take(n)
}

func (m *Machine) newBytes(n int) []byte {
	m.charge(n)
	return m.bytes.take(n)
}

// keep copies b into the arena.
func (m *Machine) keep(b []byte) []byte {
	kept := m.newBytes(len(b))
	copy(kept, b)
	return kept
}

// Copy returns a str with its own copy of s, which lives until Reset.
func (m *Machine) Copy(s string) Value {
	kept := m.newBytes(len(s))
	copy(kept, s)
	return Text(kept)
}

// List returns a list of the items, which may get more by Append.
func (m *Machine) List(items ...Value) Value {
	return Value{kind: KindList, ref: m.listObject(items)}
}

func (m *Machine) listObject(items []Value) *object {
	o := m.newObject()
	o.items = m.newValues(len(items))
	copy(o.items, items)
	return o
}

func (m *Machine) tuple(items ...Value) Value {
	return Value{kind: KindTuple, ref: m.listObject(items)}
}

// Append adds an item to a list that this Machine made and that no template
// has seen yet.
func (m *Machine) Append(list, item Value) {
	o := list.ref
	if len(o.items) == cap(o.items) {
		grown := m.newValues(2*len(o.items) + 4)
		o.items = grown[:copy(grown, o.items)]
	}
	o.items = append(o.items, item)
}

// Bytes returns the decoded text of a str: as it lies if that is possible,
// else a copy which lives until Reset. It returns nil for all other values.
func (m *Machine) Bytes(v Value) []byte {
	if v.kind != KindString {
		return nil
	}
	switch v.form {
	case formEscaped:
		return m.decode(Segment{Bytes: v.text, Escaped: true})
	case formRope:
		return m.flatten(v.ref)
	}
	return v.text
}

// decode copies segments into the arena as text, which is never longer than
// they are.
func (m *Machine) decode(segments ...Segment) []byte {
	size := 0
	for _, s := range segments {
		size += len(s.Bytes)
	}
	m.work(size)
	if m.reserve(size) != nil {
		return nil // no step will follow
	}
	room := m.newBytes(size)
	text := room[:0]
	for _, s := range segments {
		text = s.AppendText(text)
	}
	m.bytes.release(room, size-len(text))
	m.room += size - len(text)
	return text[:len(text):len(text)]
}

// flatten returns the text of a rope and remembers it.
func (m *Machine) flatten(o *object) []byte {
	if len(o.items) == 0 {
		text := m.decode(o.segments...)
		o.items = m.newValues(1)
		o.items[0] = Text(text)
	}
	return o.items[0].text
}

// work counts steps for going through text.
func (m *Machine) work(bytes int) {
	m.steps -= bytes / bytesPerStep
}
