package webhook

import (
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"warmpath/scaler/actuate/message"
)

const (
	callbackBytes  = 64 << 10
	callbackWithin = 10 * time.Second // for its body to come
	clocksApart    = 5 * time.Minute
)

// refusal is why a callback is not taken.
type refusal struct {
	status int
	err    error
}

// ServeHTTP takes a callback of the server. It may be called by several goroutines, and
// stands on its own: no other authentication is needed before it.
func (w *Webhook) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if no := w.callback(out, r); no != nil {
		w.mu.Lock()
		news := w.said != no.err.Error()
		w.said = no.err.Error()
		w.mu.Unlock()
		if news {
			w.o.Log.Warn("callback of a provider refused", "from", r.RemoteAddr, "status", no.status, "err", no.err)
		}
		if no.status == http.StatusMethodNotAllowed {
			out.Header().Set("Allow", http.MethodPost)
		}
		http.Error(out, no.err.Error(), no.status)
		return
	}
	out.WriteHeader(http.StatusNoContent)
}

func (w *Webhook) callback(out http.ResponseWriter, r *http.Request) *refusal {
	if r.Method != http.MethodPost {
		return &refusal{http.StatusMethodNotAllowed, fmt.Errorf("method %q: use POST", message.Cut(r.Method, 20))}
	}
	_ = http.NewResponseController(out).SetReadDeadline(time.Now().Add(callbackWithin)) // what cannot, has its own
	body, err := io.ReadAll(http.MaxBytesReader(out, r.Body, callbackBytes))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return &refusal{http.StatusRequestEntityTooLarge, fmt.Errorf("the body has more than %d bytes", callbackBytes)}
	case err != nil:
		return &refusal{http.StatusBadRequest, fmt.Errorf("read the body: %w", err)}
	}
	sent, err := w.verify(r.Header, body)
	if err != nil {
		return &refusal{http.StatusUnauthorized, err}
	}
	var fleet string
	node, err := message.ParseNode(body, map[string]*string{"fleet": &fleet})
	switch {
	case err != nil:
		return &refusal{http.StatusBadRequest, err}
	case node.Key == "":
		return &refusal{http.StatusBadRequest, errors.New("key is missing: it says which node it is about")}
	case fleet != "" && fleet != w.o.Fleet:
		return &refusal{http.StatusBadRequest, fmt.Errorf("fleet is %q: want %q", message.Cut(fleet, 80), w.o.Fleet)}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.book.hear(node, w.o.Now(), sent)
	return nil
}

// verify checks who sent a callback and when.
func (w *Webhook) verify(h http.Header, body []byte) (sent int64, err error) {
	timestamp, signature := h.Get(headerTimestamp), h.Get(headerSignature)
	given, err := hex.DecodeString(strings.TrimPrefix(signature, signatureScheme))
	// hmac.Equal takes as long for one that is nearly right as for any other.
	if err != nil || !strings.HasPrefix(signature, signatureScheme) || !hmac.Equal(given, sign(w.secretNow(), timestamp, body)) {
		return 0, fmt.Errorf("%s is missing or wrong: want %s and the hex HMAC-SHA256 of timestamp, %q and body", headerSignature, signatureScheme, ".")
	}
	sent, err = strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %q: want seconds since 1970", headerTimestamp, message.Cut(timestamp, 40))
	}
	if apart := w.o.Now().Sub(time.Unix(sent, 0)); apart.Abs() > clocksApart {
		return 0, fmt.Errorf("%s is %v off: send it within %v, and set both clocks right", headerTimestamp, apart.Round(time.Second), clocksApart)
	}
	return sent, nil
}
