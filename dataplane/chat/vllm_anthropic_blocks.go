package chat

// anthropicParts are what the blocks of one message have become so far.
type anthropicParts struct {
	content, calls, reasoning Value // lists
}

// anthropicMessage appends a user or assistant message, behind the answers of
// functions that it holds.
func (p *preparation) anthropicMessage(list, role, content Value) error {
	message := p.m.Dict(4)
	p.m.Set(message, "role", role)
	if content.IsString() {
		p.m.Set(message, "content", content)
		p.m.Append(list, message)
		return nil
	}
	if content.Kind() != KindList {
		return raised("messages: content must be a text or a list")
	}
	parts := anthropicParts{p.m.List(), p.m.List(), p.m.List()}
	for i := range content.Len() {
		if err := p.anthropicBlock(list, role, content.At(i), &parts); err != nil {
			return err
		}
	}
	if parts.reasoning.Len() > 0 {
		p.m.Set(message, "reasoning", p.m.joined("", parts.reasoning))
	}
	if parts.calls.Len() > 0 {
		p.m.Set(message, "tool_calls", parts.calls)
	}
	switch n := parts.content.Len(); {
	case n == 1 && isTextPart(parts.content.At(0)):
		text, _ := parts.content.At(0).Get("text")
		p.m.Set(message, "content", text)
	case n > 0:
		p.m.Set(message, "content", parts.content)
	case role.Is("user"):
		return nil // nothing but answers of functions
	}
	p.m.Append(list, message)
	return nil
}

func isTextPart(part Value) bool {
	kind, _ := part.Get("type")
	return kind.Is("text")
}

func (p *preparation) anthropicBlock(list, role, block Value, parts *anthropicParts) error {
	kind, _ := block.Get("type")
	switch {
	case kind.Is("text"):
		if text, _ := block.Get("text"); text.IsString() && text.Truth() {
			p.m.Append(parts.content, p.textPart(text))
		}
	case kind.Is("thinking"):
		if text, _ := block.Get("thinking"); text.IsString() {
			p.m.Append(parts.reasoning, text)
		}
	case kind.Is("tool_use"):
		return p.anthropicCall(block, parts)
	case kind.Is("tool_result") && role.Is("user"):
		return p.anthropicAnswer(list, block)
	case kind.Is("image"):
		part := p.m.Dict(2)
		p.m.Set(part, "type", p.m.Copy("image_url"))
		p.m.Set(part, "image_url", None())
		p.m.Append(parts.content, part)
	case kind.Is("redacted_thinking"), kind.Is("tool_reference"):
	default:
		return inexact("messages: a block of a type that is not known")
	}
	return nil
}

// anthropicCall: the input is written as JSON and read again, which changes
// nothing.
func (p *preparation) anthropicCall(block Value, parts *anthropicParts) error {
	id, _ := block.Get("id")
	if !id.IsString() || !id.Truth() {
		return inexact("messages: a tool_use without id, for which vLLM takes the time")
	}
	name := optional(block, "name")
	if name.IsNone() {
		name = Text(nil)
	}
	input := optional(block, "input")
	if input.IsNone() {
		input = p.m.Dict(0)
	}
	if !name.IsString() || input.Kind() != KindDict {
		return raised("messages: a tool_use must have a name and an input")
	}
	function := p.m.Dict(2)
	p.m.Set(function, "name", name)
	p.m.Set(function, "arguments", input)
	call := p.m.Dict(3)
	p.m.Set(call, "id", id)
	p.m.Set(call, "type", Text(textFunction))
	p.m.Set(call, "function", function)
	p.m.Append(parts.calls, call)
	return nil
}

// anthropicAnswer appends the answer of a function as a message of its own.
func (p *preparation) anthropicAnswer(list, block Value) error {
	id := optional(block, "tool_use_id")
	if id.IsNone() {
		id = Text(nil)
	}
	content := optional(block, "content")
	switch content.Kind() {
	case KindNone:
		content = Text(nil)
	case KindString:
	case KindList:
		texts := p.m.List()
		for i := range content.Len() {
			item := content.At(i)
			text, _ := item.Get("text")
			if !isTextPart(item) || !text.IsString() {
				return inexact("messages: an answer of a function with more than text in it")
			}
			p.m.Append(texts, text)
		}
		content = p.m.joined("\n", texts)
	default:
		return raised("messages: the content of a tool_result must be a text or a list")
	}
	message := p.m.Dict(3)
	p.m.Set(message, "role", p.m.Copy("tool"))
	p.m.Set(message, "tool_call_id", id)
	p.m.Set(message, "content", content)
	p.m.Append(list, message)
	return nil
}
