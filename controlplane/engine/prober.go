package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"warmpath/dataplane/fleet"
)

// Time-outs of a new Prober. A sample is stale after 5 s, so an answer that
// takes longer would be of no use.
const (
	DefaultHealthTimeout  = 5 * time.Second
	DefaultModelsTimeout  = 5 * time.Second
	DefaultMetricsTimeout = 3 * time.Second

	// Engines close an idle connection after 5 s; asking on one that is just
	// being closed looks like a fault of the node.
	idleTimeout = 3500 * time.Millisecond

	maxErrorBytes = 256     // of an answer's body quoted in an error
	maxDrainBytes = 1 << 16 // read past the use of an answer, to keep its connection
)

// StatusError is an answer with a status other than 2xx. Redirects are such
// answers: a node is the address it was configured with and no other.
type StatusError struct {
	URL    string
	Status int
	Body   string // its start
}

// Error names URL, status and what the engine said.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("%q answered %d %s", e.URL, e.Status, http.StatusText(e.Status))
	if e.Body != "" {
		text += fmt.Sprintf(": %q", e.Body)
	}
	return text
}

// Prober asks engines over HTTP. Its fields are set before its first use; its
// methods may be called by any number of goroutines. Every error names the
// URL and the cause.
type Prober struct {
	HTTP           *http.Client
	HealthTimeout  time.Duration
	ModelsTimeout  time.Duration
	MetricsTimeout time.Duration

	own *http.Transport // HTTP's, as NewProber made it
}

// direct reports whether nodes are asked over plain connections, and not by somebody
// else's means.
func (p *Prober) direct() bool { return p.own != nil && p.HTTP.Transport == p.own }

const (
	defaultHealthPath = "/health"
	modelsPath        = "/v1/models"

	userAgent   = "warmpath"
	acceptTypes = "text/plain;version=0.0.4, application/json;q=0.9, */*;q=0.1"
)

// NewProber returns a Prober that keeps connections for less than the 5 s
// after which engines close them, follows no redirects and uses no proxy.
func NewProber() *Prober {
	dialer := &net.Dialer{} // every question has a deadline, which holds for its connection too
	own := &http.Transport{
		Proxy:                  nil, // a node is asked itself or not at all
		DialContext:            dialer.DialContext,
		DisableCompression:     true,
		MaxIdleConns:           2 * fleet.MaxSlots,
		MaxIdleConnsPerHost:    2,
		MaxConnsPerHost:        4,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &Prober{
		HTTP:           &http.Client{Transport: own, CheckRedirect: noRedirects},
		own:            own,
		HealthTimeout:  DefaultHealthTimeout,
		ModelsTimeout:  DefaultModelsTimeout,
		MetricsTimeout: DefaultMetricsTimeout,
	}
}

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Health asks GET base+path ("" is /health) and waits for timeout (0 means
// HealthTimeout). nil means a 2xx answer: the
// engine's process is alive and its core was not found dead. It does not mean
// that the engine is fast, or that it generates.
func (p *Prober) Health(ctx context.Context, base, path string, timeout time.Duration) error {
	if timeout == 0 {
		timeout = p.HealthTimeout
	}
	err := p.get(ctx, base+cmp.Or(path, defaultHealthPath), timeout, func(*http.Response) error { return nil })
	if err != nil {
		return fmt.Errorf("ask health: %w", err)
	}
	return nil
}

// Models asks GET base/v1/models.
func (p *Prober) Models(ctx context.Context, base string) (ModelList, error) {
	var list ModelList
	url := base + modelsPath
	err := p.get(ctx, url, p.ModelsTimeout, func(r *http.Response) (err error) {
		if list, err = Models(r.Body); err != nil {
			return fmt.Errorf("%q: %w", url, err)
		}
		list.heard(r.Header.Get("Server"))
		return nil
	})
	if err != nil {
		return ModelList{}, fmt.Errorf("ask models: %w", err)
	}
	return list, nil
}

// Metrics asks the metrics text of an engine; engineName is as in Decode and
// decides the path. A text that is not there (404) is ErrNoMetrics too; for
// OpenAI, which has none, nothing is asked. AtNs is the time the text was read.
func (p *Prober) Metrics(ctx context.Context, engineName, base string) (Sample, error) {
	path := defaultMetricsPath
	if d := byName(engineName); d != nil {
		path = d.metricsPath
	}
	url := base + path
	if engineName == OpenAI {
		return Sample{}, fmt.Errorf("ask metrics: %q: %w", url, ErrNoMetrics)
	}
	var sample Sample
	err := p.get(ctx, url, p.MetricsTimeout, func(r *http.Response) (err error) {
		if sample, err = Decode(engineName, r.Body); err != nil {
			return fmt.Errorf("%q: %w", url, err)
		}
		sample.AtNs = time.Now().UnixNano()
		return nil
	})
	if err != nil {
		return Sample{}, fmt.Errorf("ask metrics: %w", orNone(err))
	}
	return sample, nil
}

// get asks a URL and hands a 2xx answer to use, whose reading is capped by
// use itself. Time-outs cover the body.
func (p *Prober) get(ctx context.Context, url string, timeout time.Duration, use func(*http.Response) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err // quotes the URL
	}
	request.Header.Set("User-Agent", userAgent)
	request.Header.Set("Accept", acceptTypes)
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
		if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) && !errors.Is(err, cause) {
			return fmt.Errorf("%w (%w after %v)", err, cause, timeout)
		}
		return err
	}
	drain(response.Body)
	return nil
}

// drain reads what is left of a short answer so that its connection can be
// used again.
func drain(r io.Reader) { _, _ = io.CopyN(io.Discard, r, maxDrainBytes) }
