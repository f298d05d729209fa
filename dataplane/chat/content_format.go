package chat

import "strings"

// ContentFormat says in which form the template wants the content of messages,
// as the engine would find out: it looks in the syntax tree for a loop over the
// content of a message, and is followed here in what it overlooks too.
func (t *Template) ContentFormat(e Engine) ContentFormat {
	var f formatFinder
	f.collect(t.tree)
	if e == SGLang {
		return f.sglang(t)
	}
	return f.vllm()
}

// mentions reports whether the source has a text in it.
func (t *Template) mentions(text string) bool { return strings.Contains(t.source, text) }

// formatFinder holds the nodes of a template that matter here, in the order of
// the source.
type formatFinder struct {
	loops    []loopNode
	sets     []*setStmt
	macros   []*macroDef
	calls    []*callExpr
	inMacros []*macroDef // those around the node that is being collected
}

type loopNode struct {
	*forStmt
	macros []*macroDef // around it, from the outside
}

func (f *formatFinder) collect(tree []stmt) {
	for _, s := range tree {
		f.visit(s)
	}
}

func (f *formatFinder) visit(n node) {
	switch n := n.(type) {
	case *forStmt:
		f.loops = append(f.loops, loopNode{n, append([]*macroDef(nil), f.inMacros...)})
	case *setStmt:
		f.sets = append(f.sets, n)
	case *callExpr:
		f.calls = append(f.calls, n)
	case *macroStmt:
		f.macros = append(f.macros, n.macro)
		f.inMacros = append(f.inMacros, n.macro)
		n.walk(f.visit)
		f.inMacros = f.inMacros[:len(f.inMacros)-1]
		return
	}
	n.walk(f.visit)
}

// vllm follows vllm/renderers/hf.py, _detect_content_format (0.32.0). Where
// that raises, on a target that is no plain name, it takes "string".
func (f *formatFinder) vllm() ContentFormat {
	names, ok := f.namesOfMessages()
	if !ok {
		return ContentString
	}
	var ofMessage []string
	for _, loop := range f.loops {
		if !accessesAny(loop.iterable, names, "") {
			continue
		}
		name, ok := loop.target.(*nameExpr)
		if !ok {
			return ContentString
		}
		ofMessage = append(ofMessage, name.name)
	}
	params := f.contentParams(ofMessage)
	for _, loop := range f.loops {
		if !f.loopsOverContent(loop, ofMessage, params) {
			continue
		}
		if _, ok := loop.target.(*nameExpr); ok {
			return ContentParts
		}
		return ContentString
	}
	return ContentString
}

func (f *formatFinder) loopsOverContent(loop loopNode, ofMessage []string, params map[*macroDef][]string) bool {
	if accessesAny(loop.iterable, ofMessage, "content") {
		return true
	}
	name, ok := loop.iterable.(*nameExpr)
	if !ok {
		return false
	}
	if len(loop.macros) == 0 {
		return name.name == "content"
	}
	// Of nested macros the innermost that takes content decides.
	for i := len(loop.macros) - 1; i >= 0; i-- {
		if list := params[loop.macros[i]]; list != nil {
			return contains(list, name.name)
		}
	}
	return false
}

// namesOfMessages are "messages" and what is set to it or to a part of it.
func (f *formatFinder) namesOfMessages() (names []string, ok bool) {
	names = []string{"messages"}
	for i := 0; i < len(names); i++ {
		for _, s := range f.sets {
			if !accesses(s.value, names[i], "") {
				continue
			}
			name, ok := s.target.(*nameExpr)
			if !ok {
				return nil, false
			}
			if !contains(names, name.name) {
				names = append(names, name.name)
			}
		}
	}
	return names, true
}

// contentParams are the parameters of macros that get the content of a message
// in at least one call.
func (f *formatFinder) contentParams(ofMessage []string) map[*macroDef][]string {
	params := map[*macroDef][]string{}
	for _, macro := range f.macros {
		for _, call := range f.calls {
			if name, ok := call.callee.(*nameExpr); !ok || name.name != macro.name {
				continue
			}
			for i, arg := range call.args.positional {
				if i < len(macro.params) && accessesAny(arg, ofMessage, "content") {
					params[macro] = append(params[macro], macro.params[i].name)
				}
			}
			for i, arg := range call.args.named {
				if accessesAny(arg, ofMessage, "content") && hasParam(macro, call.args.names[i]) {
					params[macro] = append(params[macro], call.args.names[i])
				}
			}
		}
	}
	return params
}

// sglang follows sglang/srt/parser/jinja_template_utils.py (0.5.23).
func (f *formatFinder) sglang(t *Template) ContentFormat {
	for _, word := range [...]string{"image", "audio", "video", "vision"} {
		if t.mentions(word) {
			return ContentParts
		}
	}
	for _, loop := range f.loops {
		if accessesAny(loop.iterable, []string{"message", "msg", "m"}, "content") {
			return ContentParts
		}
	}
	return ContentString
}

// accesses reports whether an expression is the variable, or its member key
// unless that is empty, with any filters, tests and slices around it.
func accesses(e expr, variable, key string) bool {
	switch e := e.(type) {
	case *filterExpr:
		return e.input != nil && accesses(e.input, variable, key)
	case *testExpr:
		return accesses(e.input, variable, key)
	case *sliceExpr:
		return accesses(e.object, variable, key)
	case *attributeExpr:
		return key != "" && e.name.name == key && accesses(e.object, variable, "") && isName(e.object)
	case *nameExpr:
		return key == "" && e.use == useLoad && e.name == variable
	}
	return false
}

func isName(e expr) bool {
	_, ok := e.(*nameExpr)
	return ok
}

func accessesAny(e expr, variables []string, key string) bool {
	for _, v := range variables {
		if accesses(e, v, key) {
			return true
		}
	}
	return false
}

func hasParam(d *macroDef, name string) bool {
	for _, p := range d.params {
		if p.name == name {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
