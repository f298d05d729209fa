package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/message"
)

const (
	headerTimestamp   = "X-Warmpath-Timestamp"
	headerSignature   = "X-Warmpath-Signature"
	headerIdempotency = "Idempotency-Key"
	signatureScheme   = "sha256="

	mostWords = 4 << 10 // of a server that says no
)

// errNoList says that the server has no list.
var errNoList = errors.New("the server has no list")

// sign returns the signature of a body that was sent at that time.
func sign(secret []byte, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(timestamp)) // a hash takes all that it is given
	mac.Write([]byte{'.'})
	mac.Write(body)
	return mac.Sum(nil)
}

// secretNow is what to sign with. While the secret cannot be read, as while somebody writes
// it, the last one stays.
func (w *Webhook) secretNow() []byte {
	var now []byte
	var err error
	if w.o.Reread != nil {
		if now, err = w.o.Reread(); err == nil {
			err = checkSecret(now)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	why := ""
	switch {
	case err != nil:
		why = err.Error()
	case w.o.Reread != nil:
		w.secret = now
	}
	if why != "" && why != w.unread {
		w.o.Log.Warn("a provider's secret cannot be used; the one before is", "url", actuate.Place(w.o.URL), "err", err)
	}
	w.unread = why
	return w.secret
}

// ask sends a request and reads its answer.
func (w *Webhook) ask(ctx context.Context, r *message.Request) ([]message.Node, error) {
	if w.closed.Load() {
		return nil, errors.New("closed")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.o.Timeout, fmt.Errorf("no answer within %v", w.o.Timeout))
	defer cancel()
	r.Fleet, r.Settings = w.o.Fleet, w.o.Settings
	resp, err := w.send(ctx, r)
	if err != nil {
		return nil, because(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, refuse(r, resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, message.MaxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("status %s, and half of an answer: %w", resp.Status, because(ctx, err))
	case len(text) > message.MaxBytes:
		return nil, fmt.Errorf("status %s, and an answer of more than %d bytes", resp.Status, message.MaxBytes)
	}
	nodes, err := r.Answer(text)
	if err != nil && actuate.AsRefusal(err) == nil {
		return nil, fmt.Errorf("status %s: %w", resp.Status, err)
	}
	return nodes, err
}

// because is err, or why ctx ended, if that is why.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (w *Webhook) send(ctx context.Context, r *message.Request) (*http.Response, error) {
	body := r.Bytes()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	timestamp := strconv.FormatInt(w.o.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set(headerTimestamp, timestamp)
	req.Header.Set(headerSignature, signatureScheme+hex.EncodeToString(sign(w.secretNow(), timestamp, body)))
	if r.Action == message.Create {
		req.Header.Set(headerIdempotency, r.Key)
	}
	resp, err := w.client.Do(req)
	return resp, actuate.Discreet(err) // the URL may have a key in it, and this is logged
}

// refuse turns an answer that is no success into what it means.
func refuse(r *message.Request, resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, message.MaxBytes)) // the status says enough
	words := message.Cut(strings.TrimSpace(string(text)), mostWords)
	err := fmt.Errorf("status %s: %s", resp.Status, words)
	if words == "" {
		err = fmt.Errorf("status %s, and no word why", resp.Status)
	}
	code := resp.StatusCode
	if code >= 500 || code == http.StatusRequestTimeout || code == http.StatusTooEarly || code < 300 {
		if code == http.StatusNotImplemented && r.Action == message.List {
			return fmt.Errorf("%w: %w", errNoList, err)
		}
		return err
	}
	// A server that speaks our language says more than its status.
	if _, said := r.Answer(text); actuate.AsRefusal(said) != nil {
		return said
	}
	switch {
	case code == http.StatusNotFound && r.Action == message.List:
		return fmt.Errorf("%w: %w", errNoList, err)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return actuate.Refused(actuate.Credential, err)
	case code == http.StatusPaymentRequired || code == http.StatusTooManyRequests:
		return actuate.Refused(actuate.Quota, err)
	case code < 400:
		return actuate.Refused(actuate.Settings, fmt.Errorf("%w; it sends us to %q: write that into the configuration, if it is right", err, message.Cut(actuate.Place(resp.Header.Get("Location")), message.MaxURLBytes)))
	}
	return actuate.Refused(actuate.Settings, err)
}
