package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
)

const (
	// madeUp is how many different bodies are made up, sharing so many system
	// prompts.
	madeUp        = 64
	madeUpSystems = 8
	// maxPrompts bounds what is read of a file.
	maxPrompts     = 1 << 20
	maxPromptBytes = 64 << 20 // of a line
)

// Bodies makes the bodies of chat requests.
type Bodies struct {
	Model        string
	Stream       bool // ask for a stream, and for its token counts
	OutputTokens int  // max_tokens; 0 = what the file says, else nothing
	IgnoreEOS    bool // ask for all of them, whatever the model says
}

// message is one message of a chat.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// prompt is one line of a file. Lines with requests hold several.
type prompt struct {
	Prompt       *string         `json:"prompt"`
	Messages     json.RawMessage `json:"messages"`
	Requests     []prompt        `json:"requests"`
	OutputTokens int             `json:"output_tokens"`
	OutputLength int             `json:"Output Length"` // the traces of AIBrix
}

// FromFile reads JSON lines: {"prompt":"…"}, {"messages":[…]}, each with
// "output_tokens" or without, or {"requests":[…]} of those. Other members are
// ignored.
func (b *Bodies) FromFile(path string) ([][]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read prompts: %w", err)
	}
	defer file.Close()
	bodies, err := b.fromLines(file)
	if err != nil {
		return nil, fmt.Errorf("read prompts %s: %w", path, err)
	}
	return bodies, nil
}

func (b *Bodies) fromLines(r io.Reader) ([][]byte, error) {
	var bodies [][]byte
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxPromptBytes)
	for number := 1; lines.Scan(); number++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var p prompt
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		several := p.Requests
		if several == nil {
			several = []prompt{p}
		}
		for i := range several {
			body, err := b.of(&several[i])
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			if bodies = append(bodies, body); len(bodies) > maxPrompts {
				return nil, fmt.Errorf("line %d: more than %d prompts; use a part of the file", number, maxPrompts)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(bodies) == 0 {
		return nil, errors.New("it holds no prompt; write {\"prompt\":\"…\"} lines")
	}
	return bodies, nil
}

func (b *Bodies) of(p *prompt) ([]byte, error) {
	tokens := b.OutputTokens
	if tokens == 0 {
		tokens = max(p.OutputTokens, p.OutputLength)
	}
	switch {
	case p.Messages != nil:
		return b.write(p.Messages, tokens)
	case p.Prompt != nil:
		return b.write([]message{{"user", *p.Prompt}}, tokens)
	default:
		return nil, errors.New("neither prompt nor messages nor requests; give one of them")
	}
}

// write puts what is short first: whoever looks for the stream flag finds it
// early.
func (b *Bodies) write(messages any, tokens int) ([]byte, error) {
	type counts struct {
		IncludeUsage bool `json:"include_usage"`
	}
	body := struct {
		Model         string  `json:"model"`
		Stream        bool    `json:"stream,omitempty"`
		StreamOptions *counts `json:"stream_options,omitempty"`
		MaxTokens     int     `json:"max_tokens,omitempty"`
		IgnoreEOS     bool    `json:"ignore_eos,omitempty"`
		Temperature   int     `json:"temperature"`
		Messages      any     `json:"messages"`
	}{Model: b.Model, Stream: b.Stream, MaxTokens: tokens, IgnoreEOS: b.IgnoreEOS, Messages: messages}
	if b.Stream {
		body.StreamOptions = &counts{true}
	}
	return json.Marshal(body)
}

// MadeUp makes chat bodies of exactly sizeBytes, always the same ones for the
// same size: 64 that share 8 system prompts of a quarter of the size.
func (b *Bodies) MadeUp(sizeBytes int) ([][]byte, error) {
	bodies := make([][]byte, madeUp)
	for i := range bodies {
		system := text(sizeBytes/4, uint64(i%madeUpSystems))
		frame, err := b.write([]message{{"system", system}, {"user", ""}}, b.OutputTokens)
		if err != nil {
			return nil, err
		}
		left := sizeBytes - len(frame)
		if left < 1 {
			return nil, fmt.Errorf("check size %d: the frame of a body has %d bytes already; use more", sizeBytes, len(frame)-sizeBytes/4)
		}
		bodies[i], err = b.write([]message{{"system", system}, {"user", text(left, uint64(1000+i))}}, b.OutputTokens)
		if err != nil {
			return nil, err
		}
	}
	return bodies, nil
}

// text is n bytes of words that need no escape in JSON.
func text(n int, seed uint64) string {
	words := strings.Fields("the node that holds a prefix answers before any other so we measure how long each request waits while queue and cache grow token block engine router fleet reads its own state from events")
	r := rand.New(rand.NewPCG(seed, 7))
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()[:max(n, 0)]
}
