package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const chatPath = "/v1/chat/completions"

// turn is one message of a conversation.
type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// chatBody is a chat of one user message. more is further keys of the body,
// each after a comma.
func chatBody(text, more string) []byte { return talkBody([]turn{{"user", text}}, more) }

func talkBody(turns []turn, more string) []byte {
	messages, err := json.Marshal(turns)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return []byte(`{"model":"sim"` + more + `,"messages":` + string(messages) + `}`)
}

const streaming = `,"stream":true,"stream_options":{"include_usage":true}`

// reply is what a client got for one request.
type reply struct {
	begun  bool // a head came
	status int
	header http.Header
	body   []byte // all that came of it
	err    error  // of the connection, or a stream without its end
	text   string // content of the answer
	prompt int    // usage
	cached int
}

// completion is what tests read of answers, streamed or not.
type completion struct {
	Choices []struct {
		Message, Delta struct{ Content string }
		Text           string
	}
	Usage *struct {
		PromptTokens        int `json:"prompt_tokens"`
		PromptTokensDetails *struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
}

func (a *reply) node() string { return a.header.Get("X-Routed-To") }
func (a *reply) id() string   { return a.header.Get("X-Request-Id") }

// add reads one completion or chunk of it.
func (a *reply) add(raw []byte) {
	var c completion
	if json.Unmarshal(raw, &c) != nil {
		return
	}
	for _, choice := range c.Choices {
		a.text += choice.Message.Content + choice.Delta.Content + choice.Text
	}
	if c.Usage != nil {
		a.prompt = c.Usage.PromptTokens
		if d := c.Usage.PromptTokensDetails; d != nil {
			a.cached = d.CachedTokens
		}
	}
}

// send sends a body and reads all of the answer. begun is called when the head
// of the answer came; it may be nil.
func (r *serving) send(ctx context.Context, path, id string, body []byte, begun func()) *reply {
	a := &reply{header: http.Header{}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+path, bytes.NewReader(body))
	if err != nil {
		a.err = err
		return a
	}
	req.Header.Set("Content-Type", "application/json")
	if id != "" {
		req.Header.Set("X-Request-Id", id)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		a.err = err
		return a
	}
	defer resp.Body.Close()
	a.begun, a.status, a.header = true, resp.StatusCode, resp.Header
	if begun != nil {
		begun()
	}
	a.body, a.err = io.ReadAll(resp.Body)
	a.read()
	return a
}

// read takes the answer apart.
func (a *reply) read() {
	if !strings.HasPrefix(a.header.Get("Content-Type"), "text/event-stream") {
		a.add(a.body)
		return
	}
	done := false
	for line := range bytes.Lines(a.body) {
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data: "))
		if !ok {
			continue
		}
		done = string(data) == "[DONE]"
		a.add(data)
	}
	if !done && a.err == nil {
		a.err = errors.New("the stream ended cleanly without [DONE]")
	}
}

// ask sends a body and expects a whole answer of 200.
func (r *serving) ask(t *testing.T, body []byte) *reply {
	t.Helper()
	a := r.try(t, chatPath, body)
	if a.err != nil || a.status != http.StatusOK || a.text == "" {
		t.Fatalf("status %d from %q, error %v, body %s", a.status, a.node(), a.err, tail(string(a.body)))
	}
	return a
}

// try sends a body and returns whatever came.
func (r *serving) try(t *testing.T, path string, body []byte) *reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return r.send(ctx, path, "", body, nil)
}
