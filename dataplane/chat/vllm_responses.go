package chat

// vllmResponses prepares a body of /v1/responses: instructions and input become
// messages (vLLM 0.32.0, vllm/entrypoints/openai/responses/utils.py,
// construct_input_messages). What hangs on a state of the engine does not. This
// endpoint adds special tokens around the rendered text, as ResponsesRequest
// leaves add_special_tokens of TokenizeParams at its default.
func (p *preparation) vllmResponses(body Value) error {
	r := chatRequest{addSpecialTokens: Bool(true)}
	var input, instructions Value
	for i := range body.Len() {
		key, value := body.Entry(i)
		switch string(key.text) {
		case "input":
			input = value
		case "instructions":
			instructions = value
		case "tools":
			r.tools = value
		case "tool_choice":
			if value.Is("none") {
				r.toolChoice = value
			}
		case "reasoning":
			r.effort = optional(value, "effort")
		case "chat_template_kwargs":
			r.kwargs = value
		case "previous_response_id", "prompt", "conversation", "previous_input_messages":
			if !value.IsNone() {
				return inexact("%s: the prompt hangs on what the engine keeps", key.text)
			}
		case "truncation":
			if !value.Is("disabled") {
				return inexact("truncation: the prompt may be cut")
			}
		default:
			if err := p.vllmCommonField(key.text, value); err != nil {
				return err
			}
		}
	}
	if err := p.responsesTools(&r); err != nil {
		return err
	}
	if err := p.responsesInput(&r, instructions, input); err != nil {
		return err
	}
	return p.vllmRequest(&r)
}

// responsesTools wraps functions, which are flat here.
func (p *preparation) responsesTools(r *chatRequest) error {
	tools := r.tools
	if tools.Kind() != KindList || tools.Len() == 0 {
		r.tools = Value{}
		return nil
	}
	list := p.m.List()
	for i := range tools.Len() {
		tool := tools.At(i)
		if kind, _ := tool.Get("type"); !kind.Is("function") {
			return inexact("tools: another type than function")
		}
		wrapper := p.m.Dict(1)
		p.m.Set(wrapper, "function", tool)
		p.m.Append(list, wrapper)
	}
	r.tools = list
	return nil
}

func (p *preparation) responsesInput(r *chatRequest, instructions, input Value) error {
	list := p.m.List()
	r.messages = list
	if instructions.Truth() {
		if !instructions.IsString() {
			return raised("instructions: want a text")
		}
		p.appendMessage(list, "system", instructions)
	}
	switch input.Kind() {
	case KindString:
		p.appendMessage(list, "user", input)
		return nil
	case KindList:
		for i := range input.Len() {
			if err := p.responsesItem(list, input.At(i)); err != nil {
				return err
			}
		}
		if input.Len() > 0 && isPartial(input.At(input.Len()-1)) {
			r.addGeneration, r.continueFinal = Bool(false), Bool(true)
		}
		return nil
	}
	return raised("input: want a text or a list")
}

func (p *preparation) appendMessage(list Value, role string, content Value) {
	message := p.m.Dict(2)
	p.m.Set(message, "role", p.m.Copy(role))
	p.m.Set(message, "content", content)
	p.m.Append(list, message)
}

// isPartial reports whether the last item is a message that is to be continued.
func isPartial(item Value) bool {
	kind, said := item.Get("type")
	status, _ := item.Get("status")
	return (!said || kind.Is("message") || kind.Is("reasoning")) && (status.Is("in_progress") || status.Is("incomplete"))
}

// responsesItem appends a message for an item, or adds it to the assistant
// message before it.
func (p *preparation) responsesItem(list, item Value) error {
	kind, said := item.Get("type")
	role, _ := item.Get("role")
	switch {
	case kind.Is("function_call"):
		return p.responsesCall(list, item)
	case kind.Is("function_call_output"):
		output, _ := item.Get("output")
		id, _ := item.Get("call_id")
		if !output.IsString() || !id.IsString() {
			return inexact("input: an answer of a function that is no text")
		}
		p.appendMessage(list, "tool", output)
		p.m.Set(list.At(list.Len()-1), "tool_call_id", id)
		return nil
	case kind.Is("reasoning"):
		return p.responsesReasoning(list, item)
	case said && !kind.Is("message"):
		return inexact("input: an item of a type that is not known")
	case role.Is("assistant"):
		return p.responsesAssistant(list, item)
	case role.Is("user"), role.Is("system"), role.Is("developer"):
		p.m.Append(list, item)
		return nil
	}
	return raised("input: an item with neither a type nor a role that is known")
}

// assistantBefore returns the last message if it is the assistant's.
func assistantBefore(list Value) (message Value, ok bool) {
	if list.Len() == 0 {
		return Value{}, false
	}
	message = list.At(list.Len() - 1)
	role, _ := message.Get("role")
	return message, role.Is("assistant")
}

// addToAssistant sets a field of the assistant message before, or of a new one
// if there is none or it has that field.
func (p *preparation) addToAssistant(list Value, field string, value Value) {
	message, ok := assistantBefore(list)
	if ok {
		_, said := message.Get(field)
		ok = !said
	}
	if !ok {
		message = p.m.Dict(4)
		p.m.Set(message, "role", p.m.Copy("assistant"))
		p.m.Append(list, message)
	}
	p.m.Set(message, field, value)
}

func (p *preparation) responsesAssistant(list, item Value) error {
	content, _ := item.Get("content")
	if content.Kind() == KindList && content.Len() > 0 {
		kind, _ := content.At(0).Get("type")
		if !kind.Is("output_text") {
			return inexact("input: an assistant message that does not begin with output_text")
		}
		content, _ = content.At(0).Get("text") // further ones are dropped
	}
	if !content.IsString() {
		return inexact("input: an assistant message without text")
	}
	p.addToAssistant(list, "content", content)
	return nil
}

func (p *preparation) responsesReasoning(list, item Value) error {
	if secret, ok := item.Get("encrypted_content"); ok && secret.Truth() {
		return raised("input: encrypted reasoning")
	}
	text := Text(nil)
	for _, field := range [...]string{"content", "summary"} {
		parts, _ := item.Get(field)
		if parts.Kind() != KindList || parts.Len() == 0 {
			continue
		}
		if text, _ = parts.At(0).Get("text"); !text.IsString() {
			return raised("input: reasoning without text")
		}
		break
	}
	p.addToAssistant(list, "reasoning", text)
	return nil
}

func (p *preparation) responsesCall(list, item Value) error {
	name, _ := item.Get("name")
	arguments, _ := item.Get("arguments")
	id, _ := item.Get("call_id")
	if space, ok := item.Get("namespace"); ok && space.Truth() {
		return inexact("input: a call of a function in a namespace")
	}
	function := p.m.Dict(2)
	p.m.Set(function, "name", name)
	p.m.Set(function, "arguments", arguments)
	call := p.m.Dict(3)
	p.m.Set(call, "id", id)
	p.m.Set(call, "function", function)
	p.m.Set(call, "type", Text(textFunction))
	if message, ok := assistantBefore(list); ok {
		if calls, ok := message.Get("tool_calls"); ok {
			p.m.Append(calls, call)
			return nil
		}
		p.m.Set(message, "tool_calls", p.m.List(call))
		return nil
	}
	p.addToAssistant(list, "tool_calls", p.m.List(call))
	return nil
}
