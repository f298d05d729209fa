package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	callWithin = 2 * time.Second
	mostAnswer = 32 << 20 // bytes: of 1,024 nodes with much to say
)

// refusal is an answer that is no success: the router is there and will not.
type refusal struct {
	status int
	later  bool // it may be otherwise before long: Retry-After (RFC 9110, section 10.2.3)
	text   string
}

func (r *refusal) Error() string { return r.text }

// refused is the status of a refusal, 0 if err is none.
func refused(err error) int {
	var r *refusal
	if errors.As(err, &r) {
		return r.status
	}
	return 0
}

// refusedForNow reports whether err is a refusal that may not last.
func refusedForNow(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.later
}

// call sends one request to the router's admin side and reads the answer into the
// value, nil for none. The error names the router, the call and the remedy.
func (r *router) call(ctx context.Context, method, path string, body, into any) error {
	fail := func(err error) error {
		return fmt.Errorf("router %s: %s %s: %w; is it running, and is that its admin side (scaler.routers)?", r.base, method, path, err)
	}
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fail(err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(text))
	if err != nil {
		return fail(err)
	}
	if token := r.of.opt.Token; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.of.client.Do(req)
	if err != nil {
		return fail(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	switch {
	case err != nil:
		return fail(err)
	case resp.StatusCode >= 300:
		return &refusal{resp.StatusCode, resp.Header.Get("Retry-After") != "", fmt.Sprintf("router %s: %s %s: %s", r.base, method, path, explained(resp.StatusCode, answer))}
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("router %s: %s %s: read its answer: %w; is it a router of this version?", r.base, method, path, err)
	}
	return nil
}

// explained is what a refusal means, in the router's words where it has some.
func explained(status int, answer []byte) string {
	var said struct {
		Error struct{ Message string }
	}
	_ = json.Unmarshal(answer, &said) // an answer of something else than a router has none
	text := fmt.Sprintf("%d %s", status, http.StatusText(status))
	if said.Error.Message != "" {
		text = said.Error.Message + " (" + text + ")"
	}
	switch status {
	case http.StatusUnauthorized:
		text = "it refuses the token (" + text + "): set scaler.router_token, or admin.token, to the admin.token of that router"
	case http.StatusNotFound:
		text += "; is it a router of this version?"
	}
	return text
}
