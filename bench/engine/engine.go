package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// keepAlive is how long an idle client connection stays open, as uvicorn's.
const keepAlive = 5 * time.Second

// connKey is the context key of a request's connection.
type connKey struct{}

// Engine is one simulated engine. Its methods may be called by any goroutine.
type Engine struct {
	cfg     Config
	started int64 // Unix seconds, the "created" of its models
	faults  faultSet

	vocabulary vocabulary

	process atomic.Pointer[process]
	mux     *http.ServeMux
	server  *http.Server
	ids     atomic.Uint64 // generated request identifiers so far

	received atomic.Int64 // inference requests that arrived
	finished atomic.Int64 // inference requests answered completely
	inFlight atomic.Int64 // inference requests being answered

	change sync.Mutex // held by Restart and Close, which replace or end the process

	mu       sync.Mutex // guards what follows
	served   []string   // ring of the latest request identifiers
	servedAt int        // where the oldest one is once the ring is full
	conns    map[net.Conn]http.ConnState
	listener net.Listener // nil while refusing
	address  string       // "host:port" as bound; "" before Start
	refusing bool
	closed   bool
	events   string // endpoint as bound, "" = none
	replay   string
	restarts int
}

// New makes an engine, binds its event sockets and starts its step loop. It
// serves HTTP through Handler, or on a port of its own after Start. Close it.
func New(cfg Config) (*Engine, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, vocabulary: cfg.vocabulary(), started: time.Now().Unix(), conns: make(map[net.Conn]http.ConnState)}
	events, err := e.openEvents(cfg.EventsEndpoint, cfg.ReplayEndpoint)
	if err != nil {
		return nil, fmt.Errorf("make engine %q: %w", cfg.Name, err)
	}
	e.process.Store(startProcess(&e.cfg, &e.faults, events))
	e.mux = e.routes()
	e.server = &http.Server{
		Handler: e.mux, IdleTimeout: keepAlive, ConnState: e.track,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ErrorLog:    log.New(io.Discard, "", 0), // broken clients are part of the tests
	}
	return e, nil
}

// openEvents opens the event streams, if they are configured, and keeps the
// endpoints that rank 0 bound so that a restart takes the same ones.
func (e *Engine) openEvents(events, replay string) ([]*publisher, error) {
	if events == "" {
		return nil, nil
	}
	all, err := openPublishers(&e.cfg, events, replay)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.events, e.replay = endpoint(events, all[0].pub), endpoint(replay, all[0].router)
	e.mu.Unlock()
	return all, nil
}

// Handler returns the engine's HTTP API. Faults that concern the port
// (FaultRefuse) need Start.
func (e *Engine) Handler() http.Handler { return e.mux }

// Start listens on a TCP address, such as "127.0.0.1:0", and serves there.
func (e *Engine) Start(address string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.listener != nil {
		return fmt.Errorf("start engine %q on %q: it is started or closed already", e.cfg.Name, address)
	}
	return e.listen(address)
}

// listen opens the port and serves it; the caller holds mu.
func (e *Engine) listen(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("start engine %q on %q: %w", e.cfg.Name, address, err)
	}
	e.listener, e.address, e.refusing = ln, ln.Addr().String(), false
	go func() { _ = e.server.Serve(ln) }() // ends with the listener
	return nil
}

// URL returns the base URL of the engine, "" before Start.
func (e *Engine) URL() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.address == "" {
		return ""
	}
	return "http://" + e.address
}

// EventsEndpoint returns the ZeroMQ endpoint of live events of rank 0, ""
// if off; the other ranks have the ports behind it.
func (e *Engine) EventsEndpoint() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.events
}

// ReplayEndpoint returns the ZeroMQ endpoint that answers replays of rank 0,
// "" if off; the other ranks have the ports behind it.
func (e *Engine) ReplayEndpoint() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.replay
}

// Close ends the engine: port, connections, step loop and event sockets.
func (e *Engine) Close() error {
	e.change.Lock()
	defer e.change.Unlock()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	e.faults.clear()
	e.process.Load().stop()
	if err := e.server.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close engine %q: %w", e.cfg.Name, err)
	}
	return nil
}

// SetFault puts a fault into force; FaultRestart happens at once and leaves
// nothing to clear.
func (e *Engine) SetFault(f Fault) error { return e.setFault(f, nil) }

// setFault is SetFault for a request over asker, which a restart spares so
// that it can be answered.
func (e *Engine) setFault(f Fault, asker net.Conn) error {
	if err := f.validate(); err != nil {
		return err
	}
	switch f.Kind {
	case FaultRestart:
		return e.restart(asker)
	case FaultRefuse:
		e.refuse()
	}
	e.faults.set(f)
	return nil
}

// ClearFaults ends all faults and opens the port again if it was closed.
// Requests that hang are dropped; a stopped core goes on where it stopped.
func (e *Engine) ClearFaults() error {
	e.faults.clear()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.refusing || e.closed {
		return nil
	}
	return e.listen(e.address)
}

// refuse closes the port and idle connections; answers under way go on.
func (e *Engine) refuse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.listener == nil {
		return
	}
	_ = e.listener.Close() // it can only be closed already
	e.listener, e.refusing = nil, true
	for c, state := range e.conns {
		if state == http.StateIdle {
			_ = c.Close()
		}
	}
}

// Restart replaces the engine process: all connections are reset, the cache
// is empty, metrics begin at zero and events at sequence 0. As vLLM, a fresh
// process announces nothing.
func (e *Engine) Restart() error { return e.restart(nil) }

func (e *Engine) restart(spared net.Conn) error {
	e.change.Lock()
	defer e.change.Unlock()
	e.mu.Lock()
	events, replay, closed := e.events, e.replay, e.closed
	e.mu.Unlock()
	if closed {
		return fmt.Errorf("restart engine %q: it is closed", e.cfg.Name)
	}
	e.resetAll(spared) // before the process ends, else handlers would close in order
	e.process.Load().stop()
	e.resetAll(spared) // connections made meanwhile
	e.mu.Lock()
	e.restarts++
	e.mu.Unlock()
	p, err := e.openEvents(events, replay)
	e.process.Store(startProcess(&e.cfg, &e.faults, p))
	if err != nil {
		return fmt.Errorf("restart engine %q, which goes on without events: %w", e.cfg.Name, err)
	}
	return nil
}

// resetAll resets every connection but one.
func (e *Engine) resetAll(spared net.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.conns {
		if c != spared {
			resetConn(c)
		}
	}
}

// resetConn closes a connection so that the peer sees a reset.
func resetConn(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // else the close below is an orderly one
	}
	_ = c.Close()
}

// track follows the connections' states for refuse and Restart.
func (e *Engine) track(c net.Conn, state http.ConnState) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(e.conns, c)
	default:
		e.conns[c] = state
		if state == http.StateIdle && e.refusing {
			_ = c.Close()
		}
	}
}

// note keeps the identifier of a request that arrived.
func (e *Engine) note(id string) {
	e.received.Add(1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.served) < maxServedIDs {
		e.served = append(e.served, id)
		return
	}
	e.served[e.servedAt] = id
	e.servedAt = (e.servedAt + 1) % maxServedIDs
}

// State is what tests ask an engine.
type State struct {
	Name         string   `json:"name"`
	Model        string   `json:"model"`
	Tokens       string   `json:"tokens"` // what token ids are: "four bytes a token", or those of a real model
	Running      int      `json:"running"`
	Waiting      int      `json:"waiting"`
	BlocksTotal  int      `json:"blocks_total"`  // blocks that can hold tokens
	BlocksUsed   int      `json:"blocks_used"`   // held by requests
	BlocksCached int      `json:"blocks_cached"` // a prompt could hit them
	Received     int64    `json:"received"`      // inference requests that arrived, over all restarts
	Finished     int64    `json:"finished"`      // of them answered completely
	Aborted      int64    `json:"aborted"`       // given up because the client left, since the last restart
	RequestIDs   []string `json:"request_ids"`   // of the latest inference requests, oldest first: X-Request-Id, or the generated part of the answer's id
	PromptTokens int64    `json:"prompt_tokens"`
	CachedTokens int64    `json:"cached_tokens"`
	Generated    int64    `json:"generated_tokens"`
	Preemptions  int64    `json:"preemptions"`
	Steps        int64    `json:"steps"`
	NextSequence uint64   `json:"next_event_sequence"` // batches published, over all ranks: each numbers its own
	Restarts     int      `json:"restarts"`
	Faults       []Fault  `json:"faults"`
}

// State returns a picture of this moment.
func (e *Engine) State() State {
	p := *e.process.Load()
	g := p.look()
	s := State{
		Name: e.cfg.Name, Model: e.cfg.Model, Tokens: e.vocabulary.name(), Running: g.running, Waiting: g.waiting,
		BlocksTotal: g.total, BlocksUsed: g.total - g.free, BlocksCached: g.hashed,
		Received: e.received.Load(), Finished: e.finished.Load(), Aborted: g.aborted,
		PromptTokens: g.counters.QueriedTokens, CachedTokens: g.counters.HitTokens, Generated: g.counters.GeneratedTokens,
		Preemptions: g.counters.Preemptions, Steps: g.counters.Steps, Faults: e.faults.list(),
	}
	for _, l := range p {
		if l.events != nil {
			s.NextSequence += l.events.sequence()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.Restarts = e.restarts
	s.RequestIDs = slices.Concat(e.served[e.servedAt:], e.served[:e.servedAt])
	return s
}
