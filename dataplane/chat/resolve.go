package chat

// resolver gives each name its place. It goes through the tree in the order in
// which jinja2 generates code.
type resolver struct {
	// context numbers the names that come from outside of the template.
	context map[string]int
	names   []string
	err     error
	loops   int // around the statement, within its function
}

func (r *resolver) fail(line int, format string, args ...any) {
	if r.err == nil {
		r.err = unsupported(line, format, args...)
	}
}

func (r *resolver) outside(name string) place {
	i, ok := r.context[name]
	if !ok {
		i = len(r.names)
		r.context[name] = i
		r.names = append(r.names, name)
	}
	return place{placeContext, i}
}

// template resolves a whole template.
func (r *resolver) template(body []stmt) (functionScope, scope) {
	function := newFunctionSymbols(nil)
	s := newSymbols(nil, function)
	s.analyzeAll(body)
	r.body(body, s)
	enter := r.scope(s)
	return function.done(), enter
}

// lookup returns the place of a name as seen from the scope at.
func (r *resolver) lookup(name string, at *symbols) (place, bool) {
	owner := at.find(name)
	if owner == nil {
		return place{}, false
	}
	if owner.loads[name] == loadContext && !owner.stores[name] {
		return r.outside(name), true // nobody changes it: no slot needed
	}
	hops := 0
	for f := at.function; f != owner.function; f = f.outer {
		hops++
	}
	return place{hops, owner.function.slot(owner.ident(name))}, true
}

// scope returns what to do at the begin of a scope.
func (r *resolver) scope(s *symbols) scope {
	var sc scope
	for _, name := range s.order {
		entry := load{}
		switch s.loads[name] {
		case loadParameter:
			sc.parameters = append(sc.parameters, s.function.slot(s.ident(name)))
			continue
		case loadContext:
			if !s.stores[name] {
				continue // see lookup
			}
			entry.from = r.outside(name)
		case loadAlias:
			// From where the scope begins, so from its parent.
			entry.from, _ = r.lookup(name, s.parent)
			if s.function != s.parent.function && entry.from.hops != placeContext {
				entry.from.hops++
			}
		case loadNone:
			entry.none = true
		}
		entry.slot = s.function.slot(s.ident(name))
		sc.loads = append(sc.loads, entry)
	}
	return sc
}

func (r *resolver) body(list []stmt, at *symbols) {
	for _, s := range list {
		r.stmt(s, at)
	}
}

// expr resolves all names in an expression or target.
func (r *resolver) expr(n node, at *symbols) {
	switch n := n.(type) {
	case nil:
	case *nameExpr:
		r.name(n, at)
	case *attributeTarget:
		r.name(n.object, at)
	default:
		n.walk(func(child node) { r.expr(child, at) })
	}
}

func (r *resolver) name(n *nameExpr, at *symbols) {
	switch n.name {
	case "self", "lipsum":
		r.fail(n.line, "the name %s", n.name)
	}
	var ok bool
	if n.at, ok = r.lookup(n.name, at); !ok {
		r.fail(n.line, "the name %s, which jinja2 cannot find here either", n.name)
	}
}

func (r *resolver) stmt(s stmt, at *symbols) {
	switch s := s.(type) {
	case *printStmt:
		r.expr(s.value, at)
	case *setStmt:
		r.expr(s.value, at)
		r.expr(s.target, at)
	case *captureStmt:
		inner := newSymbols(at, at.function)
		inner.analyzeAll(s.body)
		r.body(s.body, inner)
		r.expr(s.target, at)
		if s.filter != nil {
			r.expr(s.filter, inner)
		}
		s.scope = r.scope(inner)
	case *ifStmt:
		for _, b := range s.branches {
			r.expr(b.condition, at)
			r.body(b.body, at)
		}
		r.body(s.otherwise, at)
	case *forStmt:
		r.forLoop(s, at)
	case *macroStmt:
		r.macro(s.macro, at)
		r.expr(s.name, at)
	case *callStmt:
		r.macro(s.caller, at)
		if s.call != nil {
			r.expr(s.call, at)
		}
	case *filterStmt:
		inner := newSymbols(at, at.function)
		inner.analyzeAll(s.body)
		inner.analyze(s.filter)
		r.body(s.body, inner)
		r.expr(s.filter, inner)
		s.scope = r.scope(inner)
	case *withStmt:
		inner := newSymbols(at, at.function)
		for i, t := range s.targets {
			inner.analyze(t)
			r.expr(s.values[i], at)
		}
		inner.analyzeAll(s.body)
		for _, t := range s.targets {
			r.expr(t, inner)
		}
		r.body(s.body, inner)
		s.scope = r.scope(inner)
	case *breakStmt:
		r.inLoop(s.line, "break")
	case *continueStmt:
		r.inLoop(s.line, "continue")
	}
}

// inLoop refuses what would be a syntax error in the Python code that jinja2
// generates.
func (r *resolver) inLoop(line int, what string) {
	if r.loops == 0 {
		r.fail(line, "%s outside of a loop", what)
	}
}

func (r *resolver) forLoop(s *forStmt, at *symbols) {
	r.expr(s.iterable, at)
	s.extended = s.recursive || mentions(s.body, "loop")
	r.refuseStoringLoop(s)
	function, loops := at.function, r.loops
	if s.recursive {
		function, r.loops = newFunctionSymbols(at.function), 0
	}

	inner := newSymbols(at, function)
	if s.extended {
		inner.parameter("loop")
	}
	analyzeTarget(inner, s.target)
	inner.analyzeAll(s.body)
	r.expr(s.target, inner)
	if s.extended {
		s.loop, _ = r.lookup("loop", inner)
	}
	if s.condition != nil {
		s.filter = r.loopFilter(s, at)
	}
	r.loops++
	r.body(s.body, inner)
	r.loops--
	s.scope = r.scope(inner)

	if s.otherwise != nil {
		other := newSymbols(at, function)
		other.analyzeAll(s.otherwise)
		r.body(s.otherwise, other)
		s.elseScope = r.scope(other)
	}
	if s.recursive {
		s.function, r.loops = function.done(), loops
	}
}

// analyzeTarget declares the names of a loop's target: parameters, whatever
// they are elsewhere.
func analyzeTarget(s *symbols, t node) {
	switch t := t.(type) {
	case *nameExpr:
		s.parameter(t.name)
	case *tupleTarget:
		for _, item := range t.items {
			analyzeTarget(s, item)
		}
	}
}

func (r *resolver) refuseStoringLoop(s *forStmt) {
	var visit func(n node)
	visit = func(n node) {
		if e, ok := n.(*nameExpr); ok && e.use == useStore && e.name == "loop" {
			r.fail(e.line, "an assignment to the variable loop")
		}
		n.walk(visit)
	}
	visit(s)
}

// loopFilter is the condition of a loop: a function of its own, which runs
// when the loop asks for its next item.
type loopFilter struct {
	target    target
	condition expr
	scope     scope
	function  functionScope
}

func (r *resolver) loopFilter(s *forStmt, at *symbols) *loopFilter {
	function := newFunctionSymbols(at.function)
	inner := newSymbols(at, function)
	analyzeTarget(inner, s.target)
	inner.analyze(s.condition)
	f := &loopFilter{target: copyTarget(s.target), condition: s.condition}
	r.expr(f.target, inner)
	r.expr(f.condition, inner)
	f.scope = r.scope(inner)
	f.function = function.done()
	return f
}

// copyTarget returns a target that can have a place of its own.
func copyTarget(t target) target {
	switch t := t.(type) {
	case *nameExpr:
		n := *t
		return &n
	case *tupleTarget:
		c := &tupleTarget{}
		for _, item := range t.items {
			c.items = append(c.items, copyTarget(item))
		}
		return c
	}
	return t
}

// macro resolves the body of a macro or call block.
func (r *resolver) macro(d *macroDef, at *symbols) {
	function := newFunctionSymbols(at.function)
	loops := r.loops
	r.loops = 0
	inner := newSymbols(at, function)
	analyze := func() {
		for _, p := range d.params {
			inner.parameter(p.name)
		}
		for _, e := range d.defaults {
			inner.analyze(e)
		}
		inner.analyzeAll(d.body)
	}
	analyze()
	special := func(name string) int {
		for _, p := range d.params {
			if p.name == name {
				if name == "caller" && mentions(d.body, name) {
					r.fail(d.line, "a macro with a parameter named caller")
				}
				return -1
			}
		}
		if !mentions(d.body, name) {
			return -1
		}
		inner.parameter(name)
		at, _ := r.lookup(name, inner)
		return at.slot
	}
	d.caller, d.kwargs, d.varargs = special("caller"), special("kwargs"), special("varargs")
	analyze()
	for _, p := range d.params {
		r.expr(p, inner)
	}
	for _, e := range d.defaults {
		r.expr(e, inner)
	}
	r.body(d.body, inner)
	d.scope = r.scope(inner)
	d.function = function.done()
	r.loops = loops
}
