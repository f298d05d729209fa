package chat

import "slices"

// Options are what a template is compiled with; the zero Options will do.
type Options struct {
	// Name is put into the messages of errors, such as that of the model.
	Name string
}

// Template is a compiled chat template. It is immutable and may be used by any
// number of Machines at once.
type Template struct {
	tree     []stmt
	source   string
	name     string
	function functionScope
	scope    scope
	// names come from outside; globals are what they mean if there is no
	// variable of the name.
	names   []string
	globals []Value
}

// Compile compiles the source of a chat template. Its error, of class
// Unsupported, names the line and the construct that was not understood.
func Compile(source string, o Options) (*Template, error) {
	body, err := parse(source)
	if err != nil {
		return nil, withName(err, o.Name)
	}
	r := resolver{context: map[string]int{}}
	t := &Template{tree: body, source: source, name: o.Name}
	t.function, t.scope = r.template(body)
	if r.err != nil {
		return nil, withName(r.err, o.Name)
	}
	t.names = r.names
	for _, name := range r.names {
		t.globals = append(t.globals, globals[name])
	}
	return t, nil
}

// Render appends the template's output to out. vars must be a dict: the names
// that the template sees besides jinja2's own globals.
//
// The output borrows what vars borrow, the Template, and the Machine until its
// Reset. After an error, out holds the output up to it.
func (t *Template) Render(m *Machine, vars Value, out *Rope) error {
	m.ready()
	context := m.run.context[:0]
	for i, name := range t.names {
		v, ok := vars.Get(name)
		if !ok {
			v = t.globals[i]
		}
		context = append(context, v)
	}
	m.run = run{template: t, out: out, context: context, output: m.limits.OutputBytes - out.size}
	m.depth = 0
	f := m.newFrame(t.function, nil)
	t.scope.enter(m, f)
	_, err := m.body(t.tree, f)
	m.stack, m.entryStack, m.pieces = m.stack[:0], m.entryStack[:0], m.pieces[:0]
	m.run.out = nil
	if err == nil {
		err = m.fault
	}
	return withName(err, t.name)
}

// UsedTime reports whether the last rendering called strftime_now: its output
// depends on Machine.Now.
func (m *Machine) UsedTime() bool { return m.run.usedTime }

// UsesTime reports whether the template mentions strftime_now, so that its
// output may depend on Machine.Now.
func (t *Template) UsesTime() bool { return t.Uses("strftime_now") }

// Uses reports whether the template mentions a name that comes from outside,
// such as "tools" or "enable_thinking".
func (t *Template) Uses(name string) bool { return slices.Contains(t.names, name) }

// Names returns the names that the template mentions and does not set before.
func (t *Template) Names() []string { return slices.Clone(t.names) }
