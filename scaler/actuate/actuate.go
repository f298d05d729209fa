package actuate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// MaxKeyBytes bounds a key: it stands in names of pods and instances, in values
// of tags and labels (63 bytes of RFC 1123), and in paths.
const MaxKeyBytes = 63

// Wanted is one node that shall be.
type Wanted struct {
	// Key names the node for ever, in this fleet and at its provider: it is the name
	// of the node, and what makes Create idempotent. See CheckKey.
	Key   string
	Model string // what it shall serve; "" = the offer says
}

// Phase is how far a node is at its provider. It says nothing of the engine on it.
type Phase uint8

const (
	Pending Phase = iota // asked for; it may come
	Running              // it is there, and costs
	Ending               // it was told to end
	Ended                // it is gone, or could not be made; it costs nothing
)

var phaseNames = [...]string{"pending", "running", "ending", "ended"}

// String returns the name that the admin API uses.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown"
}

// Instance is one node as its provider knows it.
type Instance struct {
	Key    string // "" = it carries the fleet's mark and no key: an orphan
	ID     string // the provider's name for it
	Phase  Phase
	URL    string // of its engine, http://host:port; "" = not known yet, or it registers itself
	Detail string // in the provider's words, for people; "" = nothing
	// Since is when the provider made it, by the provider's clock; zero = it does not say.
	Since time.Time
}

// Actuator talks to one provider about the nodes of one fleet. Its methods may be
// called by several goroutines, but not twice at once about one key. All of them
// end with ctx.
type Actuator interface {
	// Create asks for one node and returns what is known of it at once, usually
	// Pending. It is idempotent: asked again with a key that the provider knows, be it
	// by another process after a crash, it returns that node and makes none. A
	// *Refusal says that nothing was made; after any other error something may have
	// been, and List will tell.
	Create(ctx context.Context, w Wanted) (Instance, error)
	// Delete ends a node. One that is gone already, or never was, is no error.
	Delete(ctx context.Context, i Instance) error
	// List returns every node that carries the fleet's mark: all of them, or an error.
	// Of those that are Ended it may leave out any.
	List(ctx context.Context) ([]Instance, error)
	// Close ends the talk and nothing else: the nodes stay.
	Close() error
}

// Reason says why a provider refuses.
type Reason uint8

const (
	Settings   Reason = iota // the offer asks for what there is not: an image, a type, a command
	Credential               // it does not know us, or we may not
	Quota                    // we have all that we may have
	Capacity                 // it has none left
)

var reasonNames = [...]string{"settings", "credential", "quota", "capacity"}

// String returns the name that metrics and the admin API use.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

// Refusal is a provider's definite no: nothing was made, changed or ended.
type Refusal struct {
	Reason Reason
	Err    error // in the provider's own words
}

// Error is the reason and the provider's words.
func (r *Refusal) Error() string { return "refused for " + r.Reason.String() + ": " + r.Err.Error() }

// Unwrap returns the provider's error.
func (r *Refusal) Unwrap() error { return r.Err }

// Refused wraps err as a refusal.
func Refused(reason Reason, err error) error { return &Refusal{reason, err} }

// AsRefusal finds the refusal in err, nil if it is none: then the outcome is
// unknown.
func AsRefusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}

// CheckKey checks that a key can stand wherever providers put it: small letters,
// digits and '-', a letter first, not '-' last, at most MaxKeyBytes (a label of RFC 1123).
func CheckKey(key string) error {
	const remedy = "use small letters, digits and '-', a letter first and not '-' last"
	switch {
	case key == "":
		return errors.New("the key is empty: " + remedy)
	case len(key) > MaxKeyBytes:
		return fmt.Errorf("key %q has %d bytes: use at most %d", key, len(key), MaxKeyBytes)
	case key[0] < 'a' || key[0] > 'z' || key[len(key)-1] == '-':
		return fmt.Errorf("key %q: %s", key, remedy)
	}
	if i := strings.IndexFunc(key, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-'
	}); i >= 0 {
		return fmt.Errorf("key %q has %q at %d: %s", key, key[i], i+1, remedy)
	}
	return nil
}
