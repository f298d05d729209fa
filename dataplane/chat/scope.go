package chat

import "strconv"

// Which variable a name means is decided at compile time, by the rules of
// jinja2.idtracking. They are subtle and templates depend on them: what a loop
// sets is gone in its next round, what an if sets stays, a name that is set
// somewhere in a scope hides the outer one in all of it.
//
// A variable lives in a slot of the function that it belongs to: the template
// itself, the body of a macro or call block, a recursive loop, the condition of
// a loop. Functions are Python functions in jinja2's generated code; inner ones
// see the variables of the outer ones as they are when they run.

// place is where a variable lives: hops functions outwards. hops is
// placeContext for names that come from outside of the template.
type place struct {
	hops, slot int
}

const placeContext = -1

// functionScope is what the frame of a function needs.
type functionScope struct {
	slots int
	// keeps says that functions are defined inside, which may outlive the call.
	keeps bool
}

// scope is what happens at the begin and at the end of a block with its own
// names.
type scope struct {
	loads []load
	// parameters are the slots that others fill: the targets of a loop.
	parameters []int
}

// load gives a slot its value at the begin of a scope.
type load struct {
	slot int
	from place // placeContext: from outside
	none bool  // it has no value yet
}

// functionSymbols collects the slots of a function while it is compiled.
type functionSymbols struct {
	outer *functionSymbols
	slots map[string]int // by the identifier that jinja2 gives the variable
	inner bool           // a function is defined inside
}

func newFunctionSymbols(outer *functionSymbols) *functionSymbols {
	if outer != nil {
		outer.inner = true
	}
	return &functionSymbols{outer: outer, slots: map[string]int{}}
}

func (f *functionSymbols) slot(ident string) int {
	i, ok := f.slots[ident]
	if !ok {
		i = len(f.slots)
		f.slots[ident] = i
	}
	return i
}

func (f *functionSymbols) done() functionScope {
	return functionScope{slots: len(f.slots), keeps: f.inner}
}

type loadKind uint8

const (
	loadParameter loadKind = iota // by the caller, or by the loop
	loadContext                   // from outside of the template
	loadAlias                     // from the scope around
	loadNone                      // no value yet
)

// symbols are the names of one scope.
type symbols struct {
	parent   *symbols
	function *functionSymbols
	level    int
	refs     map[string]bool // names with a variable of this scope
	loads    map[string]loadKind
	order    []string // of loads
	stores   map[string]bool
}

func newSymbols(parent *symbols, function *functionSymbols) *symbols {
	s := &symbols{
		parent: parent, function: function,
		refs: map[string]bool{}, loads: map[string]loadKind{}, stores: map[string]bool{},
	}
	if parent != nil {
		s.level = parent.level + 1
	}
	return s
}

// ident is the name that jinja2 gives a variable. Scopes of one function on the
// same level share it.
func (s *symbols) ident(name string) string { return strconv.Itoa(s.level) + "_" + name }

func (s *symbols) define(name string, kind loadKind) {
	s.refs[name] = true
	s.setLoad(name, kind)
}

func (s *symbols) setLoad(name string, kind loadKind) {
	if _, ok := s.loads[name]; !ok {
		s.order = append(s.order, name)
	}
	s.loads[name] = kind
}

// find returns the innermost scope that has a variable of the name, or nil.
func (s *symbols) find(name string) *symbols {
	for ; s != nil; s = s.parent {
		if s.refs[name] {
			return s
		}
	}
	return nil
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if s.refs[name] {
		return
	}
	if s.parent.find(name) != nil {
		s.define(name, loadAlias)
	} else {
		s.define(name, loadNone)
	}
}

func (s *symbols) parameter(name string) {
	s.stores[name] = true
	s.define(name, loadParameter)
}

func (s *symbols) load(name string) {
	if s.find(name) == nil {
		s.define(name, loadContext)
	}
}

// branch returns a copy for one branch of an if.
func (s *symbols) branch() *symbols {
	b := newSymbols(s.parent, s.function)
	b.level = s.level
	for name := range s.refs {
		b.refs[name] = true
	}
	for _, name := range s.order {
		b.setLoad(name, s.loads[name])
	}
	for name := range s.stores {
		b.stores[name] = true
	}
	return b
}

// merge takes over what the branches of an if found. What only branches set
// has, before the if, its value from the scope around or from outside.
func (s *symbols) merge(branches []*symbols) {
	var stored []string
	for _, b := range branches {
		for _, name := range b.order {
			if b.stores[name] && !s.stores[name] {
				stored = append(stored, name)
			}
		}
	}
	for _, b := range branches {
		for name := range b.refs {
			s.refs[name] = true
		}
		for _, name := range b.order {
			s.setLoad(name, b.loads[name])
		}
		for name := range b.stores {
			s.stores[name] = true
		}
	}
	for _, name := range stored {
		kind := loadContext
		if s.parent.find(name) != nil {
			kind = loadAlias
		}
		s.setLoad(name, kind)
	}
}

// analyze finds the names in a node that belongs to this scope, without those
// in scopes inside.
func (s *symbols) analyze(n node) {
	switch n := n.(type) {
	case *nameExpr:
		switch n.use {
		case useStore:
			s.store(n.name)
		case useParameter:
			s.parameter(n.name)
		default:
			s.load(n.name)
		}
	case *attributeTarget:
		s.load(n.object.name)
	case *setStmt:
		s.analyze(n.value)
		s.analyze(n.target)
	case *captureStmt:
		s.analyze(n.target)
	case *ifStmt:
		s.analyzeIf(n)
	case *forStmt:
		s.analyze(n.iterable)
	case *macroStmt:
		s.store(n.macro.name)
	case *callStmt:
		if n.call != nil {
			s.analyze(n.call)
		}
	case *filterStmt:
		s.analyze(n.filter)
	case *withStmt:
		for _, v := range n.values {
			s.analyze(v)
		}
	default:
		n.walk(s.analyze)
	}
}

// analyzeIf follows jinja2, where each elif is an if of its own, inside the
// scope of all elifs.
func (s *symbols) analyzeIf(n *ifStmt) {
	s.analyze(n.branches[0].condition)
	then := s.branch()
	then.analyzeAll(n.branches[0].body)
	elifs := s.branch()
	for _, b := range n.branches[1:] {
		elifs.analyze(b.condition)
		body := elifs.branch()
		body.analyzeAll(b.body)
		elifs.merge([]*symbols{body})
	}
	otherwise := s.branch()
	otherwise.analyzeAll(n.otherwise)
	s.merge([]*symbols{then, elifs, otherwise})
}

func (s *symbols) analyzeAll(list []stmt) {
	for _, st := range list {
		s.analyze(st)
	}
}

// mentions reports whether a name is read in nodes before it is set there, in
// the order of the source and across all scopes, as jinja2 does to find out
// whether a loop needs its variable loop and a macro its caller.
func mentions[N node](list []N, name string) bool {
	const (
		unknown = iota
		read
		hidden
	)
	state := unknown
	var visit func(n node)
	visit = func(n node) {
		if state != unknown {
			return
		}
		if e, ok := n.(*nameExpr); ok && e.name == name {
			state = hidden
			if e.use == useLoad {
				state = read
			}
			return
		}
		n.walk(visit)
	}
	for _, n := range list {
		visit(n)
	}
	return state == read
}
