package chat

// sglangChat prepares a body of /v1/chat/completions (SGLang 0.5.23,
// ChatCompletionRequest, _process_messages, _apply_jinja_template). Tools go to
// the template with their wrapper, as in vLLM, and without it if it raises.
func (p *preparation) sglangChat(body Value) error {
	var r chatRequest
	var reasoning Value
	for i := range body.Len() {
		key, value := body.Entry(i)
		switch string(key.text) {
		case "messages":
			r.messages = value
		case "tools":
			r.tools = value
		case "tool_choice":
			r.toolChoice = value
		case "chat_template_kwargs":
			r.kwargs = value
		case "reasoning_effort":
			r.effort = value
		case "reasoning":
			reasoning = value
		case "continue_final_message":
			r.continueFinal = value
		case "input_ids":
			if !value.IsNone() {
				return inexact("%s: what SGLang makes of it is not followed here", key.text)
			}
		}
	}
	if reasoning.Truth() {
		return inexact("reasoning: what SGLang makes of it is not followed here")
	}
	if r.messages.Kind() != KindList || r.messages.Len() == 0 {
		return raised("messages: want a list that is not empty")
	}
	return p.sglangRequest(&r)
}

func (p *preparation) sglangRequest(r *chatRequest) error {
	continued, err := boolField(r.continueFinal, "continue_final_message", false)
	if err != nil {
		return err
	}
	if continued {
		p.in.Features |= FeatureOptions
	}
	vars := p.m.Dict(10 + len(p.d.special) + len(p.d.kwargs))
	if err := p.sglangOptions(r, vars); err != nil {
		return err
	}
	tools, bare, err := p.sglangTools(r)
	if err != nil {
		return err
	}
	p.m.Set(vars, "tools", tools)
	p.m.Set(vars, "documents", None())
	p.m.Set(vars, "add_generation_prompt", Bool(true))
	messages, err := p.sglangMessages(r.messages, continued)
	if err != nil {
		return err
	}
	p.m.Set(vars, "messages", messages)
	p.in.Vars = vars
	if p.in.Reason != "" {
		p.unknown = true
		if messages, err = p.sglangMessages(r.messages, continued); err != nil {
			return err
		}
		p.in.other = p.withVariable(vars, "messages", messages)
		return nil
	}
	if tools.Truth() {
		p.in.retry = p.withVariable(vars, "tools", bare)
	}
	return nil
}

// withVariable copies a dict and sets one member.
func (p *preparation) withVariable(vars Value, name string, value Value) Value {
	out := p.m.Dict(vars.Len() + 1)
	p.addOthers(out, vars)
	p.m.Set(out, name, value)
	return out
}

// sglangOptions sets the keyword arguments of the request, which win over the
// server's, and what reasoning_effort stands for.
func (p *preparation) sglangOptions(r *chatRequest, vars Value) error {
	for _, t := range p.d.special {
		p.m.Set(vars, t.name, t.value)
	}
	for _, k := range p.d.kwargs {
		if argumentOfHF([]byte(k.name)) || k.name == "reasoning_effort" {
			return inexact("the server's default argument %s of the chat template", k.name)
		}
		p.m.Set(vars, k.name, k.value)
	}
	switch r.kwargs.Kind() {
	case KindUndefined, KindNone:
	case KindDict:
		for i := range r.kwargs.Len() {
			key, value := r.kwargs.Entry(i)
			p.in.Features |= FeatureOptions
			if key.Is("reasoning_effort") {
				continue
			}
			if argumentOfHF(key.text) {
				return inexact("chat_template_kwargs.%s: an argument of transformers' own", key.text)
			}
			if err := p.m.SetValue(vars, key, value); err != nil {
				return err
			}
		}
	default:
		return inexact("chat_template_kwargs: want an object")
	}
	return p.sglangEffort(r, vars)
}

// sglangEffort sets reasoning_effort: that among the keyword arguments wins, but
// only the field of the request turns thinking on and off.
func (p *preparation) sglangEffort(r *chatRequest, vars Value) error {
	if own := optional(r.kwargs, "reasoning_effort"); !own.IsNone() {
		if own.Is("low") && p.d.options.Template.mentions("low_effort") {
			return inexact("reasoning_effort: SGLang may turn it into an argument of this template")
		}
		p.m.Set(vars, "reasoning_effort", own)
	}
	if r.effort.Kind() == KindUndefined || r.effort.IsNone() {
		return nil
	}
	p.in.Features |= FeatureOptions
	switch e := r.effort; {
	case !e.IsString(), e.Is("low") && p.d.options.Template.mentions("low_effort"):
		return inexact("reasoning_effort: a number, or one that SGLang may turn into an argument of this template")
	case !e.Is("none") && !e.Is("minimal") && !e.Is("low") && !e.Is("medium") && !e.Is("high") && !e.Is("xhigh") &&
		!e.Is("ultra") && !e.Is("max"):
		return raised("reasoning_effort: want none, minimal, low, medium, high, xhigh, ultra or max")
	}
	if _, ok := vars.Get("reasoning_effort"); !ok {
		p.m.Set(vars, "reasoning_effort", r.effort)
	}
	// Set where neither the request nor the server says otherwise.
	for _, name := range [...]string{"thinking", "enable_thinking"} {
		if _, ok := r.kwargs.Get(name); !ok {
			p.m.Set(vars, name, Bool(!r.effort.Is("none")))
		}
	}
	return nil
}

// sglangTools returns the functions with their wrapper, and without.
func (p *preparation) sglangTools(r *chatRequest) (tools, bare Value, err error) {
	if r.tools.Kind() == KindUndefined || r.tools.IsNone() {
		return None(), None(), nil
	}
	p.in.Features |= FeatureTools
	if r.tools.Kind() != KindList {
		return None(), None(), raised("tools: want a list")
	}
	c := r.toolChoice
	var chosen Value
	switch {
	case c.Is("none"):
		return None(), None(), nil
	case c.Kind() == KindUndefined, c.IsNone(), c.Is("auto"), c.Is("required"):
	default:
		function, _ := c.Get("function")
		if chosen, _ = function.Get("name"); !chosen.IsString() {
			return None(), None(), raised("tool_choice: want none, auto, required or the name of a function")
		}
	}
	tools, bare = p.m.List(), p.m.List()
	for i := range r.tools.Len() {
		dump, function, err := p.sglangTool(r.tools.At(i))
		if err != nil {
			return None(), None(), err
		}
		if name, _ := function.Get("name"); chosen.IsString() && !equalText(name, chosen) {
			continue
		}
		p.m.Append(tools, dump)
		p.m.Append(bare, function)
	}
	if tools.Len() == 0 {
		return None(), None(), nil
	}
	return tools, bare, nil
}

// sglangTool rebuilds one function: type, function, defer_loading, the last
// null if it was not said. The fields of a function keep the order of the
// request; description and parameters that it lacks follow as null.
func (p *preparation) sglangTool(tool Value) (dump, function Value, err error) {
	given, _ := tool.Get("function")
	name, _ := given.Get("name")
	if !name.IsString() {
		return None(), None(), raised("tools: each must have a function with a name")
	}
	function = p.m.Dict(5)
	for i := range given.Len() {
		key, value := given.Entry(i)
		switch string(key.text) {
		case "description", "name":
			if !value.IsString() && !value.IsNone() {
				return None(), None(), raised("tools: %s must be a text", key.text)
			}
		case "parameters":
			if !p.standardTypes(value, 0) {
				return None(), None(), inexact("tools: a type in parameters that SGLang may rewrite")
			}
		case "strict", "defer_loading":
			if value.IsNone() {
				continue
			}
			if value.Kind() != KindBool {
				return None(), None(), inexact("tools: %s is neither true nor false", key.text)
			}
		default:
			continue
		}
		p.m.addEntry(function.ref, key, value)
	}
	for _, field := range [...]string{"description", "parameters"} {
		if _, ok := function.Get(field); !ok {
			p.m.Set(function, field, None())
		}
	}
	kind, said := tool.Get("type")
	if !said {
		kind = Text(textFunction)
	}
	if !kind.IsString() {
		return None(), None(), raised("tools: the type must be a text")
	}
	deferred, err := optionalFlag(tool, "defer_loading")
	if err != nil {
		return None(), None(), err
	}
	if _, own := function.Get("defer_loading"); !own && !deferred.IsNone() {
		p.m.Set(function, "defer_loading", deferred)
	}
	dump = p.m.Dict(3)
	p.m.Set(dump, "type", kind)
	p.m.Set(dump, "function", function)
	p.m.Set(dump, "defer_loading", deferred)
	return dump, function, nil
}

// standardTypes reports whether a schema has only types of JSON Schema: SGLang
// rewrites others, such as "varchar" (normalize_json_schema_types).
func (p *preparation) standardTypes(v Value, depth int) bool {
	if depth > 64 {
		return false
	}
	switch v.Kind() {
	case KindList:
		for i := range v.Len() {
			if !p.standardTypes(v.At(i), depth+1) {
				return false
			}
		}
	case KindDict:
		for i := range v.Len() {
			key, value := v.Entry(i)
			if key.Is("type") && !standardType(value) || !p.standardTypes(value, depth+1) {
				return false
			}
		}
	}
	return true
}

func standardType(v Value) bool {
	switch v.Kind() {
	case KindString:
		return v.Is("string") || v.Is("number") || v.Is("integer") || v.Is("boolean") || v.Is("object") ||
			v.Is("array") || v.Is("null")
	case KindList:
		for i := range v.Len() {
			if !v.At(i).IsString() || !standardType(v.At(i)) {
				return false
			}
		}
		return true
	}
	return v.Kind() == KindDict // a property with this name
}
