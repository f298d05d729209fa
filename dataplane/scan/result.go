package scan

// assemble writes what s has found to r, with what is open as it stands.
func (s *Scanner) assemble(r *Result) {
	if s.forgot {
		*r = Result{Stream: s.stream, MaxTokens: s.maxCompletionTokens.orElse(s.maxTokens.orElse(-1)), PrefixLen: s.prefixLen.orElse(-1)}
		return
	}
	*r = Result{
		Model:     s.model.Span,
		HasModel:  s.model.ok,
		Stream:    s.stream,
		MaxTokens: s.maxCompletionTokens.orElse(s.maxTokens.orElse(-1)),
		PrefixLen: s.prefixLen.orElse(-1),
		User:      s.user.Span,
		CacheSalt: s.cacheSalt.Span,
		SessionID: s.sessionID.Span,
		Tools:     s.tools.Span,
		System:    s.system,
	}
	if r.System.Start == r.System.End {
		r.System = s.instructions
	}
	messages, prompt, input := s.messagesList, s.promptList, s.inputList
	switch s.listKey {
	case memberMessages:
		messages = s.list
	case memberPrompt:
		prompt = s.list
	case memberInput:
		input = s.list
	}
	switch {
	case messages.holds == elementItem:
		r.Messages = s.messages[messages.at.Start:messages.at.End]
	case input.holds == elementItem:
		r.Messages = s.messages[input.at.Start:input.at.End]
	}
	if !s.assemblePrompt(r, prompt) {
		s.assemblePrompt(r, input)
	}
	r.Parts = s.parts
}

// assemblePrompt writes prompt, or input, to r and reports whether it was one.
func (s *Scanner) assemblePrompt(r *Result, l list) bool {
	switch l.holds {
	case elementText:
		r.Prompt, r.PromptKind = l.at, PromptTexts
		if l.single {
			r.PromptKind = PromptText
		}
	case elementToken:
		r.Tokens, r.PromptKind = s.tokens[l.at.Start:l.at.End], PromptTokens
	case elementTokens:
		r.Tokens, r.PromptKind = s.tokens[l.at.Start:l.at.End], PromptTokenList
	default:
		return false
	}
	return true
}

func (i optionalInt) orElse(v int64) int64 {
	if i.ok {
		return i.v
	}
	return v
}
