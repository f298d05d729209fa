package provide

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"warmpath/scaler/actuate"
)

// late is an offer that could not be made. Whatever it is asked, it tries again first:
// a file that was missing may be there by now, and nobody should have to restart a
// router for that.
type late struct {
	make func() (actuate.Actuator, error)

	mu     sync.Mutex
	made   actuate.Actuator // guarded by mu; nil = it could not be made yet
	closed bool             // guarded by mu
}

// get returns the offer's actuator, or why there is none.
func (l *late) get() (actuate.Actuator, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made != nil {
		return l.made, nil
	}
	if l.closed {
		return nil, errors.New("closed")
	}
	made, err := l.make()
	if err != nil {
		return nil, actuate.Refused(actuate.Settings, err)
	}
	l.made = made
	return made, nil
}

// Create implements actuate.Actuator.
func (l *late) Create(ctx context.Context, w actuate.Wanted) (actuate.Instance, error) {
	a, err := l.get()
	if err != nil {
		return actuate.Instance{}, err
	}
	return a.Create(ctx, w)
}

// Delete implements actuate.Actuator.
func (l *late) Delete(ctx context.Context, i actuate.Instance) error {
	a, err := l.get()
	if err != nil {
		return err
	}
	return a.Delete(ctx, i)
}

// List implements actuate.Actuator.
func (l *late) List(ctx context.Context) ([]actuate.Instance, error) {
	a, err := l.get()
	if err != nil {
		return nil, err
	}
	return a.List(ctx)
}

// Partial says what the made one says.
func (l *late) Partial() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.made.(interface{ Partial() bool })
	return ok && p.Partial()
}

// ServeHTTP takes callbacks as soon as somebody can check them.
func (l *late) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := l.get()
	h, ok := a.(http.Handler)
	switch {
	case err != nil:
		http.Error(w, "the offer cannot be used yet; send this again later", http.StatusServiceUnavailable)
	case !ok:
		http.Error(w, "this offer takes no callbacks", http.StatusNotFound)
	default:
		h.ServeHTTP(w, r)
	}
}

// Close ends the talk with the provider, if there was any.
func (l *late) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.made == nil {
		return nil
	}
	return l.made.Close()
}
