package load

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Arrivals says how the requests of an open loop are spread over time.
type Arrivals string

// The kinds of arrivals.
const (
	Poisson  Arrivals = "poisson"  // independent users: gaps are exponential
	Constant Arrivals = "constant" // one gap, 1/rate
)

// Bounds of what a run may ask for.
const (
	defaultTimeout     = 300 * time.Second
	defaultConnections = 10_000
	maxConnections     = 1_000_000
	maxRate            = 10_000_000
	longest            = time.Hour // what the histograms can hold
)

// Options say what to send and how. The zero value of a field means what its
// comment says, so that URL, Duration and one of Rate and Concurrency suffice.
type Options struct {
	// URL is http://host:port/path. Without a path, requests with bodies go to
	// /v1/chat/completions.
	URL string
	// Bodies are sent as JSON with POST, in turn; none: GET. They are not
	// copied and must not change during the run.
	Bodies [][]byte
	// Headers are added to every request.
	Headers map[string]string
	// Stream wants answers that are event streams; others are errors. The bodies
	// must ask for them.
	Stream bool

	// Rate is requests a second, an open loop; 0: a closed loop.
	Rate     float64
	Arrivals Arrivals // of an open loop; default Poisson
	Seed     uint64   // of the arrivals; the same seed gives the same times

	// Concurrency is the number of connections of a closed loop, each of which
	// sends its next request when the answer before has ended.
	Concurrency int

	Duration time.Duration // measured; the warm-up comes before it
	Warmup   time.Duration // not measured; a closed loop opens its connections in the first half of it
	// Timeout ends a request so long after it was due; default 300 s, at most an
	// hour.
	Timeout time.Duration
	// MaxConnections bounds an open loop; requests that are due while all are
	// busy wait. Default 10000, or what the process may open.
	MaxConnections int

	// Goodput is what a request must keep to be good; 0 = no bound.
	Goodput Goodput

	// Window, when not nil, is called with true when the measured time begins
	// and with false when it ends, on the thread of the loop: it must return
	// within microseconds (send on a buffered channel, for instance). So CPU
	// time of other processes can be read at the same instants.
	Window func(open bool)
}

// Goodput bounds the latencies of a good request.
type Goodput struct {
	TTFT time.Duration // due to first content
	TPOT time.Duration // mean time of a token after the first
	E2EL time.Duration // due to end
}

func (g Goodput) wanted() bool { return g != Goodput{} }

// OptionsError says which options cannot be used; nothing was sent.
type OptionsError struct{ error }

// Unwrap gives the joined problems.
func (e *OptionsError) Unwrap() error { return e.error }

// Check joins everything that is wrong with the options into an *OptionsError.
func (o *Options) Check() error {
	var problems []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	if u, err := url.Parse(o.URL); err != nil {
		problems = append(problems, fmt.Errorf("check URL: %w", err))
	} else {
		bad(u.Scheme == "http", "check URL %q: use http://host:port/path, without TLS", o.URL)
		bad(u.Hostname() != "", "check URL %q: it names no host", o.URL)
		bad(u.User == nil, "check URL %q: put credentials into a header", o.URL)
	}
	for i, body := range o.Bodies {
		bad(len(body) > 0, "check body %d: it is empty; leave all bodies out for GET", i)
	}
	bad(o.Rate >= 0 && o.Rate <= maxRate, "check rate %v: use requests a second, at most %d", o.Rate, maxRate)
	bad(o.Concurrency >= 0 && o.Concurrency <= maxConnections, "check concurrency %d: use 1 to %d", o.Concurrency, maxConnections)
	bad((o.Rate > 0) != (o.Concurrency > 0), "check rate %v and concurrency %d: give one of them; a rate is an open loop, a concurrency a closed one", o.Rate, o.Concurrency)
	bad(o.Arrivals == "" || o.Arrivals == Poisson || o.Arrivals == Constant, "check arrivals %q: use %q or %q", o.Arrivals, Poisson, Constant)
	bad(o.Duration > 0 && o.Duration <= 24*time.Hour, "check duration %s: use more than 0s and at most 24h", o.Duration)
	bad(o.Warmup >= 0 && o.Warmup <= 24*time.Hour, "check warm-up %s: use 0s to 24h", o.Warmup)
	bad(o.Timeout >= 0 && o.Timeout <= longest, "check timeout %s: use more than 0s and at most %s", o.Timeout, longest)
	bad(o.MaxConnections >= 0 && o.MaxConnections <= maxConnections, "check connections %d: use 1 to %d", o.MaxConnections, maxConnections)
	bad(o.Goodput.TTFT >= 0 && o.Goodput.TPOT >= 0 && o.Goodput.E2EL >= 0, "check goodput %+v: bounds are not negative", o.Goodput)
	for name, value := range o.Headers {
		bad(validHeader(name, value), "check header %q: use a name of letters, digits and hyphens, and a value of one line", name)
	}
	if len(problems) > 0 {
		return &OptionsError{errors.Join(problems...)}
	}
	return nil
}

// withDefaults fills what was left zero.
func (o Options) withDefaults() Options {
	if o.Arrivals == "" {
		o.Arrivals = Poisson
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Rate == 0 {
		o.Arrivals, o.MaxConnections = "", o.Concurrency
	} else if o.MaxConnections == 0 {
		o.MaxConnections = defaultConnections
	}
	return o
}

// validHeader refuses what would break the head, and the fields that the
// framing depends on.
func validHeader(name, value string) bool {
	if name == "" {
		return false
	}
	for i := range len(name) {
		if !tokenByte[name[i]] {
			return false
		}
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	for _, own := range []string{"host", "content-length", "transfer-encoding", "connection"} {
		if strings.EqualFold(name, own) {
			return false
		}
	}
	return true
}
