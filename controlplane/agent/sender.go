package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"warmpath/controlplane/report/message"
)

const (
	postWithin  = 30 * time.Second // a whole report and its answer
	answerBytes = 8 << 20
	tokenBytes  = 4096 // of a token file
)

// Encoding is how reports are written.
type Encoding uint8

const (
	Msgpack Encoding = iota
	JSON
)

// ParseEncoding reads the name of an encoding.
func ParseEncoding(name string) (Encoding, error) {
	switch name {
	case "msgpack":
		return Msgpack, nil
	case "json":
		return JSON, nil
	}
	return 0, fmt.Errorf("encoding %q is not known: use msgpack or json", name)
}

func (e Encoding) contentType() string {
	return [...]string{"application/msgpack", "application/json"}[e]
}

func (e Encoding) encode(dst []byte, r *message.Report) []byte {
	if e == JSON {
		return r.AppendJSON(dst)
	}
	return r.AppendMsgpack(dst)
}

func (e Encoding) answer(body []byte) (*message.Answer, error) {
	if e == JSON {
		return message.DecodeAnswerJSON(body)
	}
	return message.DecodeAnswerMsgpack(body)
}

// ParseRouter reads the base URL of a router's reports listener.
func ParseRouter(raw string) (string, error) { return parseBase("router", raw, "http://10.0.0.1:8082") }

// ParseEngine reads the base URL of an engine.
func ParseEngine(raw string) (string, error) {
	return parseBase("engine", raw, "http://127.0.0.1:8000")
}

func parseBase(what, raw, example string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s %q is not a URL; write one such as %s", what, raw, example)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("%s %q has no scheme or no host; write one such as %s", what, raw, example)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%s %q has more than a scheme, a host and a path; remove the rest", what, u.Redacted())
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// Token is the bearer token of a file, read again when a router refuses it, so
// that it can be replaced while the agent runs.
type Token struct {
	path string
	mu   sync.Mutex
	text string // guarded by mu
}

// OpenToken reads a token: the file's only line.
func OpenToken(path string) (*Token, error) {
	t := &Token{path: path}
	return t, t.read()
}

func (t *Token) read() error {
	f, err := os.Open(t.path)
	if err != nil {
		return fmt.Errorf("open token file: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, tokenBytes+1))
	if err != nil {
		return fmt.Errorf("read token file: %w", err)
	}
	text := strings.TrimSpace(string(raw))
	if text == "" || len(raw) > tokenBytes || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("read token file %q: it must hold one token on one line, and nothing else", t.path)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = text
	return nil
}

func (t *Token) value() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

// sender posts reports to one router.
type sender struct {
	base     string
	encoding Encoding
	token    *Token
	client   *http.Client
	buffer   []byte // of the body; reused
}

// post sends a report. With an error, failure says what follows from it.
func (s *sender) post(ctx context.Context, r *message.Report) (a *message.Answer, failure Failure, err error) {
	s.buffer = s.encoding.encode(s.buffer[:0], r)
	ctx, cancel := context.WithTimeout(ctx, postWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+r.Route.Path(), bytes.NewReader(s.buffer))
	if err != nil {
		return nil, Refused, err
	}
	req.Header.Set("Content-Type", s.encoding.contentType())
	req.Header.Set("Authorization", "Bearer "+s.token.value())
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, Unanswered, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	if err != nil {
		return nil, Unanswered, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		a, err = s.encoding.answer(body)
		return a, Unanswered, err
	}
	failure = Refused
	switch {
	case resp.StatusCode == http.StatusConflict:
		failure = WrongEpoch
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout:
		failure = Unanswered
	case resp.StatusCode == http.StatusUnauthorized:
		err = s.token.read()
	}
	const shown = 300
	said := strings.TrimSpace(string(body[:min(len(body), shown)]))
	return nil, failure, errors.Join(fmt.Errorf("%s: %s", resp.Status, said), err)
}
