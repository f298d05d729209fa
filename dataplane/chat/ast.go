package chat

// The tree of a template. Nodes are immutable once Compile is done. Each kind
// of node says its children in the order in which jinja2 visits them, which
// decides about the scope of names (scope.go).

type node interface {
	walk(visit func(node))
}

// expr is an expression.
type expr interface {
	node
	eval(m *Machine, f *frame) (Value, error)
}

// stmt is a statement; flow says how a loop around it goes on.
type stmt interface {
	node
	exec(m *Machine, f *frame) (flow, error)
}

type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

// target is what can be assigned to: a nameExpr, an attributeTarget or a
// tupleTarget.
type target interface {
	node
	assign(m *Machine, f *frame, v Value) error
}

// use says what a name stands for.
type use uint8

const (
	useLoad use = iota
	useStore
	useParameter
)

// Expressions.
type (
	literalExpr struct{ value Value }

	nameExpr struct {
		name string
		use  use
		line int
		at   place
		// undefined is what the name stands for without a value.
		undefined Value
	}

	// attributeExpr is x.name, and x["name"] if item is set: they differ in
	// whether a method or a key of a dict comes first.
	attributeExpr struct {
		object expr
		name   attributeName
		item   bool
		line   int
	}

	itemExpr struct {
		object, key expr
	}

	sliceExpr struct {
		object            expr
		start, stop, step expr // nil where absent
		fresh             bool // not yet behind its object: the parser only
	}

	callExpr struct {
		callee expr
		args   callArgs
		line   int
	}

	// filterExpr has no input in filter blocks: the text of the block is it.
	filterExpr struct {
		input  expr
		filter *function
		name   string
		args   callArgs
		line   int
	}

	testExpr struct {
		input expr
		test  *function
		name  string
		args  callArgs
		line  int
	}

	unaryExpr struct {
		op      byte // '-' or '+'
		operand expr
	}

	notExpr struct{ operand expr }

	binaryExpr struct {
		op          operator
		left, right expr
	}

	// addExpr is a chain of + from left to right, two or more.
	addExpr struct {
		terms []expr
		open  bool // the parser may add terms
	}

	// concatExpr is a chain of ~.
	concatExpr struct{ terms []expr }

	andExpr struct{ left, right expr }
	orExpr  struct{ left, right expr }

	compareExpr struct {
		first expr
		rest  []comparison
	}

	// condExpr is "then if condition else otherwise"; without otherwise it is
	// undefined.
	condExpr struct {
		condition, then, otherwise expr
	}

	listExpr  struct{ items []expr }
	tupleExpr struct{ items []expr }

	dictExpr struct {
		keys, values []expr
	}
)

// comparison is one operator of a chain with its right side.
type comparison struct {
	op      operator
	operand expr
}

// callArgs are the arguments of a call as they are written.
type callArgs struct {
	positional []expr
	names      []string
	named      []expr // one for each of names
	star       expr   // *x, nil if absent
	starStar   expr   // **x
}

// Statements.
type (
	dataStmt struct{ text []byte }

	printStmt struct {
		value expr
		line  int
	}

	setStmt struct {
		target target
		value  expr
		line   int
	}

	// captureStmt is a set block. filter, if any, ends in a filterExpr without
	// input.
	captureStmt struct {
		target target
		filter expr
		body   []stmt
		scope  scope
		line   int
	}

	ifStmt struct {
		branches  []ifBranch
		otherwise []stmt
	}

	forStmt struct {
		target    target
		iterable  expr
		condition expr // nil if absent
		body      []stmt
		otherwise []stmt
		recursive bool
		extended  bool // the body uses the variable loop
		loop      place
		scope     scope
		elseScope scope
		filter    *loopFilter // nil without condition
		function  functionScope
		line      int
	}

	macroStmt struct {
		macro *macroDef
		name  *nameExpr // what it is bound to
	}

	// callStmt is a call block, and a generation block: that one has no call.
	callStmt struct {
		caller *macroDef
		call   *callExpr
		line   int
	}

	filterStmt struct {
		filter expr
		body   []stmt
		scope  scope
		line   int
	}

	withStmt struct {
		targets []target
		values  []expr
		body    []stmt
		scope   scope
		line    int
	}

	breakStmt    struct{ line int }
	continueStmt struct{ line int }

	// attributeTarget is name.attribute on the left of a set.
	attributeTarget struct {
		object    *nameExpr
		attribute Value
	}

	tupleTarget struct{ items []target }

	// attributeRef carries an attributeTarget through the parser.
	attributeRef struct {
		literalExpr
		target *attributeTarget
	}
)

type ifBranch struct {
	condition expr
	body      []stmt
	line      int
}

// macroDef is the definition of a macro or of the body of a call block.
type macroDef struct {
	name     string // empty for a call block
	params   []*nameExpr
	defaults []expr // of the last parameters
	body     []stmt
	function functionScope
	scope    scope
	line     int
	// Where the caller, further named and further positional arguments go, if
	// the body asks for them: slots of its function, else -1.
	caller, kwargs, varargs int
}

func walkExprs(list []expr, visit func(node)) {
	for _, e := range list {
		visit(e)
	}
}

func walkStmts(list []stmt, visit func(node)) {
	for _, s := range list {
		visit(s)
	}
}

func walkOptional(visit func(node), list ...expr) {
	for _, e := range list {
		if e != nil {
			visit(e)
		}
	}
}

func (a *callArgs) walk(visit func(node)) {
	walkExprs(a.positional, visit)
	walkExprs(a.named, visit)
	walkOptional(visit, a.star, a.starStar)
}

func (*literalExpr) walk(func(node))           {}
func (*nameExpr) walk(func(node))              {}
func (e *attributeExpr) walk(visit func(node)) { visit(e.object) }
func (e *itemExpr) walk(visit func(node))      { visit(e.object); visit(e.key) }
func (e *sliceExpr) walk(visit func(node)) {
	walkOptional(visit, e.object, e.start, e.stop, e.step)
}
func (e *callExpr) walk(visit func(node))   { visit(e.callee); e.args.walk(visit) }
func (e *filterExpr) walk(visit func(node)) { walkOptional(visit, e.input); e.args.walk(visit) }
func (e *testExpr) walk(visit func(node))   { visit(e.input); e.args.walk(visit) }
func (e *unaryExpr) walk(visit func(node))  { visit(e.operand) }
func (e *notExpr) walk(visit func(node))    { visit(e.operand) }
func (e *binaryExpr) walk(visit func(node)) { visit(e.left); visit(e.right) }
func (e *addExpr) walk(visit func(node))    { walkExprs(e.terms, visit) }
func (e *concatExpr) walk(visit func(node)) { walkExprs(e.terms, visit) }
func (e *andExpr) walk(visit func(node))    { visit(e.left); visit(e.right) }
func (e *orExpr) walk(visit func(node))     { visit(e.left); visit(e.right) }
func (e *compareExpr) walk(visit func(node)) {
	visit(e.first)
	for _, c := range e.rest {
		visit(c.operand)
	}
}

func (e *condExpr) walk(visit func(node)) {
	walkOptional(visit, e.condition, e.then, e.otherwise)
}
func (e *listExpr) walk(visit func(node))  { walkExprs(e.items, visit) }
func (e *tupleExpr) walk(visit func(node)) { walkExprs(e.items, visit) }
func (e *dictExpr) walk(visit func(node)) {
	for i := range e.keys {
		visit(e.keys[i])
		visit(e.values[i])
	}
}

func (*dataStmt) walk(func(node))          {}
func (s *printStmt) walk(visit func(node)) { visit(s.value) }
func (s *setStmt) walk(visit func(node))   { visit(s.target); visit(s.value) }
func (s *captureStmt) walk(visit func(node)) {
	visit(s.target)
	walkOptional(visit, s.filter)
	walkStmts(s.body, visit)
}

func (s *ifStmt) walk(visit func(node)) {
	for _, b := range s.branches {
		visit(b.condition)
		walkStmts(b.body, visit)
	}
	walkStmts(s.otherwise, visit)
}

func (s *forStmt) walk(visit func(node)) {
	visit(s.target)
	visit(s.iterable)
	walkStmts(s.body, visit)
	walkStmts(s.otherwise, visit)
	walkOptional(visit, s.condition)
}

func (d *macroDef) walk(visit func(node)) {
	for _, p := range d.params {
		visit(p)
	}
	walkExprs(d.defaults, visit)
	walkStmts(d.body, visit)
}
func (s *macroStmt) walk(visit func(node)) { s.macro.walk(visit) }
func (s *callStmt) walk(visit func(node)) {
	if s.call != nil {
		visit(s.call)
	}
	s.caller.walk(visit)
}

func (s *filterStmt) walk(visit func(node)) {
	walkStmts(s.body, visit)
	visit(s.filter)
}

func (s *withStmt) walk(visit func(node)) {
	for _, t := range s.targets {
		visit(t)
	}
	walkExprs(s.values, visit)
	walkStmts(s.body, visit)
}
func (*breakStmt) walk(func(node))               {}
func (*continueStmt) walk(func(node))            {}
func (t *attributeTarget) walk(visit func(node)) {}
func (t *tupleTarget) walk(visit func(node)) {
	for _, item := range t.items {
		visit(item)
	}
}
