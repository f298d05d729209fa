package chat

import "slices"

// The parser follows jinja2.parser: the same grammar, the same precedence.

const (
	// mostSource is the longest template that is compiled, in bytes. The
	// longest known chat templates have some 30 KB.
	mostSource = 1 << 20
	// mostNesting bounds the height of the tree, and with it the stack that
	// evaluation needs.
	mostNesting = 150
)

type parser struct {
	tokens []token
	at     int
	depth  int
}

func (p *parser) current() token { return p.tokens[p.at] }

// look returns the token after the current one.
func (p *parser) look() token { return p.tokens[min(p.at+1, len(p.tokens)-1)] }

// next goes one token ahead and returns the old one. It stays at the EOF.
func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokenEOF {
		p.at++
	}
	return t
}

func (t token) isOperator(op string) bool { return t.kind == tokenOperator && t.text == op }

func (t token) isName(name string) bool { return t.kind == tokenName && t.text == name }

func (p *parser) skipOperator(op string) bool {
	if p.current().isOperator(op) {
		p.at++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.current().isName(name) {
		p.at++
		return true
	}
	return false
}

func (p *parser) unexpected(want string) error {
	return unsupported(p.current().line, "unexpected %v, want %s", p.current(), want)
}

func (p *parser) expect(kind tokenKind, want string) (token, error) {
	if p.current().kind != kind {
		return token{}, p.unexpected(want)
	}
	return p.next(), nil
}

func (p *parser) expectOperator(op string) error {
	if !p.skipOperator(op) {
		return p.unexpected(op)
	}
	return nil
}

func (p *parser) expectName(name string) error {
	if !p.skipName(name) {
		return p.unexpected(name)
	}
	return nil
}

// enter counts nesting; the caller must leave.
func (p *parser) enter() error {
	if p.depth++; p.depth > mostNesting {
		return unsupported(p.current().line, "nested more than %d levels deep", mostNesting)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

// parse returns the tree of a template.
func parse(source string) ([]stmt, error) {
	if len(source) > mostSource {
		return nil, unsupported(0, "longer than %d bytes", mostSource)
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := parser{tokens: tokens}
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	if p.current().kind != tokenEOF {
		return nil, p.unexpected("the end of the template")
	}
	height := 0
	for _, s := range body {
		height = max(height, heightOf(s))
	}
	if height > 2*mostNesting {
		return nil, unsupported(0, "an expression is nested more than %d levels deep", 2*mostNesting)
	}
	return body, nil
}

// heightOf measures a tree. Chains of operators make trees high without
// nesting in the source.
func heightOf(n node) int {
	height := 0
	n.walk(func(child node) { height = max(height, heightOf(child)) })
	return height + 1
}

// body takes statements up to one of the end tags, which stays the current
// token, behind its {%; or up to the end of the template if there are none.
func (p *parser) body(ends ...string) ([]stmt, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var list []stmt
	for {
		t := p.next()
		switch t.kind {
		case tokenEOF:
			if len(ends) > 0 {
				return nil, unsupported(t.line, "the template ends, want %s", ends[len(ends)-1])
			}
			return list, nil
		case tokenData:
			list = append(list, &dataStmt{text: []byte(t.text)})
		case tokenVariableBegin:
			value, err := p.tuple(tupleRules{condition: true})
			if err != nil {
				return nil, err
			}
			if _, err := p.expect(tokenVariableEnd, "}}"); err != nil {
				return nil, err
			}
			list = append(list, &printStmt{value, t.line})
		case tokenBlockBegin:
			if p.current().kind == tokenName && slices.Contains(ends, p.current().text) {
				return list, nil
			}
			statements, err := p.statement()
			if err != nil {
				return nil, err
			}
			if _, err := p.expect(tokenBlockEnd, "%}"); err != nil {
				return nil, err
			}
			list = append(list, statements...)
		default:
			return nil, unsupported(t.line, "unexpected %v", t)
		}
	}
}

// block takes the end of the current tag, a body, and the end tag; it returns
// which one it was.
func (p *parser) block(ends ...string) (list []stmt, end string, err error) {
	p.skipOperator(":")
	if _, err := p.expect(tokenBlockEnd, "%}"); err != nil {
		return nil, "", err
	}
	if list, err = p.body(ends...); err != nil {
		return nil, "", err
	}
	return list, p.next().text, nil
}

// statement takes what stands in a tag up to its %}.
func (p *parser) statement() ([]stmt, error) {
	t, err := p.expect(tokenName, "the name of a tag")
	if err != nil {
		return nil, err
	}
	if t.text == "print" {
		return p.print(t.line)
	}
	s, err := p.oneStatement(t)
	return []stmt{s}, err
}

func (p *parser) oneStatement(t token) (stmt, error) {
	switch t.text {
	case "for":
		return p.forLoop(t.line)
	case "if":
		return p.ifElse()
	case "set":
		return p.set(t.line)
	case "macro":
		return p.macro(t.line)
	case "call":
		return p.callBlock(t.line)
	case "generation":
		return p.generation(t.line)
	case "filter":
		return p.filterBlock(t.line)
	case "with":
		return p.with(t.line)
	case "break":
		return &breakStmt{t.line}, nil
	case "continue":
		return &continueStmt{t.line}, nil
	}
	return nil, unsupported(t.line, "the tag %.40q", t.text)
}

func (p *parser) print(line int) ([]stmt, error) {
	var list []stmt
	for p.current().kind != tokenBlockEnd && p.current().kind != tokenEOF {
		if len(list) > 0 {
			if err := p.expectOperator(","); err != nil {
				return nil, err
			}
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		list = append(list, &printStmt{value, line})
	}
	return list, nil
}

func (p *parser) forLoop(line int) (stmt, error) {
	s := &forStmt{line: line}
	var err error
	if s.target, err = p.target(tupleRules{simple: true, end: "in"}); err != nil {
		return nil, err
	}
	if err := p.expectName("in"); err != nil {
		return nil, err
	}
	if s.iterable, err = p.tuple(tupleRules{end: "recursive"}); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.condition, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	s.recursive = p.skipName("recursive")
	var end string
	if s.body, end, err = p.block("else", "endfor"); err != nil {
		return nil, err
	}
	if end == "else" {
		s.otherwise, _, err = p.block("endfor")
	}
	return s, err
}

func (p *parser) ifElse() (stmt, error) {
	s := &ifStmt{}
	for {
		branch := ifBranch{line: p.current().line}
		var end string
		var err error
		if branch.condition, err = p.tuple(tupleRules{}); err != nil {
			return nil, err
		}
		if branch.body, end, err = p.block("elif", "else", "endif"); err != nil {
			return nil, err
		}
		s.branches = append(s.branches, branch)
		switch end {
		case "else":
			s.otherwise, _, err = p.block("endif")
			return s, err
		case "endif":
			return s, nil
		}
	}
}

func (p *parser) set(line int) (stmt, error) {
	goal, err := p.target(tupleRules{simple: true, attributes: true})
	if err != nil {
		return nil, err
	}
	if p.skipOperator("=") {
		value, err := p.tuple(tupleRules{condition: true})
		return &setStmt{goal, value, line}, err
	}
	s := &captureStmt{target: goal, line: line}
	if s.filter, err = p.filters(nil); err != nil {
		return nil, err
	}
	s.body, _, err = p.block("endset")
	return s, err
}

func (p *parser) macro(line int) (stmt, error) {
	name, err := p.expect(tokenName, "the name of the macro")
	if err != nil {
		return nil, err
	}
	if isConstant(name.text) {
		return nil, unsupported(line, "a macro named %s", name.text)
	}
	d := &macroDef{name: name.text, line: line}
	if err := p.signature(d); err != nil {
		return nil, err
	}
	d.body, _, err = p.block("endmacro")
	return &macroStmt{d, &nameExpr{name: name.text, use: useStore, line: line}}, err
}

// signature takes the parameters of a macro or call block.
func (p *parser) signature(d *macroDef) error {
	if err := p.expectOperator("("); err != nil {
		return err
	}
	for !p.current().isOperator(")") {
		if len(d.params) > 0 {
			if err := p.expectOperator(","); err != nil {
				return err
			}
		}
		t, err := p.expect(tokenName, "the name of a parameter")
		if err != nil {
			return err
		}
		if isConstant(t.text) {
			return unsupported(t.line, "a parameter named %s", t.text)
		}
		for _, other := range d.params {
			if other.name == t.text {
				return unsupported(t.line, "two parameters named %s", t.text)
			}
		}
		d.params = append(d.params, &nameExpr{name: t.text, use: useParameter, line: t.line, undefined: undefinedNamed(t.text)})
		if p.skipOperator("=") {
			value, err := p.expression(true)
			if err != nil {
				return err
			}
			d.defaults = append(d.defaults, value)
		} else if len(d.defaults) > 0 {
			return unsupported(t.line, "the parameter %s without a default follows one with a default", t.text)
		}
	}
	p.next()
	return nil
}

func (p *parser) callBlock(line int) (stmt, error) {
	s := &callStmt{caller: &macroDef{line: line}, line: line}
	if p.current().isOperator("(") {
		if err := p.signature(s.caller); err != nil {
			return nil, err
		}
	}
	e, err := p.expression(true)
	if err != nil {
		return nil, err
	}
	var ok bool
	if s.call, ok = e.(*callExpr); !ok {
		return nil, unsupported(line, "a call block without a call")
	}
	s.caller.body, _, err = p.block("endcall")
	return s, err
}

// generation takes the block that transformers adds to mark what the assistant
// says. It is a call block whose call returns what the block prints.
func (p *parser) generation(line int) (stmt, error) {
	s := &callStmt{caller: &macroDef{line: line}, line: line}
	var err error
	s.caller.body, _, err = p.block("endgeneration")
	return s, err
}

func (p *parser) filterBlock(line int) (stmt, error) {
	s := &filterStmt{line: line}
	var err error
	if s.filter, err = p.filter(nil); err != nil {
		return nil, err
	}
	if s.filter, err = p.filters(s.filter); err != nil {
		return nil, err
	}
	s.body, _, err = p.block("endfilter")
	return s, err
}

func (p *parser) with(line int) (stmt, error) {
	s := &withStmt{line: line}
	for p.current().kind != tokenBlockEnd && p.current().kind != tokenEOF {
		if len(s.targets) > 0 {
			if err := p.expectOperator(","); err != nil {
				return nil, err
			}
		}
		goal, err := p.target(tupleRules{simple: true, parameter: true})
		if err != nil {
			return nil, err
		}
		if err := p.expectOperator("="); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, goal), append(s.values, value)
	}
	var err error
	s.body, _, err = p.block("endwith")
	return s, err
}

// target takes what an assignment assigns to.
func (p *parser) target(rules tupleRules) (target, error) {
	line := p.current().line
	e, err := p.tuple(rules)
	if err != nil {
		return nil, err
	}
	kind := useStore
	if rules.parameter {
		kind = useParameter
	}
	return asTarget(e, kind, line)
}

// asTarget turns an expression into a target, if it can be one.
func asTarget(e expr, kind use, line int) (target, error) {
	switch e := e.(type) {
	case *nameExpr:
		e.use = kind
		return e, nil
	case *attributeRef:
		return e.target, nil
	case *tupleExpr:
		goals := &tupleTarget{}
		for _, item := range e.items {
			goal, err := asTarget(item, kind, line)
			if err != nil {
				return nil, err
			}
			goals.items = append(goals.items, goal)
		}
		return goals, nil
	}
	return nil, unsupported(line, "an assignment to what is no variable")
}
