package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"warmpath/controlplane/report/message"
	"warmpath/dataplane/fleet"
)

const (
	applyWithin   = 5 * time.Second   // for the indexer to apply a report
	bodyBudget    = 256 << 20         // bytes of bodies that are read or worked on at a time
	partsBudget   = 512 << 20         // bytes of bodies behind parts that wait for others
	headWithin    = 10 * time.Second  // for a request's head
	requestWithin = 60 * time.Second  // for its whole: 16 MiB at 2.3 Mbit/s
	idleWithin    = 120 * time.Second // between two reports on a connection
	headBytes     = 16 << 10
	workerAtOnce  = 4           // requests of one worker at a time
	lookEvery     = time.Second // for streams that have fallen silent
)

// Options are fixed for the life of a Server.
type Options struct {
	Tokens    *Tokens
	Directory Directory
	Index     Index
	NowNs     func() int64 // any clock that does not run backwards
	Log       *slog.Logger
	// Trusted is called when the trust of a worker's rank has changed, by the
	// goroutine that noticed, and of each rank once a second, for whoever has
	// missed or lost it. While it blocks, so do the worker's reports.
	Trusted func(worker string, rank int, to Target, t fleet.Trust)
}

// Server takes node reports.
type Server struct {
	opt  Options
	http http.Server
	stop context.CancelFunc
	wait sync.WaitGroup

	mu      sync.Mutex
	workers map[string]*worker // guarded by mu; only of tokens that were right
	bodies  int64              // guarded by mu: bytes taken from bodyBudget
	parts   int64              // guarded by mu: bytes taken from partsBudget
}

// worker serialises the reports of one worker. Its lock is held while a report
// is applied, so that two of them are applied in the order of their seq.
type worker struct {
	mu      sync.Mutex
	streams map[int]*stream // by rank; guarded by mu
	told    map[int]told    // to Trusted; guarded by mu
	moved   bool            // another process takes its reports; guarded by mu
	open    int64           // requests; guarded by Server.mu
}

// told is what was said of a rank last.
type told struct {
	to    Target
	trust fleet.Trust
}

// New returns a Server that does not listen yet.
func New(opt Options) *Server {
	return &Server{opt: opt, stop: func() {}, workers: map[string]*worker{}}
}

// Serve answers on listener until Stop. It is called once, and returns at once.
func (s *Server) Serve(listener net.Listener) {
	opt := s.opt
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.http = http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headWithin,
		ReadTimeout:       requestWithin,
		WriteTimeout:      requestWithin,
		IdleTimeout:       idleWithin,
		MaxHeaderBytes:    headBytes,
		ErrorLog:          slog.NewLogLogger(opt.Log.Handler(), slog.LevelWarn),
	}
	s.wait.Go(func() {
		if err := s.http.Serve(&limited{Listener: listener}); err != nil && !errors.Is(err, http.ErrServerClosed) {
			opt.Log.Error("reports listener ended", "err", err)
		}
	})
	s.wait.Go(func() { opt.Tokens.Watch(ctx) })
	s.wait.Go(func() { s.watch(ctx) })
}

// Stop ends what Serve began; reports under way have until ctx ends.
func (s *Server) Stop(ctx context.Context) {
	s.stop()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	s.wait.Wait()
}

// Handler is the server's routes.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, route := range []message.Route{message.Stored, message.Eviction, message.Sync} {
		mux.HandleFunc("POST "+route.Path(), func(w http.ResponseWriter, r *http.Request) { s.take(w, r, route) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, &refusal{http.StatusNotFound, "not_found", "", "no such route: " + r.Method + " " + r.URL.Path})
	})
	return privateOnly(mux)
}

// privateOnly refuses what came over a public address: tokens travel in plain
// text here.
func privateOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local := ""
		if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
			local = a.String()
		}
		if !private(r.RemoteAddr) || local != "" && !private(local) {
			w.Header().Set("Connection", "close")
			refuse(w, &refusal{http.StatusForbidden, "public_address", "", "reports are taken on loopback and private addresses only; use a tunnel"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// private is Private of an address of the form host:port.
func private(address string) bool {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return false
	}
	return Private(a.Addr())
}

// Private reports whether an address is reached without crossing a public
// network: loopback, RFC 1918, RFC 4193, link-local. Reports that come to or
// from others are refused.
func Private(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
}

// take is one report, from its head to its answer.
func (s *Server) take(w http.ResponseWriter, r *http.Request, route message.Route) {
	name, ok := s.opt.Tokens.Worker(r.Header.Get("Authorization"))
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, &refusal{http.StatusUnauthorized, "unauthorized", "", "send the worker's token as Authorization: Bearer"})
		return
	}
	packed, bad := encoding(r)
	if bad != nil {
		refuse(w, bad)
		return
	}
	of := s.workerOf(name)
	if !s.reserve(&of.open, 1, workerAtOnce) { // else one with slow bodies would use up what all share
		refuse(w, busy("too many reports of this worker at a time"))
		return
	}
	defer s.reserve(&of.open, -1, workerAtOnce)
	body, free, bad := s.readBody(w, r)
	defer free()
	if bad != nil {
		refuse(w, bad)
		return
	}
	decode := message.DecodeJSON
	if packed {
		decode = message.DecodeMsgpack
	}
	report, err := decode(route, body)
	if err != nil {
		refuse(w, asRefusal(err))
		return
	}
	if !sameWorker(report.WorkerID, name) {
		refuse(w, &refusal{http.StatusUnauthorized, "unauthorized", "worker_id", fmt.Sprintf("%q; this token speaks for another worker", report.WorkerID)})
		return
	}
	answer, err := s.apply(r.Context(), report, len(body))
	if err != nil {
		refuse(w, asRefusal(err))
		return
	}
	if packed {
		w.Header().Set("Content-Type", "application/msgpack")
		_, _ = w.Write(answer.AppendMsgpack(nil)) // the reporter may have gone
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer.AppendJSON(nil))
}

// encoding reads the fields that say what the body is.
func encoding(r *http.Request) (packed bool, bad *refusal) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return false, &refusal{http.StatusBadRequest, "bad_report", "Content-Encoding", fmt.Sprintf("%q; send the body as it is", coding)}
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err == nil && kind == "application/json":
		return false, nil
	case err == nil && kind == "application/msgpack":
		return true, nil
	}
	return false, &refusal{http.StatusBadRequest, "bad_report", "Content-Type", fmt.Sprintf("%q; send application/json or application/msgpack", r.Header.Get("Content-Type"))}
}

// readBody reads a part within its bound, and within what all bodies may take
// at a time. free gives that back; it may be called whatever happened.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) (body []byte, free func(), bad *refusal) {
	tooLarge := &refusal{http.StatusRequestEntityTooLarge, "too_large", "", fmt.Sprintf("a part has at most %d bytes; send the report in parts", message.MaxBodyBytes)}
	length := r.ContentLength
	if length > message.MaxBodyBytes {
		w.Header().Set("Connection", "close")
		return nil, func() {}, tooLarge
	}
	if length < 0 {
		length = message.MaxBodyBytes
	}
	if !s.reserve(&s.bodies, length, bodyBudget) {
		return nil, func() {}, busy("too many reports at a time")
	}
	free = func() { s.reserve(&s.bodies, -length, bodyBudget) }
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, message.MaxBodyBytes))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, free, tooLarge
	case err != nil:
		return nil, free, &refusal{http.StatusBadRequest, "body_cut", "", fmt.Sprintf("read body: %v", err)}
	}
	return body, free, nil
}

// reserve adds n to a count, unless it would exceed most.
func (s *Server) reserve(count *int64, n, most int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *count+n > most {
		return false
	}
	*count += n
	return true
}

func busy(why string) *refusal {
	return &refusal{http.StatusServiceUnavailable, "busy", "", why + "; send it again in a second"}
}

// apply takes a report that is well-formed by itself.
func (s *Server) apply(ctx context.Context, r *message.Report, bodyBytes int) (message.Answer, error) {
	to, err := s.opt.Directory.Find(r.WorkerID, r.Model)
	switch {
	case errors.Is(err, ErrNotYet):
		return message.Answer{}, busy(fmt.Sprintf("%q: %v", r.WorkerID, err))
	case errors.Is(err, ErrUnknownModel):
		return message.Answer{}, &refusal{http.StatusBadRequest, "bad_report", "model", err.Error()}
	case err != nil:
		return message.Answer{}, &refusal{http.StatusNotFound, "unknown_worker", "worker_id", fmt.Sprintf("%q: %v", r.WorkerID, err)}
	}
	w := s.workerOf(r.WorkerID)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.moved {
		return message.Answer{}, busy("another process takes the reports from now on")
	}
	st := w.streams[r.Rank]
	if st == nil {
		st = &stream{}
	}
	defer s.tell(w, r.WorkerID, r.Rank, false)
	held := st.heldBytes()
	if r.Parts > 1 && !s.reserve(&s.parts, int64(bodyBytes), partsBudget) {
		return message.Answer{}, busy("too many reports in parts at a time")
	}
	job, err := st.take(s.opt.NowNs(), to, r, bodyBytes)
	s.settleParts(r, bodyBytes, st.heldBytes()-held)
	if err != nil {
		return message.Answer{}, err
	}
	w.streams[r.Rank] = st
	if job.batch == nil {
		return job.answer, nil
	}
	return s.run(ctx, st, &job)
}

// settleParts corrects what apply reserved by what the stream really keeps.
func (s *Server) settleParts(r *message.Report, bodyBytes, grown int) {
	if r.Parts > 1 {
		grown -= bodyBytes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts += int64(grown)
}

// run has the index apply a batch. The reporter may leave meanwhile: the batch
// is applied all the same, for nobody would know otherwise.
func (s *Server) run(ctx context.Context, st *stream, job *work) (message.Answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyWithin)
	defer cancel()
	job.batch.prepare()
	got, err := s.opt.Index.Apply(ctx, job.batch)
	switch {
	case errors.Is(err, ErrGone):
		return message.Answer{}, &refusal{http.StatusNotFound, "unknown_worker", "worker_id", err.Error()}
	case err != nil:
		st.failed(job)
		return message.Answer{}, busy("the index did not take the report in time")
	}
	return st.done(s.opt.NowNs(), job, got), nil
}

func (s *Server) workerOf(name string) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.workers[name]
	if w == nil {
		w = &worker{streams: map[int]*stream{}, told: map[int]told{}}
		s.workers[name] = w
	}
	return w
}

// tell passes trust on if it has changed, or anyway. The caller holds w.mu.
func (s *Server) tell(w *worker, name string, rank int, anyway bool) {
	st := w.streams[rank]
	if st == nil {
		return
	}
	is := told{st.to, st.trust(s.opt.NowNs())}
	if is == w.told[rank] && !anyway {
		return
	}
	w.told[rank] = is
	s.opt.Trusted(name, rank, is.to, is.trust)
}

// watch looks for streams that have fallen silent.
func (s *Server) watch(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			s.look()
		}
	}
}

func (s *Server) look() {
	s.mu.Lock()
	names := make([]string, 0, len(s.workers))
	for name := range s.workers {
		names = append(names, name)
	}
	s.mu.Unlock()
	for _, name := range names {
		w := s.workerOf(name)
		if !w.mu.TryLock() {
			continue // it is at work, so not silent
		}
		for rank, st := range w.streams {
			held := st.heldBytes()
			st.expire(s.opt.NowNs())
			s.settleParts(&message.Report{}, 0, st.heldBytes()-held)
			s.tell(w, name, rank, true)
		}
		w.mu.Unlock()
	}
}

// asRefusal makes an answer of an error.
func asRefusal(err error) *refusal {
	var r *refusal
	var field *message.FieldError
	switch {
	case errors.As(err, &r):
		return r
	case errors.As(err, &field):
		return &refusal{http.StatusBadRequest, "bad_report", field.Field, field.What + "; " + field.Remedy}
	default:
		return &refusal{http.StatusBadRequest, "bad_report", "", err.Error()}
	}
}

// refuse writes an error in the shape that the other surfaces use too.
func refuse(w http.ResponseWriter, r *refusal) {
	if r.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(1))
	}
	var param any
	if r.field != "" {
		param = r.field
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(map[string]any{"error": map[string]any{"message": r.Error(), "type": "report_error", "param": param, "code": r.code}})
}
