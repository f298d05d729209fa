package scan

// Span is a half-open range of bytes of the body.
type Span struct{ Start, End uint32 }

// Len returns the number of bytes.
func (s Span) Len() int { return int(s.End - s.Start) }

// Of returns the bytes of body that the span covers.
func (s Span) Of(body []byte) []byte { return body[s.Start:s.End] }

// Tri is a boolean that may be absent.
type Tri uint8

const (
	Absent Tri = iota
	False
	True
)

// PartKind says what a Part is.
type PartKind uint8

const (
	PartText  PartKind = iota // Span covers the raw, still escaped text, without its quotes
	PartOther                 // image, audio, tool result …: Span covers the whole raw JSON value
)

// Part is one piece of content.
type Part struct {
	Kind    PartKind
	Escaped bool // a text that holds at least one backslash
	Span    Span
}

// Message is one element of messages (or of input, for the Responses API).
type Message struct {
	Role  Span // raw string without quotes
	Span  Span // the whole raw JSON object, braces included; of one that has not ended, what has come
	Parts Range
}

// Range is a half-open range of indices into Result.Parts.
type Range struct{ Start, End uint32 }

// PromptKind says in which form prompt (or a plain input) was given.
type PromptKind uint8

const (
	PromptNone      PromptKind = iota
	PromptText                 // one string: one Part
	PromptTexts                // a list of strings: a Part each
	PromptTokens               // a list of token ids: Result.Tokens
	PromptTokenList            // a list of lists of token ids: Result.Tokens holds the first list
)

// Result is what one body says. All spans are offsets into that body; slices
// belong to the Scanner and are valid until its next Reset. A key that occurs
// twice counts by its last value, as in Python's json; one whose value has a type
// that the key cannot have is absent (see the package's documentation).
type Result struct {
	Model     Span // raw string without quotes; empty if absent
	HasModel  bool
	Stream    Tri
	MaxTokens int64 // max_completion_tokens if given, else max_tokens; -1 = absent
	PrefixLen int64 // prefix_len, -1 = absent

	User      Span // raw strings without quotes; Len 0 = absent
	CacheSalt Span
	SessionID Span

	Tools  Span  // whole raw JSON value of tools; Len 0 = absent or null
	System Range // system (Anthropic) or instructions (Responses API)

	Messages   []Message // messages, or input given as a list of items
	Prompt     Range     // prompt, or input given as text(s)
	PromptKind PromptKind
	Tokens     []uint32 // token ids of prompt

	Parts []Part // storage of all Ranges
	Open  bool   // the last of Parts has not ended: more of it, or of its part, may come
}
