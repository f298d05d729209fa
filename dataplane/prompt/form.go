package prompt

import (
	"strings"

	"warmpath/dataplane/chat"
)

// Form is how a request bears its prompt.
type Form uint8

const (
	FormNone       Form = iota // not known: routed by its text
	FormChat                   // messages and tools, through the chat template
	FormCompletion             // one text, or token ids
	FormMessages               // Anthropic's messages
	FormResponses              // items of the Responses API
)

// Unprovable says why no engine can be asked for the tokens of such a request,
// so that its conversion to a chat could be proved; "" if one can.
func (f Form) Unprovable() string {
	if f == FormMessages || f == FormResponses {
		return "the engine cannot be asked what it makes of this kind of request"
	}
	return ""
}

func (f Form) endpoint() chat.Endpoint { return chat.Endpoint(f - FormChat) }

// Class is what of a request is to be proved of an engine: the features it
// uses, each combination by itself.
type Class = chat.Features

// Classes is how many there are.
const Classes = chat.FeatureCount

// Single features, and none.
const (
	ClassPlain   Class = 0
	ClassTools         = chat.FeatureTools
	ClassParts         = chat.FeatureParts
	ClassOptions       = chat.FeatureOptions
)

// ClassNames names the classes of a set of bits, for people.
func ClassNames(bits uint32) string {
	var names []string
	for c := range Classes {
		if bits>>c&1 != 0 {
			names = append(names, c.String())
		}
	}
	return strings.Join(names, " ")
}

// Verdict is what Begin found.
type Verdict struct {
	Level  chat.Level
	Class  Class  // what is to be proved of the engine for it
	Reason string // why the Level is not LevelExact; "" if it is
	CostNs int    // of rendering and cutting, by the estimate that Next counts in
	// Unfinished says that there was no time to find out.
	Unfinished bool
}
