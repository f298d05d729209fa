package chat

// postfix takes subscripts, attributes and calls.
func (p *parser) postfix(e expr) (expr, error) {
	for {
		t := p.current()
		var err error
		switch {
		case t.isOperator("."):
			e, err = p.attribute(e)
		case t.isOperator("["):
			e, err = p.subscript(e)
		case t.isOperator("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) attribute(object expr) (expr, error) {
	line := p.next().line
	switch t := p.next(); t.kind {
	case tokenName:
		return &attributeExpr{object: object, name: newAttributeName(t.text), line: line}, nil
	case tokenInteger:
		v, ok := integerLiteral(t.text)
		if !ok {
			return nil, unsupported(line, "the number %.40q", t.text)
		}
		return &itemExpr{object, &literalExpr{v}}, nil
	}
	return nil, unsupported(line, "a dot without a name or number behind it")
}

// subscript takes what stands in square brackets: a key, a slice, or several
// keys, which make a tuple.
func (p *parser) subscript(object expr) (expr, error) {
	line := p.next().line
	var keys []expr
	for !p.skipOperator("]") {
		if len(keys) > 0 {
			if err := p.expectOperator(","); err != nil {
				return nil, err
			}
		}
		key, err := p.subscripted(object)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	if len(keys) != 1 {
		for _, key := range keys {
			if _, ok := key.(*sliceExpr); ok {
				return nil, unsupported(line, "a slice among several keys")
			}
		}
		return &itemExpr{object, &tupleExpr{keys}}, nil
	}
	switch key := keys[0].(type) {
	case *sliceExpr:
		if key.fresh {
			key.fresh = false
			return key, nil
		}
	case *literalExpr:
		if key.value.kind == KindString {
			return &attributeExpr{object: object, name: newAttributeName(string(key.value.text)), item: true, line: line}, nil
		}
	}
	return &itemExpr{object, keys[0]}, nil
}

// subscripted takes a key or a slice.
func (p *parser) subscripted(object expr) (expr, error) {
	s := &sliceExpr{object: object, fresh: true}
	var err error
	if !p.current().isOperator(":") {
		if s.start, err = p.expression(true); err != nil || !p.current().isOperator(":") {
			return s.start, err
		}
	}
	p.next()
	ends := func() bool { return p.current().isOperator("]") || p.current().isOperator(",") }
	if !p.current().isOperator(":") && !ends() {
		if s.stop, err = p.expression(true); err != nil {
			return nil, err
		}
	}
	if p.skipOperator(":") && !ends() {
		s.step, err = p.expression(true)
	}
	return s, err
}

func (p *parser) call(callee expr) (expr, error) {
	line := p.current().line
	args, err := p.arguments()
	return &callExpr{callee, args, line}, err
}

// arguments takes what stands in the brackets of a call.
func (p *parser) arguments() (callArgs, error) {
	line := p.next().line
	var a callArgs
	for first := true; !p.skipOperator(")"); first = false {
		if !first {
			if err := p.expectOperator(","); err != nil {
				return a, err
			}
			if p.skipOperator(")") {
				break
			}
		}
		var ok bool
		var err error
		switch t := p.current(); {
		case t.isOperator("*"):
			ok = a.star == nil && a.starStar == nil
			p.next()
			a.star, err = p.expression(true)
		case t.isOperator("**"):
			ok = a.starStar == nil
			p.next()
			a.starStar, err = p.expression(true)
		case t.kind == tokenName && p.look().isOperator("="):
			ok = a.starStar == nil
			p.next()
			p.next()
			for _, name := range a.names {
				ok = ok && name != t.text
			}
			var e expr
			e, err = p.expression(true)
			a.names, a.named = append(a.names, t.text), append(a.named, e)
		default:
			ok = a.star == nil && a.starStar == nil && a.names == nil
			var e expr
			e, err = p.expression(true)
			a.positional = append(a.positional, e)
		}
		if err != nil {
			return a, err
		}
		if !ok {
			return a, unsupported(line, "a call whose arguments Python refuses")
		}
	}
	return a, nil
}

// filtersAndTests takes what comes behind a postfix expression.
func (p *parser) filtersAndTests(e expr) (expr, error) {
	for {
		t := p.current()
		var err error
		switch {
		case t.isOperator("|"):
			e, err = p.filters(e)
		case t.isName("is"):
			e, err = p.test(e)
		case t.isOperator("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filters takes a chain of filters, each with its |.
func (p *parser) filters(e expr) (expr, error) {
	for p.skipOperator("|") {
		var err error
		if e, err = p.filter(e); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// filter takes the name and the arguments of a filter.
func (p *parser) filter(input expr) (expr, error) {
	t, err := p.dotted("the name of a filter")
	if err != nil {
		return nil, err
	}
	f := &filterExpr{input: input, name: t.text, line: t.line, filter: filters[t.text]}
	if f.filter == nil {
		return nil, unsupported(t.line, "the filter %.40q", t.text)
	}
	if p.current().isOperator("(") {
		f.args, err = p.arguments()
	}
	return f, err
}

func (p *parser) dotted(want string) (token, error) {
	t, err := p.expect(tokenName, want)
	for err == nil && p.skipOperator(".") {
		var more token
		more, err = p.expect(tokenName, want)
		t.text += "." + more.text
	}
	return t, err
}

// test takes a test behind is: an argument needs no brackets.
func (p *parser) test(input expr) (expr, error) {
	p.next()
	negated := p.skipName("not")
	t, err := p.dotted("the name of a test")
	if err != nil {
		return nil, err
	}
	e := &testExpr{input: input, name: t.text, line: t.line, test: tests[t.text]}
	if e.test == nil {
		return nil, unsupported(t.line, "the test %.40q", t.text)
	}
	switch next := p.current(); {
	case next.isOperator("("):
		e.args, err = p.arguments()
	case next.isName("else"), next.isName("or"), next.isName("and"):
	case next.isName("is"):
		return nil, unsupported(next.line, "several tests in a row")
	case next.kind == tokenName, next.kind == tokenString, next.kind == tokenInteger, next.kind == tokenFloat,
		next.isOperator("["), next.isOperator("{"):
		var arg expr
		if arg, err = p.primary(false); err == nil {
			arg, err = p.postfix(arg)
		}
		e.args.positional = []expr{arg}
	}
	if err != nil {
		return nil, err
	}
	if negated {
		return &notExpr{e}, nil
	}
	return e, nil
}
