package chat

// The tables of what templates can call. They are filled in init because some
// filters call others by name.
var (
	filters map[string]*function
	tests   map[string]*function
	globals map[string]Value
	methods map[Kind]map[string]*function
)

// boundFunc is a function with a fixed list of parameters.
type boundFunc = func(m *Machine, in Value, p []Value) (Value, error)

// fixed describes a function; the parameters after required are optional.
func fixed(bound boundFunc, required int, params ...string) *function {
	return &function{bound: bound, required: required, params: params}
}

func variadic(f func(m *Machine, in Value, a arguments) (Value, error)) *function {
	return &function{variadic: f}
}

func named(table map[string]*function) map[string]*function {
	for name, fn := range table {
		fn.name = name
	}
	return table
}

func init() {
	filters = named(filterTable())
	tests = named(testTable())
	methods = map[Kind]map[string]*function{
		KindString: named(stringMethods()),
		KindDict:   named(dictMethods()),
		KindList:   named(listMethods()),
		KindTuple:  named(tupleMethods()),
		kindLoop:   named(map[string]*function{"cycle": variadic(loopCycle), "changed": variadic(loopChanged)}),
		kindCycler: named(map[string]*function{"next": fixed(cyclerNext, 0), "reset": fixed(cyclerReset, 0)}),
	}
	globals = map[string]Value{}
	for name, fn := range named(map[string]*function{
		"range":           variadic(globalRange),
		"dict":            variadic(globalDict),
		"namespace":       variadic(globalNamespace),
		"joiner":          fixed(globalJoiner, 0, "sep"),
		"cycler":          variadic(globalCycler),
		"raise_exception": fixed(globalRaise, 1, "message"),
		"strftime_now":    fixed(globalStrftime, 1, "format"),
	}) {
		globals[name] = Value{kind: kindGlobal, ref: &object{aux: fn}}
	}
}

func filterTable() map[string]*function {
	return map[string]*function{
		"abs":        fixed(filterAbs, 0),
		"attr":       fixed(filterAttr, 1, "name"),
		"batch":      fixed(filterBatch, 1, "linecount", "fill_with"),
		"capitalize": fixed(textFilter(toCapitalized), 0),
		"center":     fixed(filterCenter, 0, "width"),
		"count":      fixed(filterLength, 0),
		"d":          fixed(filterDefault, 0, "default_value", "boolean"),
		"default":    fixed(filterDefault, 0, "default_value", "boolean"),
		"dictsort":   fixed(filterDictsort, 0, "case_sensitive", "by", "reverse"),
		"e":          fixed(filterEscape, 0),
		"escape":     fixed(filterEscape, 0),
		"first":      fixed(filterFirst, 0),
		"float":      fixed(filterFloat, 0, "default"),
		"format":     variadic(filterFormat),
		"groupby":    fixed(filterGroupby, 1, "attribute", "default", "case_sensitive"),
		"indent":     fixed(filterIndent, 0, "width", "first", "blank"),
		"int":        fixed(filterInt, 0, "default", "base"),
		"items":      fixed(filterItems, 0),
		"join":       fixed(filterJoin, 0, "d", "attribute"),
		"last":       fixed(filterLast, 0),
		"length":     fixed(filterLength, 0),
		"list":       fixed(filterList, 0),
		"lower":      fixed(textFilter(toLower), 0),
		"map":        variadic(filterMap),
		"max":        fixed(extremum(opGreater), 0, "case_sensitive", "attribute"),
		"min":        fixed(extremum(opLess), 0, "case_sensitive", "attribute"),
		"reject":     variadic(selection(false, false)),
		"rejectattr": variadic(selection(false, true)),
		"replace":    fixed(filterReplace, 2, "old", "new", "count"),
		"reverse":    fixed(filterReverse, 0),
		"round":      fixed(filterRound, 0, "precision", "method"),
		"safe":       fixed(filterSafe, 0),
		"select":     variadic(selection(true, false)),
		"selectattr": variadic(selection(true, true)),
		"slice":      fixed(filterSlice, 1, "slices", "fill_with"),
		"sort":       fixed(filterSort, 0, "reverse", "case_sensitive", "attribute"),
		"string":     fixed(filterString, 0),
		"sum":        fixed(filterSum, 0, "attribute", "start"),
		"title":      fixed(textFilter(toTitleWords), 0),
		"tojson":     fixed(filterToJSON, 0, "ensure_ascii", "indent", "separators", "sort_keys"),
		"trim":       fixed(filterTrim, 0, "chars"),
		"truncate":   fixed(filterTruncate, 0, "length", "killwords", "end", "leeway"),
		"unique":     fixed(filterUnique, 0, "case_sensitive", "attribute"),
		"upper":      fixed(textFilter(toUpper), 0),
		"urlencode":  fixed(filterURLEncode, 0),
		"wordcount":  fixed(filterWordcount, 0),
	}
}

// Filters and tests that exist in jinja2 but are not provided: a template that
// names one is not compiled, but one may ask whether it is there.
var otherFilters = []string{
	"filesizeformat", "forceescape", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr",
}

// mostRange is the longest range that the sandbox allows (jinja2.sandbox.MAX_RANGE).
const mostRange = 100000

func globalRange(m *Machine, in Value, a arguments) (Value, error) {
	if len(a.named) > 0 || len(a.positional) == 0 || len(a.positional) > 3 {
		return in, raised("range() takes 1 to 3 positional arguments")
	}
	bounds := [3]int64{0, 0, 1}
	for i, v := range a.positional {
		if !isInteger(v) {
			if v.kind == KindUndefined {
				return in, raised("'Undefined' object cannot be interpreted as an integer")
			}
			return in, raised("'%s' object cannot be interpreted as an integer", v.typeName())
		}
		if v.ref != nil || v.n > 1<<40 || v.n < -1<<40 {
			return in, raised("range too big: the sandbox allows %d items", mostRange)
		}
		bounds[i] = v.n
	}
	if len(a.positional) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	start, stop, step := bounds[0], bounds[1], bounds[2]
	var length int64
	switch {
	case step == 0:
		return in, raised("range() arg 3 must not be zero")
	case step > 0 && start < stop:
		length = (stop-start-1)/step + 1
	case step < 0 && stop < start:
		length = (start-stop-1)/-step + 1
	}
	if length > mostRange {
		return in, raised("range too big: the sandbox allows %d items", mostRange)
	}
	return m.rangeOf(start, stop, step, int(length)), nil
}

// globalDict is dict(…): of a mapping or of pairs, and of named arguments.
func globalDict(m *Machine, in Value, a arguments) (Value, error) {
	if len(a.positional) > 1 {
		return in, raised("dict expected at most 1 argument, got %d", len(a.positional))
	}
	d := m.Dict(len(a.named))
	if len(a.positional) == 1 {
		if err := m.fillDict(d, a.positional[0]); err != nil {
			return d, err
		}
	}
	for i, name := range a.names {
		m.Set(d, name, a.named[i])
	}
	return d, nil
}

func (m *Machine) fillDict(d, from Value) error {
	if from.kind == KindDict {
		for _, e := range from.ref.entries {
			if err := m.step(); err != nil {
				return err
			}
			if err := m.SetValue(d, e.key, e.value); err != nil {
				return err
			}
		}
		return nil
	}
	switch from.kind {
	case KindUndefined: // Python looks for its method keys
		return undefinedError(from)
	case kindNamespace, kindLoop:
		return inexact("a dict of a %s", from.typeName())
	}
	c, err := m.iterate(from)
	if err != nil {
		return err
	}
	for {
		item, ok, err := c.next(m)
		if !ok || err != nil {
			return err
		}
		base, err := m.toStack(item)
		if err != nil {
			return err
		}
		pair := m.stack[base:]
		if len(pair) != 2 {
			return raised("dictionary update sequence element has length %d; 2 is required", len(pair))
		}
		if err := m.SetValue(d, pair[0], pair[1]); err != nil {
			return err
		}
		m.stack = m.stack[:base]
	}
}

func globalNamespace(m *Machine, in Value, a arguments) (Value, error) {
	d, err := globalDict(m, in, a)
	d.kind = kindNamespace
	return d, err
}

// globalJoiner makes a joiner: its items are the separator and whether it was
// called before.
func globalJoiner(m *Machine, _ Value, p []Value) (Value, error) {
	separator := p[0]
	if !given(separator) {
		separator = commaSpace
	}
	return Value{kind: kindJoiner, ref: m.listObject([]Value{separator, Bool(false)})}, nil
}

var commaSpace = String(", ")

// globalCycler makes a cycler; its index holds the position.
func globalCycler(m *Machine, in Value, a arguments) (Value, error) {
	if len(a.named) > 0 {
		return in, raised("Cycler() got an unexpected keyword argument")
	}
	if len(a.positional) == 0 {
		return in, raised("at least one item has to be provided")
	}
	o := m.listObject(a.positional)
	o.index = m.indexes.take(1)
	return Value{kind: kindCycler, ref: o}, nil
}

func (o *object) position() int { return int(o.index[0]) }

func cyclerNext(_ *Machine, in Value, _ []Value) (Value, error) {
	v := in.ref.items[in.ref.position()]
	in.ref.index[0] = int32((in.ref.position() + 1) % len(in.ref.items))
	return v, nil
}

func cyclerReset(_ *Machine, in Value, _ []Value) (Value, error) {
	in.ref.index[0] = 0
	return None(), nil
}

// globalRaise is raise_exception(message) of transformers.
func globalRaise(m *Machine, in Value, p []Value) (Value, error) {
	message, err := m.str(p[0])
	if err != nil {
		return in, err
	}
	return in, raised("%.1000s", m.Bytes(message))
}
