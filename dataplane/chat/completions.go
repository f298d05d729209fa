package chat

// completions prepares a body of /v1/completions: the prompt is the text or the
// ids, with special tokens around a text unless the request says otherwise
// (vLLM 0.32.0, CompletionRequest: add_special_tokens is true by default;
// SGLang 0.5.23 has the tokenizer's default, which is the same, and no such
// field).
func (p *preparation) completions(body Value) error {
	special := true
	for i := range body.Len() {
		key, value := body.Entry(i)
		switch string(key.text) {
		case "suffix":
			if !value.IsNone() {
				return inexact("suffix: the prompt depends on how the model fills gaps")
			}
		case "add_special_tokens":
			if p.d.options.Engine == SGLang {
				continue
			}
			var err error
			if special, err = boolField(value, "add_special_tokens", true); err != nil {
				return err
			}
		default:
			if err := p.vllmCommonField(key.text, value); err != nil {
				return err
			}
		}
	}
	prompt, _ := body.Get("prompt")
	p.in.SpecialTokens = special
	return p.prompt(prompt)
}

// prompt takes a text, a list of ids, or the first of a list of either.
func (p *preparation) prompt(v Value) error {
	switch v.Kind() {
	case KindString:
		if !v.Truth() {
			return raised("prompt: it is empty")
		}
		p.in.Text = v
		return nil
	case KindList:
		if v.Len() == 0 {
			return raised("prompt: the list is empty")
		}
		first := v.At(0)
		if first.Kind() == KindInt {
			return p.promptIDs(v)
		}
		p.in.More = v.Len() > 1
		if first.Kind() == KindList {
			return p.promptIDs(first)
		}
		if first.IsString() {
			p.in.Text = first
			return nil
		}
	}
	return inexact("prompt: want a text, a list of token ids, or a list of those")
}

func (p *preparation) promptIDs(list Value) error {
	for i := range list.Len() {
		if n, ok := list.At(i).Int64(); !ok || n < 0 || n > 1<<32-1 || list.At(i).Kind() != KindInt {
			return inexact("prompt: want token ids, which are numbers from 0")
		}
	}
	p.in.IDs, p.in.SpecialTokens = list, false
	return nil
}
