package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"warmpath/dataplane/wire"
)

// scraper asks one node again and again: for its metrics on a connection that it keeps,
// for the rest on new ones. It does what Prober's methods do and costs a sixth of it: an
// engine's text is some 60 KB, is asked for each second, and a fleet has a thousand
// nodes. One goroutine.
type scraper struct {
	query

	conn   net.Conn // nil = none
	stop   func() bool
	usedAt time.Time
	first  [1 << 10]byte // of an answer: nodes that do not answer hold no page
}

// query is what one node is asked. A copy of a new one is another.
type query struct {
	prober *Prober
	base   string

	address, host, prefix string // of base; address is "" if base is none for a connection of our own
	path                  string // that request asks for
	request               []byte
	narrow                narrow
}

// page is an answer as it comes. Its text is a part of bytes.
type page struct {
	bytes    []byte
	head     wire.Response // its spans are relative to headAt
	headAt   int
	body     wire.Body
	inBody   bool
	interims int
	at       int // how far it was looked at
	from, to int // the text, moved together if it came in several chunks; from is -1 before
}

const (
	pageBytes    = 128 << 10 // what most answers fit in
	pageMost     = 1 << 20   // of a page that is kept
	scrapeHead   = 64 << 10
	interimsMost = 8
)

var pagePool = sync.Pool{New: func() any { return &page{bytes: make([]byte, 0, pageBytes)} }}

func (p *page) release() {
	if cap(p.bytes) <= pageMost {
		pagePool.Put(p)
	}
}

var errBroken = errors.New("connection ended within the answer")

func newScraper(prober *Prober, base string) *scraper {
	return &scraper{query: newQuery(prober, base)}
}

func newQuery(prober *Prober, base string) query {
	q := query{prober: prober, base: base}
	if u, err := url.Parse(base); prober.direct() && err == nil && u.Scheme == "http" && u.User == nil && u.Hostname() != "" && u.RawQuery == "" && u.Fragment == "" {
		q.address, q.host, q.prefix = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80")), u.Host, u.EscapedPath()
	}
	return q
}

// metrics is Prober.Metrics. ctx is the node's: its end ends what is under way.
func (s *scraper) metrics(ctx context.Context, engineName string) (Sample, error) {
	if s.address == "" || engineName == OpenAI {
		return s.prober.Metrics(ctx, engineName, s.base)
	}
	if d := s.aimNarrow(engineName); d != nil {
		if sample, _, err := s.ask(ctx, d.name); s.narrow.take(sample, err) {
			return sample, nil
		}
	}
	s.aimWhole(engineName)
	sample, size, err := s.ask(ctx, engineName)
	if err == nil {
		s.narrow.whole(sample, size)
	}
	return sample, err
}

// health is Prober.Health, on a connection of its own: that the engine accepts one is
// part of what is asked.
func (s *scraper) health(ctx context.Context, path string, timeout time.Duration) error {
	if s.address == "" {
		return s.prober.Health(ctx, s.base, path, timeout)
	}
	s.aimHealth(path)
	p, _, err := s.get(ctx, cmp.Or(timeout, s.prober.HealthTimeout))
	s.close()
	if err != nil {
		return fmt.Errorf("ask health: %q: %w", s.base+s.path, err)
	}
	p.release()
	return nil
}

// models is Prober.Models.
func (s *scraper) models(ctx context.Context) (ModelList, error) {
	if s.address == "" {
		return s.prober.Models(ctx, s.base)
	}
	s.aim(modelsPath)
	p, text, err := s.get(ctx, s.prober.ModelsTimeout)
	s.close() // it would be idle for too long
	if err != nil {
		return ModelList{}, fmt.Errorf("ask models: %q: %w", s.base+s.path, err)
	}
	defer p.release()
	list, err := Models(bytes.NewReader(text))
	if err != nil {
		return ModelList{}, fmt.Errorf("ask models: %q: %w", s.base+s.path, err)
	}
	list.heard(p.field("Server"))
	return list, nil
}

// field returns the value of a field of the head, "" if it has none.
func (p *page) field(name string) string {
	b := p.bytes[p.headAt:]
	for i := range p.head.Fields {
		if f := &p.head.Fields[i]; strings.EqualFold(string(f.Name.Of(b)), name) {
			return string(f.Value.Of(b))
		}
	}
	return ""
}

// aimNarrow makes the request for a narrow text and returns its table, nil if the
// whole one is to be asked for.
func (q *query) aimNarrow(engineName string) *dialect {
	d := byName(q.narrow.engine)
	if d == nil || !q.narrow.due() || byName(engineName) != nil && engineName != d.name {
		return nil
	}
	q.aim(d.narrowPath + q.narrow.query(d))
	return d
}

// aimWhole makes the request for the whole text.
func (q *query) aimWhole(engineName string) {
	path := defaultMetricsPath
	if d := byName(engineName); d != nil {
		path = d.metricsPath
	}
	q.aim(path)
}

// ask asks for what request names, and says how long that was.
func (s *scraper) ask(ctx context.Context, engineName string) (sample Sample, size int, err error) {
	p, text, err := s.get(ctx, s.prober.MetricsTimeout)
	if err == nil {
		size = len(text)
		sample, err = decodeText(engineName, text)
		sample.AtNs = time.Now().UnixNano()
		p.release()
	}
	if err != nil {
		return Sample{}, 0, fmt.Errorf("ask metrics: %q: %w", s.base+s.path, orNone(err))
	}
	return sample, size, nil
}

// aimHealth makes the request for a node's health; "" is the path that most have.
func (q *query) aimHealth(path string) { q.aim(cmp.Or(path, defaultHealthPath)) }

// aim makes the request for a path.
func (q *query) aim(path string) {
	if path != q.path {
		q.path = path
		q.request = fmt.Appendf(nil, "GET %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: %s\r\n\r\n", q.prefix, path, q.host, userAgent, acceptTypes)
	}
}

// get returns the text of a good answer, and the page that it is a part of. Engines
// close connections when they like: what met the end of an idle one is asked again.
func (s *scraper) get(ctx context.Context, timeout time.Duration) (*page, []byte, error) {
	if s.conn != nil && time.Since(s.usedAt) > idleTimeout {
		s.close()
	}
	kept := s.conn != nil
	deadline := time.Now().Add(timeout)
	p, text, status, err := s.exchange(ctx, deadline)
	if kept && p == nil && err != nil && ctx.Err() == nil && time.Now().Before(deadline) {
		s.close()
		p, text, status, err = s.exchange(ctx, deadline)
	}
	s.usedAt = time.Now()
	if err != nil {
		s.close()
	} else {
		err = s.refusal(status, text)
	}
	if err != nil {
		if p != nil {
			p.release()
		}
		return nil, nil, err
	}
	return p, text, nil
}

// refusal is what an answer with a status other than 2xx means.
func (q *query) refusal(status int, text []byte) error {
	if status/100 == 2 {
		return nil
	}
	return &StatusError{URL: q.base + q.path, Status: status, Body: strings.TrimSpace(string(text[:min(len(text), maxErrorBytes)]))}
}

// orNone says of a text that is not there that there is none.
func orNone(err error) error {
	var status *StatusError
	if errors.As(err, &status) && status.Status == http.StatusNotFound {
		return fmt.Errorf("%w (%w)", err, ErrNoMetrics)
	}
	return err
}

// exchange sends the request and reads the answer. The page is nil if not a byte of
// that came.
func (s *scraper) exchange(ctx context.Context, deadline time.Time) (p *page, text []byte, status int, err error) {
	if s.conn == nil {
		if err := s.dial(ctx, deadline); err != nil {
			return nil, nil, 0, err
		}
	}
	_ = s.conn.SetDeadline(deadline)
	if ctx.Err() != nil { // its end may have come before the deadline was set anew
		return nil, nil, 0, ctx.Err()
	}
	if _, err := s.conn.Write(s.request); err != nil {
		return nil, nil, 0, err
	}
	n, err := s.conn.Read(s.first[:])
	if n == 0 {
		return nil, nil, 0, cmp.Or(err, io.ErrNoProgress)
	}
	p = pagePool.Get().(*page)
	p.begin()
	p.bytes = append(p.bytes, s.first[:n]...)
	text, keep, err := p.read(s.conn)
	if err == nil && !keep {
		s.close()
	}
	return p, text, p.head.Status, err
}

func (s *scraper) dial(ctx context.Context, deadline time.Time) (err error) {
	dialer := net.Dialer{Deadline: deadline}
	if s.conn, err = dialer.DialContext(ctx, "tcp", s.address); err != nil {
		s.conn = nil
		return err
	}
	conn := s.conn
	s.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	return nil
}

// close ends the connection, if there is one.
func (s *scraper) close() {
	if s.conn == nil {
		return
	}
	s.stop()
	_ = s.conn.Close()
	s.conn = nil
}

// read reads the rest of an answer of which something came. keep says that the
// connection can be used again.
func (p *page) read(conn net.Conn) (text []byte, keep bool, err error) {
	for {
		done, err := p.take()
		if err != nil {
			return nil, false, err
		}
		if !done {
			err = p.more(conn)
			if !errors.Is(err, io.EOF) && err != nil || errors.Is(err, io.EOF) && !p.end() {
				return nil, false, err
			}
			done = err != nil
		}
		if done {
			text, keep = p.whole()
			return text, keep, nil
		}
	}
}

// begin makes p ready for an answer.
func (p *page) begin() {
	*p = page{bytes: p.bytes[:0], head: p.head, from: -1}
	p.head.Reset()
}

// take looks at what has come since it was last called. done says that the answer is
// whole.
func (p *page) take() (done bool, err error) {
	limits := wire.Limits{HeadBytes: scrapeHead}
	for !p.inBody {
		n, fault := p.head.Parse(p.bytes[p.at:], &limits, wire.MethodGet)
		if fault != nil {
			return false, fault
		}
		if n == 0 {
			return false, nil
		}
		p.headAt = p.at
		if p.at += n; p.head.Status >= 200 {
			p.body.Start(p.head.Body, p.head.ContentLength)
			p.inBody = true
			break
		}
		if p.interims++; p.interims > interimsMost {
			return false, errors.New("nothing but interim answers")
		}
		p.head.Reset()
	}
	for p.at < len(p.bytes) && !p.body.Done() {
		data, n, fault := p.body.Next(p.bytes[p.at:])
		if fault != nil {
			return false, fault
		}
		if piece, start := data.Of(p.bytes[p.at:]), p.at+int(data.Start); len(piece) > 0 {
			if p.from < 0 {
				p.from, p.to = start, start
			}
			if p.to != start {
				copy(p.bytes[p.to:], piece)
			}
			p.to += len(piece)
		}
		p.at += n
	}
	if p.body.Done() {
		return true, nil
	}
	if p.from >= 0 && p.to-p.from > MaxMetricsBytes {
		return false, fmt.Errorf("more than %d bytes: %w", MaxMetricsBytes, ErrTooLarge)
	}
	if p.from >= 0 && p.at > p.to {
		p.bytes, p.at = p.bytes[:p.to], p.to // what frames the chunks takes no room
	}
	return false, nil
}

// end reports whether the answer may end where the connection did.
func (p *page) end() bool { return p.inBody && p.body.End() == nil }

// whole returns the text of an answer that is whole, and whether its connection can be
// used again.
func (p *page) whole() (text []byte, keep bool) {
	if p.from < 0 {
		p.from, p.to = 0, 0
	}
	return p.bytes[p.from:p.to], p.head.KeepAlive && p.at == len(p.bytes)
}

// room is where the next bytes go.
func (p *page) room() []byte {
	if len(p.bytes) == cap(p.bytes) {
		p.bytes = append(p.bytes, make([]byte, cap(p.bytes))...)[:len(p.bytes)]
	}
	return p.bytes[len(p.bytes):cap(p.bytes)]
}

// more reads what has come, at least a byte.
func (p *page) more(conn net.Conn) error {
	n, err := conn.Read(p.room())
	p.bytes = p.bytes[:len(p.bytes)+n]
	if n > 0 {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w (%w)", errBroken, io.EOF)
	}
	return cmp.Or(err, io.ErrNoProgress)
}
