package chat

import "bytes"

// vllmMessages turns the messages of a request into the conversation that the
// template gets (vLLM 0.32.0, parse_chat_messages, safe_apply_chat_template).
func (p *preparation) vllmMessages(messages Value) (Value, error) {
	list := p.m.List()
	developer := false
	for i := range messages.Len() {
		message, err := p.vllmMessage(messages.At(i), i == messages.Len()-1)
		if err != nil {
			return None(), err
		}
		role, _ := message.Get("role")
		developer = developer || role.Is("developer")
		p.m.Append(list, message)
	}
	if !developer || p.d.developer {
		return list, nil
	}
	return p.developersToSystem(list)
}

// vllmMessage rebuilds one message. The fields that survive, in this order, are
// role, content, and by role tool_calls, reasoning, reasoning_content,
// tool_call_id, name, task and tools.
func (p *preparation) vllmMessage(message Value, last bool) (Value, error) {
	role, _ := message.Get("role")
	if !role.IsString() {
		return None(), raised("messages: each must have a role")
	}
	content, said := message.Get("content")
	if said && content.IsNone() && !role.Is("assistant") {
		return None(), raised("messages: content must not be null")
	}
	content, err := p.vllmContent(role, content)
	if err != nil {
		return None(), err
	}
	if last && p.in.continued {
		if content, err = p.continuedContent(content); err != nil {
			return None(), err
		}
	}
	out := p.m.Dict(6)
	p.m.Set(out, "role", role)
	p.m.Set(out, "content", content)
	switch {
	case role.Is("assistant"):
		err = p.vllmAssistant(message, out)
	case role.Is("tool"):
		err = p.vllmToolMessage(message, out)
	}
	if err != nil {
		return None(), err
	}
	for _, field := range [...]string{"name", "task"} {
		value, ok := message.Get(field)
		if ok && value.IsString() {
			p.m.Set(out, field, value)
		} else if ok && !value.IsNone() {
			return None(), inexact("messages: %s is no text", field)
		}
	}
	if role.Is("developer") {
		if tools, ok := message.Get("tools"); ok && !tools.IsNone() {
			return None(), inexact("messages: a developer message brings tools")
		}
		p.m.Set(out, "tools", None())
	}
	return out, nil
}

func (p *preparation) vllmAssistant(message, out Value) error {
	if calls, ok := message.Get("tool_calls"); ok && !calls.IsNone() {
		if calls.Kind() != KindList {
			return raised("messages: tool_calls must be a list")
		}
		if calls.Len() > 0 {
			p.in.Features |= FeatureTools
			list, err := p.vllmCalls(calls)
			if err != nil {
				return err
			}
			p.m.Set(out, "tool_calls", list)
		}
	}
	// reasoning_content is the name of before.
	reasoning := optional(message, "reasoning")
	if reasoning.IsNone() {
		reasoning = optional(message, "reasoning_content")
	}
	if reasoning.IsNone() {
		return nil
	}
	if !reasoning.IsString() {
		return inexact("messages: reasoning is no text")
	}
	p.in.Features |= FeatureOptions
	p.m.Set(out, "reasoning", reasoning)
	p.m.Set(out, "reasoning_content", reasoning)
	return nil
}

func (p *preparation) vllmToolMessage(message, out Value) error {
	p.in.Features |= FeatureTools
	id, ok := message.Get("tool_call_id")
	switch {
	case !ok:
	case id.IsString() || id.IsNone():
		p.m.Set(out, "tool_call_id", id)
	default:
		return raised("messages: tool_call_id must be a text")
	}
	// A list of texts only becomes one text, for most templates want that.
	content, _ := out.Get("content")
	if content.Kind() != KindList {
		return nil
	}
	texts := p.m.List()
	for i := range content.Len() {
		kind, _ := content.At(i).Get("type")
		if !kind.Is("text") {
			return nil
		}
		text, _ := content.At(i).Get("text")
		p.m.Append(texts, text)
	}
	p.m.Set(out, "content", p.m.joined("\n", texts))
	return nil
}

// vllmCalls rebuilds calls of functions: pydantic gives their known fields in
// the order of the class and further ones after them, and arguments, which
// must be text, become an object: empty if they cannot be read as one.
func (p *preparation) vllmCalls(calls Value) (Value, error) {
	list := p.m.List()
	for i := range calls.Len() {
		call := calls.At(i)
		function, _ := call.Get("function")
		id, _ := call.Get("id")
		kind, _ := call.Get("type")
		name, _ := function.Get("name")
		arguments, _ := function.Get("arguments")
		object := arguments
		if p.from != Messages || arguments.Kind() != KindDict {
			if !id.IsString() || !kind.Is("function") || !name.IsString() || !arguments.IsString() {
				return None(), raised("messages: a call must have id, type function, and function with name and arguments as text")
			}
			var err error
			if object, err = p.argumentsObject(arguments); err != nil {
				return None(), err
			}
		}
		inner := p.m.Dict(function.Len())
		if p.from == Responses {
			p.m.Set(inner, "name", name)
		}
		p.m.Set(inner, "arguments", object)
		p.m.Set(inner, "name", name)
		p.addOthers(inner, function)
		outer := p.m.Dict(call.Len())
		p.m.Set(outer, "id", id)
		p.m.Set(outer, "function", inner)
		p.m.Set(outer, "type", kind)
		p.addOthers(outer, call)
		p.m.Append(list, outer)
	}
	return list, nil
}

// addOthers adds the members of from that to does not have.
func (p *preparation) addOthers(to, from Value) {
	for i := range from.Len() {
		key, value := from.Entry(i)
		if to.ref.findText(key.text) < 0 {
			p.m.addEntry(to.ref, key, value)
		}
	}
}

// argumentsObject reads the arguments of a call as vLLM does: json.loads, and an
// empty object for what is no object.
func (p *preparation) argumentsObject(text Value) (Value, error) {
	raw := p.m.Bytes(text)
	if len(raw) == 0 {
		return p.m.Dict(0), nil
	}
	object, err := p.m.readArguments(raw)
	if err != nil && ClassOf(err) != Malformed {
		return None(), err
	}
	if err != nil || object.Kind() != KindDict {
		return p.m.Dict(0), nil
	}
	return object, nil
}

// readArguments is ReadJSON for text that nobody has checked: Malformed is what
// Python's json.loads would not read.
func (m *Machine) readArguments(raw []byte) (Value, error) {
	if controlInString(raw) {
		return Value{}, &Error{Class: Malformed, Message: "arguments: a string has a control character"}
	}
	v, err := m.ReadJSON(raw)
	if err != nil && ClassOf(err) == Malformed && (bytes.Contains(raw, []byte("NaN")) || bytes.Contains(raw, []byte("Infinity"))) {
		return Value{}, inexact("arguments: a number that is none in JSON")
	}
	return v, err
}

// controlInString reports whether a JSON text has a control character inside a
// string, where Python does not allow one.
func controlInString(raw []byte) bool {
	inside := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			inside = !inside
		case c == '\\' && inside:
			i++
		case c < 0x20 && inside:
			return true
		}
	}
	return false
}

// developersToSystem makes system messages of developer messages, for templates
// that do not speak of that role, and then one of all system messages, in
// front, if there are several or it stands elsewhere.
func (p *preparation) developersToSystem(list Value) (Value, error) {
	texts, rest := p.m.List(), p.m.List()
	consolidate := false
	for i := range list.Len() {
		message := list.At(i)
		role, _ := message.Get("role")
		if role.Is("developer") {
			message = p.asSystem(message)
		} else if !role.Is("system") {
			p.m.Append(rest, message)
			continue
		}
		consolidate = consolidate || i > 0 || texts.Len() > 0
		content, _ := message.Get("content")
		if content.Kind() == KindList {
			content = p.joinedTexts(content)
		}
		if content.Truth() {
			p.m.Append(texts, content)
		}
		list.ref.items[i] = message
	}
	if !consolidate {
		return list, nil
	}
	merged := p.m.Dict(2)
	p.m.Set(merged, "role", Text(textSystem))
	p.m.Set(merged, "content", p.m.joined("\n\n", texts))
	all := p.m.List(merged)
	for i := range rest.Len() {
		p.m.Append(all, rest.At(i))
	}
	return all, nil
}

var textSystem = []byte("system")

// asSystem copies a developer message: another role, no tools.
func (p *preparation) asSystem(message Value) Value {
	out := p.m.Dict(message.Len())
	for i := range message.Len() {
		key, value := message.Entry(i)
		switch string(key.text) {
		case "tools":
		case "role":
			p.m.addEntry(out.ref, key, Text(textSystem))
		default:
			p.m.addEntry(out.ref, key, value)
		}
	}
	return out
}

// joinedTexts joins the texts of a list of parts by lines.
func (p *preparation) joinedTexts(parts Value) Value {
	texts := p.m.List()
	for i := range parts.Len() {
		if text, ok := parts.At(i).Get("text"); ok {
			p.m.Append(texts, text)
		}
	}
	return p.m.joined("\n", texts)
}
