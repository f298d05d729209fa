package engine

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// fingerprint is the system_fingerprint of every answer.
const fingerprint = "vllm-0.32.0-simulated"

// exchange is one inference request while it is answered.
type exchange struct {
	e       *Engine
	l       *life
	w       http.ResponseWriter
	r       *http.Request
	job     *job
	id      string // with its prefix
	created int64  // Unix seconds
	fault   *activeFault
}

// faulty reports whether the exchange is to fail in the given way.
func (x *exchange) faulty(kind FaultKind) bool { return x.fault != nil && x.fault.Kind == kind }

// submit hands the job to the scheduler.
func (x *exchange) submit() (*answer, *apiError) {
	a, err := x.l.submit(&Sequence{
		Prompt: x.job.prompt, Answer: x.job.answer, Salt: x.job.salt, Adapter: x.job.adapter,
	}, x.job.reason)
	if err != nil {
		return nil, &apiError{Message: err.Error(), Type: "ServiceUnavailableError", Code: http.StatusServiceUnavailable}
	}
	return a, nil
}

// chatChoice is the one choice of a chat answer that is not streamed. These
// types have vLLM's keys in vLLM's order; what the simulator lacks is null.
type chatChoice struct {
	Index         int         `json:"index"`
	Message       chatMessage `json:"message"`
	Logprobs      *int        `json:"logprobs"`
	FinishReason  string      `json:"finish_reason"`
	StopReason    *int        `json:"stop_reason"`
	TokenIDs      []uint32    `json:"token_ids"`
	RoutedExperts *int        `json:"routed_experts"`
}

type chatMessage struct {
	Role         string  `json:"role"`
	Content      string  `json:"content"`
	Refusal      *string `json:"refusal"`
	Annotations  *string `json:"annotations"`
	Audio        *string `json:"audio"`
	FunctionCall *string `json:"function_call"`
	Reasoning    *string `json:"reasoning"`
}

type textChoice struct {
	Index          int      `json:"index"`
	Text           string   `json:"text"`
	Logprobs       *int     `json:"logprobs"`
	FinishReason   string   `json:"finish_reason"`
	StopReason     *int     `json:"stop_reason"`
	TokenIDs       []uint32 `json:"token_ids"`
	PromptLogprobs *int     `json:"prompt_logprobs"`
	PromptTokenIDs []uint32 `json:"prompt_token_ids"`
	RoutedExperts  *int     `json:"routed_experts"`
}

type usage struct {
	PromptTokens        int          `json:"prompt_tokens"`
	TotalTokens         int          `json:"total_tokens"`
	CompletionTokens    int          `json:"completion_tokens"`
	PromptTokensDetails usageDetails `json:"prompt_tokens_details"`
	CompletionDetails   *int         `json:"completion_tokens_details"`
}

type usageDetails struct {
	CachedTokens       int64  `json:"cached_tokens"`
	CreatedCacheTokens *int64 `json:"created_cache_tokens"` // null in text completions
	MultimodalTokens   *int   `json:"multimodal_tokens"`
}

type chatAnswer struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"`
	Created           int64        `json:"created"`
	Model             string       `json:"model"`
	Choices           []chatChoice `json:"choices"`
	ServiceTier       *string      `json:"service_tier"`
	SystemFingerprint string       `json:"system_fingerprint"`
	Usage             usage        `json:"usage"`
	PromptLogprobs    *int         `json:"prompt_logprobs"`
	PromptTokenIDs    []uint32     `json:"prompt_token_ids"`
	PromptText        *string      `json:"prompt_text"`
	KVTransferParams  *int         `json:"kv_transfer_params"`
	ECTransferParams  *int         `json:"ec_transfer_params"`
	Metrics           *int         `json:"metrics"`
}

type textAnswer struct {
	ID                string       `json:"id"`
	Object            string       `json:"object"`
	Created           int64        `json:"created"`
	Model             string       `json:"model"`
	Choices           []textChoice `json:"choices"`
	ServiceTier       *string      `json:"service_tier"`
	SystemFingerprint string       `json:"system_fingerprint"`
	Usage             usage        `json:"usage"`
	KVTransferParams  *int         `json:"kv_transfer_params"`
	ECTransferParams  *int         `json:"ec_transfer_params"`
	Metrics           *int         `json:"metrics"`
}

// whole answers a request that is not streamed, once every token exists.
func (x *exchange) whole() {
	switch {
	case x.faulty(FaultHangAfterHeaders):
		x.w.Header().Set("Content-Type", "application/json")
		x.w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(x.w).Flush() // the client may have gone
		hang(x.r, x.fault, x.l)
		panic(http.ErrAbortHandler)
	case x.faulty(FaultErrorEvent):
		engineDead().write(x.w)
		return
	}
	a, fault := x.submit()
	if fault != nil {
		fault.write(x.w)
		return
	}
	total := int64(x.job.answer)
	for n := int64(0); n < total; {
		var ok bool
		if n, ok = x.l.wait(x.r.Context(), a, n); !ok {
			panic(http.ErrAbortHandler)
		}
	}
	body := x.wholeBody(a, total)
	if x.faulty(FaultCutMidStream) {
		b, err := json.Marshal(body)
		if err != nil {
			panic("BUG: an answer cannot be encoded: " + err.Error())
		}
		x.w.Header().Set("Content-Type", "application/json")
		x.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, _ = x.w.Write(b[:len(b)/2])
		_ = http.NewResponseController(x.w).Flush()
		panic(http.ErrAbortHandler)
	}
	x.e.finished.Add(1)
	writeJSON(x.w, http.StatusOK, body)
}

// wholeBody fills in the answer.
func (x *exchange) wholeBody(a *answer, total int64) any {
	u := usage{
		PromptTokens: len(x.job.prompt), CompletionTokens: int(total), TotalTokens: len(x.job.prompt) + int(total),
		PromptTokensDetails: usageDetails{CachedTokens: a.cached.Load()},
	}
	var tokenIDs, promptIDs []uint32
	if x.job.request.ReturnTokenIDs {
		tokenIDs, promptIDs = x.e.vocabulary.answers().wordIDs(a.start, 0, total), x.job.prompt
	}
	text := x.e.vocabulary.answers().words(a.start, 0, total)
	if !x.job.chat {
		return &textAnswer{
			ID: x.id, Object: "text_completion", Created: x.created, Model: x.job.model,
			Choices:           []textChoice{{Text: text, FinishReason: x.job.reason, TokenIDs: tokenIDs, PromptTokenIDs: promptIDs}},
			SystemFingerprint: fingerprint, Usage: u,
		}
	}
	created := x.createdCacheTokens(a)
	u.PromptTokensDetails.CreatedCacheTokens = &created
	return &chatAnswer{
		ID: x.id, Object: "chat.completion", Created: x.created, Model: x.job.model,
		Choices:           []chatChoice{{Message: chatMessage{Role: "assistant", Content: text}, FinishReason: x.job.reason, TokenIDs: tokenIDs}},
		SystemFingerprint: fingerprint, Usage: u, PromptTokenIDs: promptIDs,
	}
}

// createdCacheTokens is how many prompt tokens became full cached blocks.
func (x *exchange) createdCacheTokens(a *answer) int64 {
	return max(0, int64(x.job.blockFills)-a.cached.Load())
}

// stream answers with server-sent events. As vLLM it sends the head at once
// and the first event with the first token.
func (x *exchange) stream() {
	// The queue bound is checked before the head, so that it can be answered 503.
	var a *answer
	if !x.faulty(FaultHangAfterHeaders) {
		var fault *apiError
		if a, fault = x.submit(); fault != nil {
			fault.write(x.w)
			return
		}
	}
	x.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	x.w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(x.w)
	if control.Flush() != nil || a == nil {
		x.abandon(a)
	}
	s := &sse{x: x, a: a, left: -1}
	if x.faulty(FaultCutMidStream) || x.faulty(FaultErrorEvent) {
		s.left = x.fault.AfterChunks
	}
	s.prepare()
	total := int64(x.job.answer)
	for n := int64(0); n < total; {
		now, ok := x.l.wait(x.r.Context(), a, n)
		if !ok {
			panic(http.ErrAbortHandler)
		}
		s.tokens(n, now, total)
		if now == total && s.left >= 0 {
			s.broken = true // shorter than AfterChunks: it breaks before its end
		}
		if now == total && !s.broken {
			s.end(total)
		}
		if _, err := x.w.Write(s.buf); err != nil || control.Flush() != nil {
			x.abandon(a)
		}
		s.buf = s.buf[:0]
		if s.broken {
			x.breakStream(a)
			return
		}
		n = now
	}
	x.e.finished.Add(1)
}

// abandon ends an exchange whose client has gone, or that is to hang.
func (x *exchange) abandon(a *answer) {
	if a != nil {
		x.l.abort(a)
	} else {
		hang(x.r, x.fault, x.l)
	}
	panic(http.ErrAbortHandler)
}

// breakStream ends a stream in the way of its fault: an error event and a
// regular end, as when vLLM's engine process dies, or no end at all.
func (x *exchange) breakStream(a *answer) {
	x.l.abort(a)
	if x.faulty(FaultCutMidStream) {
		panic(http.ErrAbortHandler)
	}
	_, _ = x.w.Write([]byte(`data: {"error": {"message": "` + engineDead().Message +
		`", "type": "InternalServerError", "param": null, "code": 500}}` + "\n\ndata: [DONE]\n\n")) // the client may have gone
}
