package scan

// Keys is a set of top-level keys.
type Keys uint16

// The top-level keys that the Scanner knows.
const (
	KeyModel Keys = 1 << iota
	KeyStream
	KeyMaxTokens
	KeyMaxCompletionTokens
	KeyPrefixLen
	KeyUser
	KeyCacheSalt
	KeySessionID
	KeyMessages
	KeyPrompt
	KeyInput
	KeySystem
	KeyInstructions
	KeyTools
)

// Has reports whether all of k are in the set.
func (s Keys) Has(k Keys) bool { return s&k == k }

// member is a key of one of the objects that are looked at.
type member uint8

const (
	memberUnknown member = iota
	memberModel
	memberStream
	memberMaxTokens
	memberMaxCompletionTokens
	memberPrefixLen
	memberUser
	memberCacheSalt
	memberSessionID
	memberMessages
	memberPrompt
	memberInput
	memberSystem
	memberInstructions
	memberTools
	lastTopMember = memberTools

	// Of a message.
	memberRole member = iota
	memberContent

	// Of a content part.
	memberType
	memberText
)

// longestKey is the length of "max_completion_tokens".
const longestKey = 21

// set returns the exported name of a top-level member.
func (m member) set() Keys { return 1 << (m - 1) }

// topMember names a key of the top-level object, given decoded.
func topMember(key []byte) member {
	switch string(key) {
	case "model":
		return memberModel
	case "stream":
		return memberStream
	case "max_tokens":
		return memberMaxTokens
	case "max_completion_tokens":
		return memberMaxCompletionTokens
	case "prefix_len":
		return memberPrefixLen
	case "user":
		return memberUser
	case "cache_salt":
		return memberCacheSalt
	case "session_id":
		return memberSessionID
	case "messages":
		return memberMessages
	case "prompt":
		return memberPrompt
	case "input":
		return memberInput
	case "system":
		return memberSystem
	case "instructions":
		return memberInstructions
	case "tools":
		return memberTools
	}
	return memberUnknown
}

// itemMember names a key of a message or input item, given decoded.
func itemMember(key []byte) member {
	switch string(key) {
	case "role":
		return memberRole
	case "content":
		return memberContent
	}
	return memberUnknown
}

// partMember names a key of a content part, given decoded.
func partMember(key []byte) member {
	switch string(key) {
	case "type":
		return memberType
	case "text":
		return memberText
	}
	return memberUnknown
}

// isTextType reports whether a part with this type, given decoded, is text:
// in chat, in what users and what models wrote in the Responses API.
func isTextType(name []byte) bool {
	switch string(name) {
	case "text", "input_text", "output_text":
		return true
	}
	return false
}

// decoded returns the text that a raw string stands for, as far as it can be
// one of the names above; what is too long for that comes back as nil. The
// result borrows raw or buf. escaped says whether raw holds a backslash.
func decoded(buf *[6 * longestKey]byte, raw []byte, escaped bool) []byte {
	if !escaped {
		return raw
	}
	if len(raw) > len(buf) {
		return nil
	}
	return AppendUnescaped(buf[:0], raw)
}
