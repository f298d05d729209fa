package chat

// chatRequest holds the fields of a chat request that reach the prompt. A field
// that is absent is undefined.
type chatRequest struct {
	messages, tools, toolChoice  Value
	documents, kwargs, effort    Value
	addGeneration, continueFinal Value
	addSpecialTokens             Value
}

// vllmChat prepares a body of /v1/chat/completions (vLLM 0.32.0,
// ChatCompletionRequest). Fields that do not reach the prompt are not looked
// at, nor are the values that make vLLM refuse a request for them.
func (p *preparation) vllmChat(body Value) error {
	var r chatRequest
	for i := range body.Len() {
		key, value := body.Entry(i)
		if err := p.vllmChatField(&r, key.text, value); err != nil {
			return err
		}
	}
	return p.vllmRequest(&r)
}

func (p *preparation) vllmChatField(r *chatRequest, name []byte, value Value) error {
	switch string(name) {
	case "messages":
		r.messages = value
	case "tools":
		r.tools = value
	case "tool_choice":
		r.toolChoice = value
	case "documents":
		r.documents = value
	case "chat_template_kwargs":
		r.kwargs = value
	case "reasoning_effort":
		r.effort = value
	case "add_generation_prompt":
		r.addGeneration = value
	case "continue_final_message":
		r.continueFinal = value
	case "add_special_tokens":
		r.addSpecialTokens = value
	case "chat_template":
		if value.Truth() {
			return inexact("chat_template: the request brings its own template, which vLLM refuses unless told otherwise")
		}
	default:
		return p.vllmCommonField(name, value)
	}
	return nil
}

// vllmCommonField refuses the fields of all vLLM requests that change a prompt
// in ways that are not followed here.
func (p *preparation) vllmCommonField(name []byte, value Value) error {
	switch string(name) {
	case "truncate_prompt_tokens":
		if !value.IsNone() {
			return inexact("truncate_prompt_tokens: the prompt may be cut")
		}
	case "mm_processor_kwargs", "media_io_kwargs":
		if value.Truth() {
			return inexact("%s: vLLM refuses it unless told otherwise", name)
		}
	case "kv_transfer_params":
		if ids, ok := value.Get("prompt_token_ids"); ok && !ids.IsNone() {
			return inexact("kv_transfer_params.prompt_token_ids: the prompt is not made of the messages")
		}
	case "prompt_embeds":
		if !value.IsNone() {
			return inexact("prompt_embeds: the prompt is no text")
		}
	}
	return nil
}

// vllmRequest turns the fields into the variables of the template.
func (p *preparation) vllmRequest(r *chatRequest) error {
	if r.messages.Kind() != KindList {
		return raised("messages: want a list")
	}
	if r.messages.Len() == 0 {
		return raised("messages: the list is empty")
	}
	special, err := boolField(r.addSpecialTokens, "add_special_tokens", false)
	if err != nil {
		return err
	}
	p.in.SpecialTokens = special
	tools, err := p.vllmTools(r)
	if err != nil {
		return err
	}
	vars := p.m.Dict(10 + len(p.d.special) + len(p.d.kwargs))
	if err := p.vllmOptions(r, vars, tools); err != nil {
		return err
	}
	messages, err := p.vllmMessages(r.messages)
	if err != nil {
		return err
	}
	p.m.Set(vars, "messages", messages)
	p.in.Vars = vars
	if p.in.Reason == "" {
		return nil
	}
	if p.in.continued {
		return inexact("a message with media is to be continued")
	}
	p.unknown = true
	if messages, err = p.vllmMessages(r.messages); err != nil {
		return err
	}
	p.in.other = p.withVariable(vars, "messages", messages)
	return nil
}

// vllmOptions sets the variables besides messages. vLLM's order: defaults of
// the server, keyword arguments of the request, then its own fields; None and
// "auto" are taken as not said (ChatParams.with_defaults, merge_kwargs). A name
// that the template does not look up is not passed on, which cannot be seen.
func (p *preparation) vllmOptions(r *chatRequest, vars, tools Value) error {
	for _, t := range p.d.special {
		p.m.Set(vars, t.name, t.value)
	}
	for _, k := range p.d.kwargs {
		if argumentOfHF([]byte(k.name)) {
			return inexact("the server's default argument %s of the chat template is one of transformers' own", k.name)
		}
		p.m.Set(vars, k.name, k.value)
	}
	thinking, err := p.vllmKwargs(r, vars)
	if err != nil {
		return err
	}
	if err := p.vllmEffort(r, vars, thinking); err != nil {
		return err
	}
	p.m.Set(vars, "tools", tools)
	documents, err := p.vllmDocuments(r.documents)
	if err != nil {
		return err
	}
	p.m.Set(vars, "documents", documents)
	generation, err := boolField(r.addGeneration, "add_generation_prompt", true)
	if err != nil {
		return err
	}
	if p.in.continued, err = boolField(r.continueFinal, "continue_final_message", false); err != nil {
		return err
	}
	if p.in.continued && generation {
		return raised("continue_final_message: add_generation_prompt must be false then")
	}
	if !generation {
		p.in.Features |= FeatureOptions
	}
	p.m.Set(vars, "add_generation_prompt", Bool(generation))
	return nil
}

// vllmKwargs sets the variables of chat_template_kwargs, and reports whether
// enable_thinking is among them.
func (p *preparation) vllmKwargs(r *chatRequest, vars Value) (thinking bool, err error) {
	if r.kwargs.Kind() == KindUndefined || r.kwargs.IsNone() {
		return false, nil
	}
	if r.kwargs.Kind() != KindDict {
		return false, raised("chat_template_kwargs: want an object")
	}
	for i := range r.kwargs.Len() {
		key, value := r.kwargs.Entry(i)
		p.in.Features |= FeatureOptions
		thinking = thinking || key.Is("enable_thinking")
		if key.Is("add_generation_prompt") || key.Is("continue_final_message") {
			continue // the field of the request is never unsaid, and wins
		}
		if argumentOfHF(key.text) {
			return false, inexact("chat_template_kwargs.%s: an argument of transformers' own", key.text)
		}
		if value.IsNone() || value.Is("auto") {
			continue
		}
		if err := p.m.SetValue(vars, key, value); err != nil {
			return false, err
		}
	}
	return thinking, nil
}

// vllmEffort sets what reasoning_effort stands for.
func (p *preparation) vllmEffort(r *chatRequest, vars Value, thinking bool) error {
	if r.effort.Kind() == KindUndefined || r.effort.IsNone() {
		return nil
	}
	p.in.Features |= FeatureOptions
	switch {
	case !r.effort.IsString():
		return raised("reasoning_effort: want a text")
	case !r.effort.Is("none") && !r.effort.Is("minimal") && !r.effort.Is("low") && !r.effort.Is("medium") &&
		!r.effort.Is("high") && !r.effort.Is("xhigh") && !r.effort.Is("max"):
		return raised("reasoning_effort: want none, minimal, low, medium, high, xhigh or max")
	}
	p.m.Set(vars, "reasoning_effort", r.effort)
	if !thinking {
		p.m.Set(vars, "enable_thinking", Bool(!r.effort.Is("none")))
	}
	return nil
}

// vllmDocuments checks list[dict[str, str]].
func (p *preparation) vllmDocuments(v Value) (Value, error) {
	if v.Kind() == KindUndefined || v.IsNone() {
		return None(), nil
	}
	p.in.Features |= FeatureOptions
	if v.Kind() != KindList {
		return None(), raised("documents: want a list")
	}
	for i := range v.Len() {
		document := v.At(i)
		if document.Kind() != KindDict {
			return None(), raised("documents: want objects")
		}
		for j := range document.Len() {
			if _, text := document.Entry(j); !text.IsString() {
				return None(), raised("documents: want texts only")
			}
		}
	}
	return v, nil
}

// boolField reads a bool. Other values that pydantic takes for one, such as "yes",
// are not read.
func boolField(v Value, name string, otherwise bool) (bool, error) {
	switch v.Kind() {
	case KindUndefined:
		return otherwise, nil
	case KindBool:
		return v.IsTrue(), nil
	}
	return false, inexact("%s: want true or false", name)
}

// argumentOfHF reports whether a keyword argument goes to transformers'
// apply_chat_template instead of the template (transformers 5.19).
func argumentOfHF(name []byte) bool {
	switch string(name) {
	case "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "documents",
		"max_length", "messages", "padding", "return_assistant_tokens_mask", "return_dict", "return_tensors",
		"self", "tokenize", "tokenizer_kwargs", "tools", "truncation":
		return true
	}
	return false
}
