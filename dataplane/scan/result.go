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
	r.Parts = s.parts
	all, ended := s.messages, uint32(len(s.parts))
	text, open := s.openText()
	if open { // behind the ended ones, where the next part will lie
		r.Open, r.Parts = true, append(s.parts, text)
		s.parts = r.Parts[:ended]
	}
	switch {
	case s.inItem():
		all = append(s.messages, s.openItem(uint32(len(r.Parts))))
		s.messages = all[:len(all)-1]
		if s.listKey == memberMessages {
			messages.at.End++
		} else {
			input.at.End++
		}
	case open && s.key == memberPrompt:
		prompt = list{holds: elementText, single: true, at: Range{ended, ended + 1}}
	case open:
		input = list{holds: elementText, single: true, at: Range{ended, ended + 1}}
	}
	switch {
	case messages.holds == elementItem:
		r.Messages = all[messages.at.Start:messages.at.End]
	case input.holds == elementItem:
		r.Messages = all[input.at.Start:input.at.End]
	}
	if !s.assemblePrompt(r, prompt) {
		s.assemblePrompt(r, input)
	}
}

// within reports whether what is open at that depth, or lies there now, is a
// container of that context.
func (s *Scanner) within(depth int, c context) bool {
	if len(s.stack) == depth {
		return s.ctx == c
	}
	return len(s.stack) > depth && s.stack[depth] == c
}

// Where a message lies, and its content if that is a list.
const (
	itemDepth    = 3 // within nothing, the top-level object and the list
	contentDepth = itemDepth + 1
	partDepth    = contentDepth + 1
)

// inItem reports whether a message or input item has begun and not ended.
func (s *Scanner) inItem() bool { return s.within(itemDepth, ctxItem) }

// openText returns what has come of a text that has not ended, or whose part has
// not.
func (s *Scanner) openText() (text Part, ok bool) {
	inText := s.state == inString
	switch {
	case inText && s.ctx == ctxTop:
		ok = s.key == memberPrompt || s.key == memberInput
	case inText && s.ctx == ctxItem:
		ok = s.key == memberContent
	case !s.within(partDepth, ctxPart) || !s.isText:
	case inText && s.ctx == ctxPart && s.key == memberText:
		ok = true
	default:
		return s.part, s.hasText
	}
	return Part{Kind: PartText, Escaped: s.escaped, Span: Span{uint32(s.tok + 1), uint32(s.pos)}}, ok
}

// openItem returns what has come of the message that has not ended; its parts end
// before index end.
func (s *Scanner) openItem(end uint32) Message {
	m := s.item
	m.Span.End = uint32(s.pos)
	switch {
	case s.within(contentDepth, ctxContent):
		m.Parts = Range{s.partsAt, end}
	case end > uint32(len(s.parts)): // the open text is its content
		m.Parts = Range{uint32(len(s.parts)), end}
	}
	return m
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
