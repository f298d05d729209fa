package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// TokensTimeout bounds a question for a prompt's tokens: an engine that is busy
// answers it behind its requests.
const TokensTimeout = 10 * time.Second

// maxTokensAnswer bounds the answer: a million ids of seven digits.
const maxTokensAnswer = 16 << 20

// ErrNoTokens says that an engine of this kind names no tokens.
var ErrNoTokens = errors.New("the engine has no route that names a prompt's tokens")

// tokensPaths are the routes that name the tokens of a request (vLLM 0.32.0,
// vllm/entrypoints/serve/tokenize; SGLang 0.5.x, srt/entrypoints/http_server.py).
var tokensPaths = map[string]string{"vllm": "/tokenize", "sglang": "/v1/tokenize"}

// Tokens asks which ids an engine makes of body, the body of a request to one
// of its prompt routes. engineName is as in Metrics; ErrNoTokens if engines of
// that kind do not say.
func (p *Prober) Tokens(ctx context.Context, engineName, base string, body []byte) ([]uint32, error) {
	path, ok := tokensPaths[engineName]
	if !ok {
		return nil, fmt.Errorf("ask tokens of %q: %w", base, ErrNoTokens)
	}
	var answer struct {
		Tokens []uint32 `json:"tokens"`
	}
	err := p.post(ctx, base+path, body, TokensTimeout, func(r *http.Response) error {
		return json.NewDecoder(io.LimitReader(r.Body, maxTokensAnswer)).Decode(&answer)
	})
	if err != nil {
		var status *StatusError
		if errors.As(err, &status) && status.Status == http.StatusNotFound {
			err = fmt.Errorf("%w (%w)", err, ErrNoTokens)
		}
		return nil, fmt.Errorf("ask tokens: %w", err)
	}
	return answer.Tokens, nil
}

// Version asks which version the engine is, "" if engines of that kind do not
// say or this one does not.
func (p *Prober) Version(ctx context.Context, engineName, base string) string {
	path := map[string]string{"vllm": "/version", "sglang": "/server_info"}[engineName]
	if path == "" {
		return ""
	}
	var answer struct {
		Version string `json:"version"`
	}
	err := p.get(ctx, base+path, p.ModelsTimeout, func(r *http.Response) error {
		return json.NewDecoder(io.LimitReader(r.Body, maxTokensAnswer)).Decode(&answer)
	})
	if err != nil {
		return ""
	}
	return answer.Version
}

// post sends a JSON body and hands a 2xx answer to use. Time-outs cover all of
// it.
func (p *Prober) post(ctx context.Context, url string, body []byte, timeout time.Duration, use func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err // quotes the URL
	}
	request.Header.Set("User-Agent", "warmpath")
	request.Header.Set("Content-Type", "application/json")
	response, err := p.HTTP.Do(request)
	if err != nil {
		return err // an *url.Error: names the URL
	}
	defer response.Body.Close()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		start, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBytes))
		drain(response.Body)
		return &StatusError{URL: url, Status: response.StatusCode, Body: strings.TrimSpace(string(start))}
	}
	if err := use(response); err != nil {
		return fmt.Errorf("read answer of %q: %w", url, err)
	}
	drain(response.Body)
	return nil
}
