package chat

// inlineSystem says what vLLM does with system messages between others in a
// request to /v1/messages.
type inlineSystem uint8

const (
	inlineUnknown inlineSystem = iota
	inlineKept
	inlineMerged // into the one in front
)

// inlineSystemOf finds out what vLLM finds out when it starts (0.32.0,
// _detect_merge_inline_system): whether the template bears a system message
// between others. vLLM tries it without the functions of transformers, so for
// templates that use those only a failure without them is known.
func inlineSystemOf(t *Template) inlineSystem {
	if t.UsesTime() {
		return inlineUnknown
	}
	if t.mentions("endgeneration") { // a tag that is not known there
		return inlineMerged
	}
	var m Machine
	list := m.List()
	for _, role := range [...]string{"system", "user", "system", "user"} {
		message := m.Dict(2)
		m.Set(message, "role", String(role))
		m.Set(message, "content", String("t"))
		m.Append(list, message)
	}
	vars := m.Dict(2)
	m.Set(vars, "messages", list)
	m.Set(vars, "add_generation_prompt", Bool(false))
	var out Rope
	switch err := t.Render(&m, vars, &out); {
	case err == nil:
		return inlineKept
	case ClassOf(err) == Raised:
		return inlineMerged
	}
	return inlineUnknown
}

// probeDisabledThinking finds the reasoning effort that stands for disabled
// thinking as vLLM does (0.32.0, _probe_disabled_thinking_effort): "low" if the
// template rejects "none", or renders it like another one.
func (d *Dialect) probeDisabledThinking() string {
	none, err := d.probeEffort("none")
	if ClassOf(err) == Raised && err != nil {
		return "low"
	}
	for _, effort := range [...]string{"low", "medium", "high", "xhigh", "max"} {
		text, other := d.probeEffort(effort)
		if err != nil || other != nil && ClassOf(other) != Raised {
			return "" // not known
		}
		if other == nil && text == none {
			return "low"
		}
	}
	return "none"
}

func (d *Dialect) probeEffort(effort string) (string, error) {
	var m Machine
	var in Input
	var out Rope
	body := `{"messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "` + effort + `"}`
	if err := d.Prepare(&m, ChatCompletions, []byte(body), &in); err != nil {
		return "", err
	}
	_, err := d.Render(&m, &in, &out)
	return string(out.AppendText(nil)), err
}

// vllmAnthropic prepares a body of /v1/messages: it is converted to a chat
// request first (vLLM 0.32.0, vllm/entrypoints/anthropic/serving.py,
// to_chat_completion_request).
func (p *preparation) vllmAnthropic(body Value) error {
	var r chatRequest
	var messages, system, tools Value
	for i := range body.Len() {
		key, value := body.Entry(i)
		switch string(key.text) {
		case "messages":
			messages = value
		case "system":
			system = value
		case "tools":
			tools = value
		case "tool_choice":
			r.toolChoice = anthropicChoice(value)
		case "chat_template_kwargs":
			r.kwargs = value
		case "thinking", "output_config":
			if err := p.anthropicEffort(&r, value); err != nil {
				return err
			}
		default:
			if err := p.vllmCommonField(key.text, value); err != nil {
				return err
			}
		}
	}
	if messages.Kind() != KindList {
		return raised("messages: want a list")
	}
	var err error
	if r.messages, err = p.anthropicMessages(system, messages); err != nil {
		return err
	}
	if r.tools, err = p.anthropicTools(tools); err != nil {
		return err
	}
	return p.vllmRequest(&r)
}

// anthropicChoice keeps of tool_choice whether it is "none": whatever else it
// says does not reach the prompt.
func anthropicChoice(v Value) Value {
	if kind, ok := v.Get("type"); ok && kind.Is("none") {
		return kind
	}
	return Value{}
}

// anthropicEffort turns thinking and output_config into reasoning_effort;
// thinking that is disabled comes last.
func (p *preparation) anthropicEffort(r *chatRequest, v Value) error {
	kind, _ := v.Get("type")
	switch {
	case kind.Is("disabled"):
		effort := p.d.options.DisabledThinkingEffort
		if effort == "" {
			return inexact("thinking: what stands for disabled thinking is not known")
		}
		r.effort = p.m.Copy(effort)
	case !r.effort.IsString():
		r.effort = optional(v, "effort")
	}
	p.in.Features |= FeatureOptions
	return nil
}

func (p *preparation) anthropicTools(tools Value) (Value, error) {
	if tools.Kind() == KindUndefined || tools.IsNone() {
		return None(), nil
	}
	if tools.Kind() != KindList {
		return None(), raised("tools: want a list")
	}
	list := p.m.List()
	for i := range tools.Len() {
		tool := tools.At(i)
		schema, ok := tool.Get("input_schema")
		if !ok || schema.Kind() != KindDict {
			return None(), raised("tools: each must have an input_schema")
		}
		if _, ok := schema.Get("type"); !ok {
			whole := p.m.Dict(schema.Len() + 1)
			p.addOthers(whole, schema)
			p.m.Set(whole, "type", p.m.Copy("object"))
			schema = whole
		}
		function := p.m.Dict(5)
		p.m.Set(function, "name", optional(tool, "name"))
		p.m.Set(function, "description", optional(tool, "description"))
		p.m.Set(function, "parameters", schema)
		p.m.Set(function, "strict", optional(tool, "strict"))
		p.m.Set(function, "defer_loading", optional(tool, "defer_loading"))
		wrapper := p.m.Dict(1)
		p.m.Set(wrapper, "function", function)
		p.m.Append(list, wrapper)
	}
	return list, nil
}

// anthropicMessages makes chat messages of the system text and the messages.
func (p *preparation) anthropicMessages(system, messages Value) (Value, error) {
	texts := p.m.List()
	if err := p.anthropicTexts(texts, system, false); err != nil {
		return None(), err
	}
	list := p.m.List()
	for i := range messages.Len() {
		message := messages.At(i)
		role, _ := message.Get("role")
		content, _ := message.Get("content")
		switch {
		case role.Is("system") && p.d.inline == inlineUnknown:
			return None(), inexact("messages: whether the engine merges system messages into one is not known")
		case role.Is("system") && p.d.inline == inlineMerged:
			if err := p.anthropicTexts(texts, content, true); err != nil {
				return None(), err
			}
		case role.Is("system"):
			own := p.m.List()
			if err := p.anthropicTexts(own, content, true); err != nil {
				return None(), err
			}
			p.appendSystem(list, own)
		case role.Is("user"), role.Is("assistant"):
			if err := p.anthropicMessage(list, role, content); err != nil {
				return None(), err
			}
		default:
			return None(), raised("messages: the role must be user, assistant or system")
		}
	}
	all := p.m.List()
	p.appendSystem(all, texts)
	for i := range list.Len() {
		p.m.Append(all, list.At(i))
	}
	return all, nil
}

// anthropicTexts adds the texts of system content to a list. A single text is
// stripped of the billing header only inside of messages.
func (p *preparation) anthropicTexts(texts, content Value, inside bool) error {
	switch content.Kind() {
	case KindUndefined, KindNone:
		return nil
	case KindString:
		if content.Truth() && !(inside && p.hasBillingHeader(content)) {
			p.m.Append(texts, content)
		}
		return nil
	case KindList:
		for i := range content.Len() {
			block := content.At(i)
			kind, _ := block.Get("type")
			if kind.Is("tool_addition") || kind.Is("tool_removal") {
				return inexact("messages: a change of the functions inside of the conversation")
			}
			text, _ := block.Get("text")
			if kind.Is("text") && text.IsString() && text.Truth() && !p.hasBillingHeader(text) {
				p.m.Append(texts, text)
			}
		}
		return nil
	}
	return raised("system: want a text or a list")
}

func (p *preparation) appendSystem(list, texts Value) {
	if texts.Len() == 0 {
		return
	}
	message := p.m.Dict(2)
	p.m.Set(message, "role", Text(textSystem))
	p.m.Set(message, "content", p.m.joined("", texts))
	p.m.Append(list, message)
}
