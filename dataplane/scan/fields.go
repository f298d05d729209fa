package scan

// context says what a container is to us.
type context uint8

const (
	ctxNone       context = iota // outside the top-level object
	ctxSkipObject                // checked for grammar only
	ctxSkipArray
	ctxTop     // the top-level object
	ctxItem    // a message or an input item
	ctxPart    // an object among content or system parts
	ctxList    // the array of messages, prompt or input; the first array context
	ctxTokens  // an array of token ids within prompt or input
	ctxContent // the content of a message, given as a list of parts
	ctxSystem  // system or instructions, given as a list of parts
	ctxOther   // an array where a part belongs
	ctxTools
)

func (c context) isArray() bool { return c >= ctxList || c == ctxSkipArray }

// element says what a list holds.
type element uint8

const (
	elementNone element = iota // the list is absent or still empty
	elementText
	elementToken
	elementTokens
	elementItem
	elementMixed // not of one kind, or of a kind that the key cannot hold
)

// list is a value of messages, prompt or input.
type list struct {
	holds  element
	single bool  // a string instead of a list
	at     Range // in parts, tokens or messages, as holds says
}

// fields is what the Scanner has found, and what it is working on.
type fields struct {
	seen, repeated Keys

	model, user, cacheSalt, sessionID, tools  optionalSpan
	maxTokens, maxCompletionTokens, prefixLen optionalInt
	stream                                    Tri
	system, instructions                      Range
	messagesList, promptList, inputList       list

	// Storage that Ranges and lists point into.
	messages []Message
	parts    []Part
	tokens   []uint32

	key      member // of the value that comes next in the context's object
	list     list   // the list being read …
	listKey  member // … and whose it is; memberUnknown when none is open
	keepsIDs bool   // whether the inner list of token ids is the first one

	item    Message
	blocks  member // which of content, system, instructions the open list of parts is
	partsAt uint32 // where its parts begin
	startAt uint32 // offset of the open part, or of tools
	part    Part   // the open part's text, if hasText
	isText  bool   // the open part's type says so
	hasText bool
}

type optionalSpan struct {
	Span
	ok bool
}

type optionalInt struct {
	v  int64
	ok bool
}

// keyed takes note of a key of the object at hand, given raw. The value it may
// have had before is gone, whatever comes now.
func (s *Scanner) keyed(raw []byte) {
	var buf [6 * longestKey]byte
	name := decoded(&buf, raw, s.escaped)
	switch s.ctx {
	case ctxTop:
		s.key = topMember(name)
		if s.key != memberUnknown {
			s.repeated |= s.seen & s.key.set()
			s.seen |= s.key.set()
			s.forget(s.key)
		}
	case ctxItem:
		s.key = itemMember(name)
		switch s.key {
		case memberRole:
			s.item.Role = Span{}
		case memberContent:
			s.item.Parts = Range{}
		}
	case ctxPart:
		s.key = partMember(name)
		switch s.key {
		case memberType:
			s.isText = false
		case memberText:
			s.hasText = false
		}
	}
}

// forget drops the value of a top-level key.
func (s *Scanner) forget(k member) {
	switch k {
	case memberModel:
		s.model = optionalSpan{}
	case memberUser:
		s.user = optionalSpan{}
	case memberCacheSalt:
		s.cacheSalt = optionalSpan{}
	case memberSessionID:
		s.sessionID = optionalSpan{}
	case memberTools:
		s.tools = optionalSpan{}
	case memberStream:
		s.stream = Absent
	case memberMaxTokens:
		s.maxTokens = optionalInt{}
	case memberMaxCompletionTokens:
		s.maxCompletionTokens = optionalInt{}
	case memberPrefixLen:
		s.prefixLen = optionalInt{}
	case memberSystem:
		s.system = Range{}
	case memberInstructions:
		s.instructions = Range{}
	case memberMessages, memberPrompt, memberInput:
		*s.listOf(k) = list{}
	}
}

func (s *Scanner) listOf(k member) *list {
	switch k {
	case memberMessages:
		return &s.messagesList
	case memberPrompt:
		return &s.promptList
	}
	return &s.inputList
}

// stringValue takes note of a string value; at is what lies between its quotes.
func (s *Scanner) stringValue(b []byte, at Span) {
	switch s.ctx {
	case ctxTop:
		s.topString(at)
	case ctxItem:
		switch s.key {
		case memberRole:
			s.item.Role = at
		case memberContent:
			s.item.Parts = s.onePart(at)
		}
	case ctxPart:
		switch s.key {
		case memberType:
			var buf [6 * longestKey]byte
			s.isText = isTextType(decoded(&buf, at.Of(b), s.escaped))
		case memberText:
			s.part, s.hasText = s.text(at), true
		}
	case ctxContent, ctxSystem:
		s.addPart(Part{Kind: PartOther, Span: Span{at.Start - 1, at.End + 1}})
	case ctxList:
		if s.element(elementText) {
			s.addPart(s.text(at))
			s.list.at.End = uint32(len(s.parts))
		}
	case ctxTokens:
		s.list.holds = elementMixed
	}
}

// topString takes note of a string value of the top-level object.
func (s *Scanner) topString(at Span) {
	switch s.key {
	case memberModel:
		s.model = optionalSpan{at, true}
	case memberUser:
		s.user = optionalSpan{at, true}
	case memberCacheSalt:
		s.cacheSalt = optionalSpan{at, true}
	case memberSessionID:
		s.sessionID = optionalSpan{at, true}
	case memberSystem:
		s.system = s.onePart(at)
	case memberInstructions:
		s.instructions = s.onePart(at)
	case memberPrompt, memberInput:
		*s.listOf(s.key) = list{holds: elementText, single: true, at: s.onePart(at)}
	}
}

// onePart stores a text that is the whole of a content.
func (s *Scanner) onePart(at Span) Range {
	n := uint32(len(s.parts))
	s.addPart(s.text(at))
	return Range{n, uint32(len(s.parts))}
}

// numberValue takes note of a number value.
func (s *Scanner) numberValue(b []byte, at Span) {
	switch s.ctx {
	case ctxTop:
		v, ok := integer(at.Of(b))
		switch s.key {
		case memberMaxTokens:
			s.maxTokens = optionalInt{v, ok}
		case memberMaxCompletionTokens:
			s.maxCompletionTokens = optionalInt{v, ok}
		case memberPrefixLen:
			s.prefixLen = optionalInt{v, ok}
		}
	case ctxList, ctxTokens:
		v, ok := integer(at.Of(b))
		if !ok || v > 1<<32-1 {
			s.list.holds = elementMixed
		} else if !s.addTokenID(uint32(v)) {
			s.failLimit(int(at.Start), s.Limits.MaxTokenIDs, "token ids")
		}
	case ctxContent, ctxSystem:
		s.addPart(Part{Kind: PartOther, Span: at})
	}
}

// literalValue takes note of true, false or null.
func (s *Scanner) literalValue(lit string, at Span) {
	switch s.ctx {
	case ctxTop:
		if s.key == memberStream {
			switch lit {
			case "true":
				s.stream = True
			case "false":
				s.stream = False
			}
		}
	case ctxList, ctxTokens:
		s.list.holds = elementMixed
	case ctxContent, ctxSystem:
		s.addPart(Part{Kind: PartOther, Span: at})
	}
}
