package chat

// vllmTools turns the functions of a request into what its model_dump gives
// (vLLM 0.32.0, ChatCompletionToolsParam, FunctionDefinition): the fields in
// the order of the class, description and parameters always, strict and
// defer_loading if they are not null, nothing else. Releases before kept further
// fields, and always had strict.
func (p *preparation) vllmTools(r *chatRequest) (Value, error) {
	none, err := p.vllmToolChoice(r)
	if err != nil {
		return None(), err
	}
	if r.tools.Kind() == KindUndefined || r.tools.IsNone() {
		return None(), nil
	}
	p.in.Features |= FeatureTools
	if r.tools.Kind() != KindList {
		return None(), raised("tools: want a list")
	}
	if r.tools.Len() == 0 && p.from == ChatCompletions {
		return None(), raised("tools: the list is empty")
	}
	list := p.m.List()
	for i := range r.tools.Len() {
		tool, err := p.vllmTool(r.tools.At(i))
		if err != nil {
			return None(), err
		}
		p.m.Append(list, tool)
	}
	if none && p.d.options.ExcludeToolsWhenNone {
		return None(), nil
	}
	return list, nil
}

// vllmToolChoice reports whether tool_choice is "none", and refuses what
// check_tool_usage refuses.
func (p *preparation) vllmToolChoice(r *chatRequest) (none bool, err error) {
	c := r.toolChoice
	if c.Kind() == KindUndefined || c.IsNone() {
		return false, nil
	}
	if c.Is("none") {
		return true, nil
	}
	if r.tools.Kind() != KindList {
		return false, raised("tool_choice: there are no tools")
	}
	if c.Is("auto") || c.Is("required") {
		return false, nil
	}
	function, _ := c.Get("function")
	name, ok := function.Get("name")
	if !ok || !name.IsString() {
		return false, raised("tool_choice: want none, auto, required or the name of a function")
	}
	for i := range r.tools.Len() {
		function, _ := r.tools.At(i).Get("function")
		if tool, ok := function.Get("name"); ok && tool.IsString() && equalText(tool, name) {
			return false, nil
		}
	}
	return false, raised("tool_choice: there is no such function in tools")
}

// vllmTool rebuilds one function with its wrapper.
func (p *preparation) vllmTool(tool Value) (Value, error) {
	kind, said := tool.Get("type")
	if said && !kind.Is("function") {
		return None(), raised("tools: the type of each must be function")
	}
	function, ok := tool.Get("function")
	if !ok || function.Kind() != KindDict {
		return None(), raised("tools: each must have a function")
	}
	defer_, err := optionalFlag(tool, "defer_loading")
	if err != nil {
		return None(), err
	}
	inner, err := p.vllmFunction(function, defer_)
	if err != nil {
		return None(), err
	}
	dump := p.m.Dict(3)
	p.m.Set(dump, "type", Text(textFunction))
	p.m.Set(dump, "function", inner)
	if !defer_.IsNone() {
		p.m.Set(dump, "defer_loading", defer_)
	}
	return dump, nil
}

var textFunction = []byte("function")

func (p *preparation) vllmFunction(function, defer_ Value) (Value, error) {
	name, _ := function.Get("name")
	if !name.IsString() {
		return None(), raised("tools: each function must have a name")
	}
	description := optional(function, "description")
	if !description.IsNone() && !description.IsString() {
		return None(), raised("tools: a description must be a text")
	}
	parameters := optional(function, "parameters")
	if !parameters.IsNone() && parameters.Kind() != KindDict {
		return None(), raised("tools: parameters must be an object")
	}
	strict, err := optionalFlag(function, "strict")
	if err != nil {
		return None(), err
	}
	own, err := optionalFlag(function, "defer_loading")
	if err != nil {
		return None(), err
	}
	if own.IsNone() {
		own = defer_
	}
	dump := p.m.Dict(5)
	p.m.Set(dump, "name", name)
	p.m.Set(dump, "description", description)
	p.m.Set(dump, "parameters", parameters)
	if !strict.IsNone() {
		p.m.Set(dump, "strict", strict)
	}
	if !own.IsNone() {
		p.m.Set(dump, "defer_loading", own)
	}
	return dump, nil
}

// optional returns the member of a dict, None if there is none.
func optional(v Value, name string) Value {
	if member, ok := v.Get(name); ok {
		return member
	}
	return None()
}

// optionalFlag returns a member that is a bool or None.
func optionalFlag(v Value, name string) (Value, error) {
	member := optional(v, name)
	if member.IsNone() || member.Kind() == KindBool {
		return member, nil
	}
	return None(), inexact("%s: want true, false or null", name)
}
