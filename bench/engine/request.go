package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// apiError is an error answer in the shape of vLLM 0.32.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

// badRequest makes a 400 error; an empty param is sent as null.
func badRequest(param, format string, args ...any) *apiError {
	e := &apiError{Message: fmt.Sprintf(format, args...), Type: "BadRequestError", Code: http.StatusBadRequest}
	if param != "" {
		e.Param = &param
	}
	return e
}

// write sends the error.
func (e *apiError) write(w http.ResponseWriter) {
	writeJSON(w, e.Code, struct {
		Error *apiError `json:"error"`
	}{e})
}

// writeJSON sends a value without a newline at its end, as vLLM does.
func writeJSON(w http.ResponseWriter, code int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("BUG: an answer cannot be encoded: " + err.Error())
	}
	body := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may have gone
}

// requestBody is what the simulator reads of chat, completion and tokenize
// requests; other keys are ignored.
type requestBody struct {
	Model               string          `json:"model"`
	Messages            []wireMessage   `json:"messages"`
	Prompt              json.RawMessage `json:"prompt"`
	Tools               json.RawMessage `json:"tools"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	N                   *int            `json:"n"`
	CacheSalt           *string         `json:"cache_salt"`
	ReturnTokenIDs      bool            `json:"return_token_ids"`
	AddGenerationPrompt *bool           `json:"add_generation_prompt"`
	AddSpecialTokens    *bool           `json:"add_special_tokens"`

	raw []byte // the whole body, for a vocabulary that reads more of it
}

type streamOptions struct {
	IncludeUsage         bool `json:"include_usage"`
	ContinuousUsageStats bool `json:"continuous_usage_stats"`
}

type wireMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

// readRequest reads and decodes a body.
func readRequest(w http.ResponseWriter, r *http.Request) (*requestBody, *apiError) {
	body := bytes.Buffer{}
	if r.ContentLength > 0 && r.ContentLength <= maxBodyBytes {
		body.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	if _, err := io.Copy(&body, http.MaxBytesReader(w, r.Body, maxBodyBytes)); err != nil {
		return nil, badRequest("", "There was an error reading the body: %v", err)
	}
	req := &requestBody{raw: body.Bytes()}
	if err := json.Unmarshal(body.Bytes(), req); err != nil {
		return nil, badRequest("", "JSON decode error: %v", err)
	}
	return req, nil
}

// job is a request that was understood.
type job struct {
	chat       bool
	request    *requestBody
	model      string // as the client named it
	adapter    string
	prompt     []uint32
	answer     int    // tokens
	reason     string // finish_reason: "length" if the client limited the answer
	salt       string
	blockFills int // prompt tokens in full blocks
}

// parse turns a body into a job, or says what vLLM would answer instead.
func (e *Engine) parse(req *requestBody, chat bool) (*job, *apiError) {
	j := &job{chat: chat, request: req, model: req.Model}
	var fault *apiError
	if j.adapter, fault = e.adapter(req.Model); fault != nil {
		return nil, fault
	}
	if j.model == "" {
		j.model = e.cfg.Model
	}
	if j.prompt, fault = e.prompt(req, chat, routeChat); fault != nil {
		return nil, fault
	}
	if req.N != nil && *req.N != 1 {
		return nil, badRequest("n", "n must be 1 on a simulated engine, got %d.", *req.N)
	}
	if req.CacheSalt != nil {
		if j.salt = *req.CacheSalt; j.salt == "" {
			return nil, badRequest("cache_salt", "Parameter 'cache_salt' must be a non-empty string if provided.")
		}
	}
	if fault = e.limit(j); fault != nil {
		return nil, fault
	}
	j.blockFills = len(j.prompt) / e.cfg.BlockTokens * e.cfg.BlockTokens
	return j, nil
}

// adapter resolves a model name to a LoRA adapter, "" for the base model.
func (e *Engine) adapter(model string) (string, *apiError) {
	if model == "" || model == e.cfg.Model {
		return "", nil
	}
	if slices.Contains(e.cfg.Adapters, model) {
		return model, nil
	}
	param := "model"
	aliases := strings.Join(append([]string{e.cfg.Model}, e.cfg.Adapters...), ", ")
	return "", &apiError{
		Message: fmt.Sprintf("The model `%s` does not exist. Valid aliases: %s.", model, aliases),
		Type:    "NotFoundError", Param: &param, Code: http.StatusNotFound,
	}
}

// limit fixes the length of the answer. An answer that the client limits is
// always that long, as with ignore_eos; without a limit a chat answer ends by
// itself after DefaultTokens, and a completion after 16, vLLM's default.
func (e *Engine) limit(j *job) *apiError {
	room := e.cfg.MaxModelLen - len(j.prompt)
	if room < 0 || (room == 0 && len(j.prompt) > 0) {
		return badRequest("input_tokens", "This model's maximum context length is %d tokens. However, your prompt contains at least %d input tokens, "+
			"which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=%d)",
			e.cfg.MaxModelLen, min(len(j.prompt), e.cfg.MaxModelLen+1), min(len(j.prompt), e.cfg.MaxModelLen+1))
	}
	asked := j.request.MaxTokens
	if j.chat && j.request.MaxCompletionTokens != nil {
		asked = j.request.MaxCompletionTokens
	}
	switch {
	case asked == nil && j.chat:
		j.answer, j.reason = e.cfg.DefaultTokens, "stop"
	case asked == nil:
		j.answer, j.reason = 16, "length"
	case *asked < 1:
		return badRequest("max_tokens", "max_tokens must be at least 1, got %d.", *asked)
	case *asked > room:
		return badRequest("max_tokens", "max_tokens=%d is too large: the prompt has %d tokens and this model's maximum context length is %d tokens.",
			*asked, len(j.prompt), e.cfg.MaxModelLen)
	default:
		j.answer, j.reason = *asked, "length"
	}
	if j.answer > room {
		j.answer, j.reason = room, "length"
	}
	return nil
}
