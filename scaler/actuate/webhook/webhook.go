package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/message"
)

const (
	defaultTimeout = 30 * time.Second
	leastSecret    = 16 // bytes
)

// Options name the server.
type Options struct {
	URL    string
	Secret []byte // signs both ways; at least 16 bytes
	// Reread returns the secret as it is now, and is asked each time that one is used;
	// nil = Secret is it for ever.
	Reread      func() ([]byte, error)
	CallbackURL string // where ServeHTTP can be reached by the server; "" = nowhere
	Fleet       string // marks the nodes; as a key in form
	// Timeout is how long an answer may take; 0 = 30 s.
	Timeout  time.Duration
	Settings map[string]string // handed through in each request
	Client   *http.Client      // nil = one of its own
	Now      func() time.Time  // nil = time.Now
	Log      *slog.Logger
}

func (o *Options) check() error {
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Secret, o.Settings = slices.Clone(o.Secret), maps.Clone(o.Settings)
	if err := checkURL(o.URL); err != nil {
		return fmt.Errorf("url %q: %w", actuate.Place(o.URL), err)
	}
	if o.CallbackURL != "" {
		if err := checkURL(o.CallbackURL); err != nil {
			return fmt.Errorf("callback url %q: %w", actuate.Place(o.CallbackURL), err)
		}
	}
	switch {
	case o.Timeout < 0:
		return fmt.Errorf("timeout %v: use a time above 0", o.Timeout)
	}
	if err := actuate.CheckKey(o.Fleet); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if err := checkSecret(o.Secret); err != nil {
		return err
	}
	return message.CheckSettings(o.Settings)
}

func checkSecret(secret []byte) error {
	if len(secret) < leastSecret {
		return fmt.Errorf("secret has %d bytes: use at least %d, drawn by chance", len(secret), leastSecret)
	}
	return nil
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return actuate.Discreet(err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New("use https://host/path")
	}
	return nil
}

// Webhook makes nodes by asking a server. It is also the handler of that server's
// callbacks. See the package.
type Webhook struct {
	o       Options
	client  http.Client
	own     *http.Transport // nil if the client is the caller's
	closed  atomic.Bool
	partial atomic.Bool
	noList  sync.Once

	mu     sync.Mutex
	book   book
	said   string // the callback that was refused last
	secret []byte // the last that could be read
	unread string // why it could not be the last time, "" = it could
}

var (
	_ actuate.Actuator = (*Webhook)(nil)
	_ http.Handler     = (*Webhook)(nil)
)

// New returns the actuator, or what is wrong with o. It asks nothing.
func New(o Options) (*Webhook, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("webhook for nodes: %w", err)
	}
	w := &Webhook{o: o, book: newBook(o.Log), secret: o.Secret}
	if o.Client != nil {
		w.client = *o.Client
	} else {
		w.own = &http.Transport{Proxy: nil, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 2, ForceAttemptHTTP2: true}
		w.client.Transport = w.own
	}
	// A POST that was sent elsewhere comes there as a GET.
	w.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return w, nil
}

// Create asks for a node. What callbacks said of it before the answer came is in what
// is returned.
func (w *Webhook) Create(ctx context.Context, wanted actuate.Wanted) (actuate.Instance, error) {
	if err := actuate.CheckKey(wanted.Key); err != nil {
		return actuate.Instance{}, actuate.Refused(actuate.Settings, err)
	}
	w.mu.Lock()
	asked := w.book.asks(wanted.Key)
	w.mu.Unlock()
	nodes, err := w.ask(ctx, &message.Request{Action: message.Create, Key: wanted.Key, Model: wanted.Model, Callback: w.o.CallbackURL})
	if err != nil {
		return actuate.Instance{}, fmt.Errorf("make node %q: %w", wanted.Key, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.book.answer(nodes[0], asked, w.o.Now()), nil
}

// Delete asks for the end of a node.
func (w *Webhook) Delete(ctx context.Context, i actuate.Instance) error {
	if i.Key == "" && i.ID == "" {
		return errors.New("end a node: neither its key nor its id was named")
	}
	nodes, err := w.ask(ctx, &message.Request{Action: message.Delete, Key: i.Key, ID: i.ID})
	if err != nil {
		return fmt.Errorf("end node %q: %w", i.Key, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(nodes) == 0 {
		w.book.gone(i.Key, i.ID, w.o.Now())
	} else {
		w.book.hear(nodes[0], w.o.Now(), w.o.Now().Unix())
	}
	return nil
}

// List asks for all nodes, and adds what is known better. See the package for what it is
// worth if the server has no list.
func (w *Webhook) List(ctx context.Context) ([]actuate.Instance, error) {
	w.mu.Lock()
	begun := w.book.turn
	w.mu.Unlock()
	nodes, err := w.ask(ctx, &message.Request{Action: message.List})
	none := errors.Is(err, errNoList)
	if err != nil && !none {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	w.partial.Store(none)
	w.mu.Lock()
	defer w.mu.Unlock()
	if none {
		w.noList.Do(func() {
			w.o.Log.Warn("the server lists no nodes: those that it made before this process was started are not known", "url", actuate.Place(w.o.URL), "err", err)
		})
		return w.book.all(), nil
	}
	return w.book.merge(nodes, begun, w.o.Now()), nil
}

// Partial reports whether the last list was made of what this process heard alone, as
// the server has none: a node that is not in it may be there.
func (w *Webhook) Partial() bool { return w.partial.Load() }

// Close makes later calls fail. Those under way end with their callers' contexts, and
// callbacks are taken as before, as somebody may still serve them.
func (w *Webhook) Close() error {
	w.closed.Store(true)
	if w.own != nil {
		w.own.CloseIdleConnections()
	}
	return nil
}
