package chat

import (
	"bytes"
	"math"
)

// isConstant reports whether a name cannot be a variable.
func isConstant(name string) bool {
	switch name {
	case "true", "false", "none", "True", "False", "None":
		return true
	}
	return false
}

// expression takes a whole expression, with condition also an inline if.
func (p *parser) expression(condition bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	if condition {
		return p.conditional()
	}
	return p.or()
}

func (p *parser) conditional() (expr, error) {
	e, err := p.or()
	for err == nil && p.skipName("if") {
		c := &condExpr{then: e}
		if c.condition, err = p.or(); err != nil {
			return nil, err
		}
		if p.skipName("else") {
			if c.otherwise, err = p.expression(true); err != nil {
				return nil, err
			}
		}
		e = c
	}
	return e, err
}

func (p *parser) or() (expr, error) {
	left, err := p.and()
	for err == nil && p.skipName("or") {
		var right expr
		if right, err = p.and(); err == nil {
			left = &orExpr{left, right}
		}
	}
	return left, err
}

func (p *parser) and() (expr, error) {
	left, err := p.not()
	for err == nil && p.skipName("and") {
		var right expr
		if right, err = p.not(); err == nil {
			left = &andExpr{left, right}
		}
	}
	return left, err
}

func (p *parser) not() (expr, error) {
	if !p.skipName("not") {
		return p.compare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	operand, err := p.not()
	return &notExpr{operand}, err
}

func (p *parser) compare() (expr, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	var rest []comparison
	for {
		op, ok := p.comparison()
		if !ok {
			break
		}
		operand, err := p.sum()
		if err != nil {
			return nil, err
		}
		rest = append(rest, comparison{op, operand})
	}
	if rest == nil {
		return first, nil
	}
	return &compareExpr{first, rest}, nil
}

// comparison takes an operator that compares, if there is one.
func (p *parser) comparison() (op operator, ok bool) {
	switch t := p.current(); {
	case t.kind == tokenOperator:
		switch t.text {
		case "==":
			op = opEqual
		case "!=":
			op = opNotEqual
		case "<":
			op = opLess
		case "<=":
			op = opLessEqual
		case ">":
			op = opGreater
		case ">=":
			op = opGreaterEqual
		default:
			return 0, false
		}
	case t.isName("in"):
		op = opIn
	case t.isName("not") && p.look().isName("in"):
		p.next()
		op = opNotIn
	default:
		return 0, false
	}
	p.next()
	return op, true
}

func (p *parser) sum() (expr, error) {
	left, err := p.concat()
	for err == nil {
		t := p.current()
		if !t.isOperator("+") && !t.isOperator("-") {
			break
		}
		p.next()
		var right expr
		if right, err = p.concat(); err != nil {
			break
		}
		chain, ok := left.(*addExpr)
		switch {
		case t.text == "-":
			left = &binaryExpr{opSub, left, right}
		case ok && chain.open:
			chain.terms = append(chain.terms, right)
		default:
			left = &addExpr{terms: []expr{left, right}, open: true}
		}
	}
	if chain, ok := left.(*addExpr); ok {
		chain.open = false
	}
	return left, err
}

func (p *parser) concat() (expr, error) {
	e, err := p.product()
	if err != nil || !p.current().isOperator("~") {
		return e, err
	}
	c := &concatExpr{terms: []expr{e}}
	for p.skipOperator("~") {
		if e, err = p.product(); err != nil {
			return nil, err
		}
		c.terms = append(c.terms, e)
	}
	return c, nil
}

func (p *parser) product() (expr, error) {
	left, err := p.power()
	for err == nil && p.current().kind == tokenOperator {
		var op operator
		switch p.current().text {
		case "*":
			op = opMul
		case "/":
			op = opDiv
		case "//":
			op = opFloorDiv
		case "%":
			op = opMod
		default:
			return left, nil
		}
		p.next()
		var right expr
		if right, err = p.power(); err == nil {
			left = &binaryExpr{op, left, right}
		}
	}
	return left, err
}

func (p *parser) power() (expr, error) {
	left, err := p.unary(true)
	for err == nil && p.skipOperator("**") {
		var right expr
		if right, err = p.unary(true); err == nil {
			left = &binaryExpr{opPow, left, right}
		}
	}
	return left, err
}

func (p *parser) unary(filters bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var e expr
	var err error
	switch t := p.current(); {
	case t.isOperator("-"), t.isOperator("+"):
		p.next()
		if e, err = p.unary(false); err == nil {
			e = &unaryExpr{t.text[0], e}
		}
	default:
		e, err = p.primary(false)
	}
	if err != nil {
		return nil, err
	}
	if e, err = p.postfix(e); err != nil || !filters {
		return e, err
	}
	return p.filtersAndTests(e)
}

// primary takes a name, a literal or an expression in brackets. With
// attributes, name.attribute is an attributeRef.
func (p *parser) primary(attributes bool) (expr, error) {
	t := p.current()
	switch t.kind {
	case tokenName:
		p.next()
		return p.name(t, attributes)
	case tokenString:
		text := p.next().text
		for p.current().kind == tokenString {
			text += p.next().text
		}
		return &literalExpr{String(text)}, nil
	case tokenInteger:
		p.next()
		v, ok := integerLiteral(t.text)
		if !ok {
			return nil, unsupported(t.line, "the number %.40q", t.text)
		}
		return &literalExpr{v}, nil
	case tokenFloat:
		p.next()
		v := floatLiteral(t.text)
		if math.IsInf(v.float(), 0) {
			return nil, unsupported(t.line, "the number %.40s, which jinja2 writes as a name that is not defined", t.text)
		}
		return &literalExpr{v}, nil
	}
	switch {
	case p.skipOperator("("):
		e, err := p.tuple(tupleRules{condition: true, brackets: true})
		if err != nil {
			return nil, err
		}
		return e, p.expectOperator(")")
	case p.skipOperator("["):
		return p.list()
	case p.skipOperator("{"):
		return p.dict()
	}
	return nil, p.unexpected("an expression")
}

func (p *parser) name(t token, attributes bool) (expr, error) {
	switch t.text {
	case "true", "True":
		return &literalExpr{Bool(true)}, nil
	case "false", "False":
		return &literalExpr{Bool(false)}, nil
	case "none", "None":
		return &literalExpr{None()}, nil
	}
	n := &nameExpr{name: t.text, line: t.line, undefined: undefinedNamed(t.text)}
	if attributes && p.skipOperator(".") {
		attribute, err := p.expect(tokenName, "the name of an attribute")
		return &attributeRef{target: &attributeTarget{n, String(attribute.text)}}, err
	}
	return n, nil
}

// tupleRules are the ways in which a tuple is taken.
type tupleRules struct {
	condition  bool   // items may be inline ifs
	simple     bool   // items are names, literals or in brackets: it becomes a target
	attributes bool   // of a simple tuple: name.attribute is allowed
	parameter  bool   // of a simple tuple: its names are parameters
	brackets   bool   // it stands in brackets, so it may be empty
	end        string // a name that ends it
}

// tuple takes an expression, or several with commas, which make a tuple.
func (p *parser) tuple(rules tupleRules) (expr, error) {
	var items []expr
	comma := false
	for {
		if len(items) > 0 {
			if err := p.expectOperator(","); err != nil {
				return nil, err
			}
		}
		t := p.current()
		if t.kind == tokenVariableEnd || t.kind == tokenBlockEnd || t.isOperator(")") || rules.end != "" && t.isName(rules.end) {
			break
		}
		var e expr
		var err error
		if rules.simple {
			e, err = p.primary(rules.attributes)
		} else {
			e, err = p.expression(rules.condition)
		}
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.current().isOperator(",") {
			break
		}
		comma = true
	}
	if !comma {
		if len(items) == 1 {
			return items[0], nil
		}
		if !rules.brackets {
			return nil, p.unexpected("an expression")
		}
	}
	return &tupleExpr{items}, nil
}

func (p *parser) list() (expr, error) {
	l := &listExpr{}
	for !p.skipOperator("]") {
		if len(l.items) > 0 {
			if err := p.expectOperator(","); err != nil {
				return nil, err
			}
			if p.skipOperator("]") {
				break
			}
		}
		e, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, e)
	}
	return l, nil
}

func (p *parser) dict() (expr, error) {
	d := &dictExpr{}
	for !p.skipOperator("}") {
		if len(d.keys) > 0 {
			if err := p.expectOperator(","); err != nil {
				return nil, err
			}
			if p.skipOperator("}") {
				break
			}
		}
		key, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		if err := p.expectOperator(":"); err != nil {
			return nil, err
		}
		value, err := p.expression(true)
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
	}
	return d, nil
}

// undefinedNamed is the Undefined of a name.
func undefinedNamed(name string) Value {
	return Value{kind: KindUndefined, text: bytes.Clone([]byte(name))}
}
