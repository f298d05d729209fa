package engine

import (
	"bytes"
	"encoding/json"
	"strings"
)

// route says by which path a chat came: vLLM reads other fields in each.
type route string

const (
	routeChat     route = "chat"
	routeTokenize route = "tokenize"
)

// vocabulary turns what clients send into the token ids that the simulated
// engine computes with. All methods may be called by any goroutine.
type vocabulary interface {
	// name says what it is, for whoever compares figures.
	name() string
	// size is above every id.
	size() uint32
	// chat gives the prompt of a chat, rendered by the model's template.
	chat(req *requestBody, by route) ([]uint32, *apiError)
	// text gives the ids of a text, between the model's special tokens if
	// special is set.
	text(text string, special bool) ([]uint32, *apiError)
	// answers are the words that answers consist of.
	answers() *answerTable
}

// prompt gives the token ids of a request's prompt.
func (e *Engine) prompt(req *requestBody, chat bool, by route) ([]uint32, *apiError) {
	if !chat {
		return completionTokens(e.vocabulary, req)
	}
	if len(req.Messages) == 0 {
		return nil, badRequest("messages", "Field required: messages must hold at least one message.")
	}
	for i := range req.Messages {
		if req.Messages[i].Role == "" {
			return nil, badRequest("messages", "Field required: messages[%d].role.", i)
		}
	}
	return e.vocabulary.chat(req, by)
}

// fourBytes is the vocabulary of an engine without a real model: a token is
// four bytes of the rendered text.
type fourBytes struct{}

func (fourBytes) name() string { return "four bytes a token" }

func (fourBytes) size() uint32 { return VocabularySize }

func (fourBytes) text(text string, _ bool) ([]uint32, *apiError) { return Tokenize([]byte(text)), nil }

func (fourBytes) answers() *answerTable { return &fourByteAnswers }

func (fourBytes) chat(req *requestBody, _ route) ([]uint32, *apiError) {
	messages := make([]Message, len(req.Messages))
	for i := range req.Messages {
		m := &req.Messages[i]
		content, fault := contentText(m.Content)
		if fault != nil {
			return nil, fault
		}
		if calls := compact(m.ToolCalls); len(calls) > 0 {
			content += string(calls)
		}
		messages[i] = Message{Role: m.Role, Content: content}
	}
	generation := req.AddGenerationPrompt == nil || *req.AddGenerationPrompt
	return Tokenize(RenderChat(messages, compact(req.Tools), generation)), nil
}

// compact drops white space of a JSON value; null and absence become nothing.
func compact(raw json.RawMessage) []byte {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		panic("BUG: decoded JSON is not valid: " + err.Error())
	}
	return b.Bytes()
}

// contentText is the text of a message: a string, or text parts joined by
// newlines. The simulated models take no images or sound.
func contentText(raw json.RawMessage) (string, *apiError) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	var text string
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return "", badRequest("messages", "JSON decode error: %v", err)
		}
		return text, nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", badRequest("messages", "content must be a string or a list of parts: %v", err)
	}
	texts := make([]string, len(parts))
	for i, p := range parts {
		if p.Text == nil {
			return "", badRequest("messages", "At most 0 %s(s) may be provided in one prompt.", strings.TrimSuffix(p.Type, "_url"))
		}
		texts[i] = *p.Text
	}
	return strings.Join(texts, "\n"), nil
}

// completionTokens reads the four forms of a completion prompt; lists of
// several prompts are refused.
func completionTokens(v vocabulary, req *requestBody) ([]uint32, *apiError) {
	var text string
	var ids []uint32
	var texts []string
	var lists [][]uint32
	var tokens []uint32
	var fault *apiError
	special := req.AddSpecialTokens == nil || *req.AddSpecialTokens
	switch raw := req.Prompt; {
	case json.Unmarshal(raw, &text) == nil:
		tokens, fault = v.text(text, special)
	case json.Unmarshal(raw, &ids) == nil:
		tokens = ids
	case json.Unmarshal(raw, &texts) == nil && len(texts) == 1:
		tokens, fault = v.text(texts[0], special)
	case json.Unmarshal(raw, &lists) == nil && len(lists) == 1:
		tokens = lists[0]
	default:
		return nil, badRequest("prompt", "prompt must be a text, a list of token ids, or a list of one of them.")
	}
	if fault != nil {
		return nil, fault
	}
	if len(tokens) == 0 {
		return nil, badRequest("prompt", "The prompt must not be empty.")
	}
	for _, id := range tokens {
		if id >= v.size() {
			return nil, badRequest("prompt", "Token id %d is out of vocabulary", id)
		}
	}
	return tokens, nil
}
