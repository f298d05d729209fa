package scan

// element takes note of what kind of element comes next in the open list, and
// reports whether it is to be stored.
func (s *Scanner) element(e element) bool {
	l := &s.list
	if l.holds == elementNone {
		l.holds = elementMixed
		if s.listKey.mayHold(e) {
			l.holds = e
		}
		var n uint32
		switch e {
		case elementText:
			n = uint32(len(s.parts))
		case elementToken, elementTokens:
			n = uint32(len(s.tokens))
		case elementItem:
			n = uint32(len(s.messages))
		}
		l.at = Range{n, n}
	}
	if l.holds != e {
		l.holds = elementMixed
	}
	return l.holds == e
}

// mayHold reports whether a list under key m may consist of such elements.
func (m member) mayHold(e element) bool {
	switch m {
	case memberMessages:
		return e == elementItem
	case memberPrompt:
		return e != elementItem
	}
	return true
}

// addTokenID stores an element of a list of token ids, unless the list is not
// one or not the first. It reports whether the bound allows it.
func (s *Scanner) addTokenID(id uint32) bool {
	if s.ctx == ctxList {
		if !s.element(elementToken) {
			return true
		}
	} else if !s.keepsIDs || s.list.holds != elementTokens {
		return true
	}
	if s.forgot {
		return true
	}
	if len(s.tokens) >= s.Limits.MaxTokenIDs {
		return false
	}
	s.tokens = append(s.tokens, id)
	s.list.at.End = uint32(len(s.tokens))
	return true
}

// text is the string at hand as a part.
func (s *Scanner) text(at Span) Part {
	return Part{Kind: PartText, Escaped: s.escaped, Span: at}
}

func (s *Scanner) addPart(part Part) {
	if s.forgot {
		return
	}
	if len(s.parts) >= s.Limits.MaxParts {
		s.failLimit(int(part.Span.Start), s.Limits.MaxParts, "texts and content parts")
		return
	}
	s.parts = append(s.parts, part)
}

func (s *Scanner) addItem() {
	if s.forgot {
		return
	}
	if len(s.messages) >= s.Limits.MaxMessages {
		s.failLimit(int(s.item.Span.Start), s.Limits.MaxMessages, "messages")
		return
	}
	s.messages = append(s.messages, s.item)
	s.list.at.End = uint32(len(s.messages))
}

// childObject says what an object that begins at p is to us.
func (s *Scanner) childObject(p int) context {
	switch s.ctx {
	case ctxList:
		if s.element(elementItem) {
			s.item = Message{Span: Span{Start: uint32(p)}}
			return ctxItem
		}
	case ctxTokens:
		s.list.holds = elementMixed
	case ctxContent, ctxSystem:
		s.startAt, s.isText, s.hasText = uint32(p), false, false
		return ctxPart
	}
	return ctxSkipObject
}

// childArray says what an array that begins at p is to us.
func (s *Scanner) childArray(p int) context {
	switch s.ctx {
	case ctxTop:
		switch s.key {
		case memberMessages, memberPrompt, memberInput:
			s.list, s.listKey = list{}, s.key
			return ctxList
		case memberSystem, memberInstructions:
			s.blocks, s.partsAt = s.key, uint32(len(s.parts))
			return ctxSystem
		case memberTools:
			s.startAt = uint32(p)
			return ctxTools
		}
	case ctxItem:
		if s.key == memberContent {
			s.blocks, s.partsAt = s.key, uint32(len(s.parts))
			return ctxContent
		}
	case ctxList:
		first := s.list.holds == elementNone
		if s.element(elementTokens) {
			s.keepsIDs = first
			return ctxTokens
		}
	case ctxTokens:
		s.list.holds = elementMixed
	case ctxContent, ctxSystem:
		s.startAt = uint32(p)
		return ctxOther
	}
	return ctxSkipArray
}

// closed takes note of a container that has ended before offset end.
func (s *Scanner) closed(left context, end int) {
	switch left {
	case ctxItem:
		s.item.Span.End = uint32(end)
		s.addItem()
	case ctxList:
		if s.list.holds != elementMixed {
			*s.listOf(s.listKey) = s.list
		}
		s.listKey = memberUnknown
	case ctxPart:
		if s.isText && s.hasText {
			s.addPart(s.part)
			return
		}
		s.addPart(Part{Kind: PartOther, Span: Span{s.startAt, uint32(end)}})
	case ctxOther:
		s.addPart(Part{Kind: PartOther, Span: Span{s.startAt, uint32(end)}})
	case ctxContent, ctxSystem:
		*s.blocksRange() = Range{s.partsAt, uint32(len(s.parts))}
	case ctxTools:
		s.tools = optionalSpan{Span{s.startAt, uint32(end)}, true}
	}
}

// blocksRange is where the range of the open list of parts belongs.
func (s *Scanner) blocksRange() *Range {
	switch s.blocks {
	case memberSystem:
		return &s.system
	case memberInstructions:
		return &s.instructions
	}
	return &s.item.Parts
}
