package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/engine"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// options are the flags.
type options struct {
	engines    int
	host       string
	port       int
	admin      string
	eventsPort int
	replayPort int
	timeScale  float64
	output     string
	withParent bool
	modelDir   string
	python     string
	config     engine.Config
}

// started is what is printed once every engine listens.
type started struct {
	Engines []address `json:"engines"`
	Admin   string    `json:"admin"`
	Tokens  string    `json:"tokens"` // what token ids are
}

// address says where one engine listens; events are "" when off, else those of
// its first rank.
type address struct {
	URL      string `json:"url"`
	KVEvents string `json:"kv_events"`
	Replay   string `json:"replay"`
}

// errUsage marks errors of the command line.
var errUsage = errors.New("wrong usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(os.Stdin, os.Stdout).ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "enginesim:", err)
	if errors.Is(err, errUsage) {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

// command builds the command line. It runs until its context ends, or until
// stdin does with --with-parent.
func command(stdin io.Reader, stdout io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "enginesim",
		Short: "Simulate LLM inference engines: HTTP API, KV cache, timing, metrics, events and faults",
		Long: `enginesim runs simulated vLLM-like engines, each on a port of its own.
Faults are set with POST /sim/fault on an engine's port, or with
POST /engines/{i}/fault on the admin address, for instance
{"kind":"cut_mid_stream","after_chunks":3,"count":1}; POST …/clear ends them.`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			return run(cmd.Context(), &o, stdin, stdout, cmd.ErrOrStderr())
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", errUsage, err) })
	f := cmd.Flags()
	f.IntVar(&o.engines, "engines", 1, "number of engines")
	f.StringVar(&o.host, "host", "127.0.0.1", "address that everything listens on")
	f.IntVar(&o.port, "port", 0, "port of the first engine, the next ones follow; 0 = any free ports")
	f.StringVar(&o.admin, "admin", "", "host:port of the admin API for all engines; empty = none")
	f.IntVar(&o.eventsPort, "kv-events-port", 0, "ZeroMQ port of KV events of the first engine's first rank, the next ranks and engines follow; 0 = no events, -1 = any free ports")
	f.IntVar(&o.replayPort, "replay-port", 0, "ZeroMQ port of replay of the first engine's first rank, the next ranks and engines follow; 0 = none, -1 = any free ports")
	f.Float64Var(&o.timeScale, "time-scale", 1, "real seconds for a simulated second; 0 = as fast as possible")
	f.StringVar(&o.output, "output", "text", "how addresses are printed at start: text or json (one line)")
	f.BoolVar(&o.withParent, "with-parent", false, "exit when stdin closes")
	f.StringVar(&o.modelDir, "model-dir", "", "folder of a real model (tokenizer.json, tokenizer_config.json) whose token ids prompts get; needs a build with the tag hf and Python with jinja2, else a token is four bytes")
	f.StringVar(&o.python, "python", "", "interpreter that renders chat templates of --model-dir; default: .cache/venv/bin/python, else python3")
	c := &o.config
	f.StringVar(&c.Model, "model", "sim", "model name")
	f.StringSliceVar(&c.Adapters, "adapter", nil, "name of a LoRA adapter; may be repeated")
	f.IntVar(&c.MaxModelLen, "max-model-len", 131_072, "longest prompt and answer together, tokens")
	f.IntVar(&c.Blocks, "blocks", 16_384, "blocks of each engine's cache, one of them the null block")
	f.IntVar(&c.BlockTokens, "block-size", 16, "tokens of a block")
	f.IntVar(&c.Ranks, "ranks", 1, "data-parallel ranks of each engine, each with such a cache and with event ports of its own")
	f.Uint64Var(&c.Seed, "seed", 0, "start of block hashes and generated identifiers")
	f.IntVar(&c.DefaultTokens, "default-tokens", 64, "length of a chat answer without max_tokens")
	f.IntVar(&c.MaxWaiting, "max-waiting", 10_000, "requests that may wait; more are answered 503")
	f.IntVar(&c.ReplayBatches, "replay-batches", 10_000, "event batches kept for replay")
	p := &c.Physics
	f.Float64Var(&p.PrefillTokensPerSecond, "prefill-tps", 8000, "prompt tokens computed in a second, without context")
	f.Float64Var(&p.DecodeBaseMs, "decode-base-ms", 6, "fixed time of a step, milliseconds")
	f.Float64Var(&p.DecodePerRequestMs, "decode-per-request-ms", 0.35, "time that each request adds to a step, milliseconds")
	f.Float64Var(&p.ContextTokens, "context-tokens", 32_768, "context that doubles the cost of a prompt token; negative = none")
	f.IntVar(&p.ChunkTokens, "chunk", 2048, "tokens of one step, prefill and decode together")
	f.IntVar(&p.MaxRunning, "max-num-seqs", 64, "requests in one step")
	return cmd
}

// check reports flags that contradict each other.
func (o *options) check() error {
	rows := o.engines * max(1, o.config.Ranks) // ports of events, as many as of HTTP without ranks
	overlap := func(a, b int) bool { return a > 0 && b > 0 && a < b+rows && b < a+rows }
	switch {
	case o.engines < 1 || o.engines > 10_000:
		return fmt.Errorf("check --engines %d: must be 1 to 10000", o.engines)
	case o.config.Ranks < 1 || o.config.Ranks > 1024:
		return fmt.Errorf("check --ranks %d: must be 1 to 1024", o.config.Ranks)
	case o.output != "text" && o.output != "json":
		return fmt.Errorf("check --output %q: must be text or json", o.output)
	case o.timeScale < 0:
		return fmt.Errorf("check --time-scale %v: must be 0 or more", o.timeScale)
	case o.replayPort != 0 && o.eventsPort == 0:
		return fmt.Errorf("check --replay-port %d: it needs --kv-events-port too", o.replayPort)
	case overlap(o.eventsPort, o.replayPort) || overlap(o.port, o.eventsPort) || overlap(o.port, o.replayPort):
		return fmt.Errorf("check ports: the ranges of %d ports from %d (HTTP), %d (events) and %d (replay) overlap, space them out",
			rows, o.port, o.eventsPort, o.replayPort)
	}
	for _, p := range []int{o.port, o.eventsPort, o.replayPort} {
		if p < -1 || p+rows > 65_536 {
			return fmt.Errorf("check port %d: %d ports from there leave the range up to 65535", p, rows)
		}
	}
	if o.port < 0 {
		return fmt.Errorf("check --port %d: must be 0 or more", o.port)
	}
	return nil
}

// run starts the engines, prints where they are, and waits for the end.
func run(ctx context.Context, o *options, stdin io.Reader, stdout, stderr io.Writer) error {
	if err := o.loadModel(stderr); err != nil {
		return err
	}
	if o.config.Real != nil {
		defer func() { _ = o.config.Real.Close() }()
	}
	var engines []*engine.Engine
	defer func() {
		for _, e := range engines {
			_ = e.Close() // nothing is left to be done about it
		}
	}()
	out := started{}
	for i := range o.engines {
		e, err := o.start(i)
		if err != nil {
			return err
		}
		engines = append(engines, e)
		out.Engines = append(out.Engines, address{e.URL(), e.EventsEndpoint(), e.ReplayEndpoint()})
		out.Tokens = e.State().Tokens
	}
	if o.admin != "" {
		ln, err := net.Listen("tcp", o.admin)
		if err != nil {
			return fmt.Errorf("listen on --admin %q: %w", o.admin, err)
		}
		admin := &http.Server{Handler: engine.AdminHandler(engines), ReadHeaderTimeout: 10 * time.Second}
		defer func() { _ = admin.Close() }()
		go func() { _ = admin.Serve(ln) }() // ends with Close
		out.Admin = "http://" + ln.Addr().String()
	}
	if err := out.print(stdout, o.output); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.withParent {
		go func() {
			_, _ = io.Copy(io.Discard, stdin) // ends when the parent does
			cancel()
		}()
	}
	<-ctx.Done()
	return nil
}

// loadModel reads --model-dir. Where this machine cannot use it, it says so and
// goes on without.
func (o *options) loadModel(stderr io.Writer) error {
	if o.modelDir == "" {
		return nil
	}
	m, err := engine.LoadModel(o.modelDir, o.python)
	if errors.Is(err, engine.ErrNoOracle) {
		fmt.Fprintf(stderr, "enginesim: --model-dir: %v; a token is four bytes instead\n", err)
		return nil
	}
	o.config.Real = m
	return err
}

// start makes engine i and opens its port.
func (o *options) start(i int) (*engine.Engine, error) {
	cfg := o.config
	cfg.Name = "sim-" + strconv.Itoa(i)
	cfg.TimeScale, cfg.AsFastAsPossible = o.timeScale, o.timeScale == 0
	cfg.EventsEndpoint, cfg.ReplayEndpoint = o.endpoint(o.eventsPort, i), o.endpoint(o.replayPort, i)
	e, err := engine.New(cfg)
	if err != nil {
		return nil, err
	}
	port := 0
	if o.port > 0 {
		port = o.port + i
	}
	if err := e.Start(net.JoinHostPort(o.host, strconv.Itoa(port))); err != nil {
		_ = e.Close()
		return nil, err
	}
	return e, nil
}

// endpoint is the ZeroMQ endpoint of engine i's first rank, "" when off.
func (o *options) endpoint(base, i int) string {
	switch base {
	case 0:
		return ""
	case -1:
		base, i = 0, 0
	}
	return "tcp://" + net.JoinHostPort(o.host, strconv.Itoa(base+i*max(1, o.config.Ranks)))
}

// print writes the addresses, as text or as one line of JSON.
func (s *started) print(w io.Writer, form string) error {
	if form == "json" {
		if err := json.NewEncoder(w).Encode(s); err != nil {
			return fmt.Errorf("print addresses: %w", err)
		}
		return nil
	}
	for i, a := range s.Engines {
		line := fmt.Sprintf("engine %d %s", i, a.URL)
		if a.KVEvents != "" {
			line += " events " + a.KVEvents
		}
		if a.Replay != "" {
			line += " replay " + a.Replay
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("print addresses: %w", err)
		}
	}
	if s.Admin != "" {
		if _, err := fmt.Fprintln(w, "admin", s.Admin); err != nil {
			return fmt.Errorf("print addresses: %w", err)
		}
	}
	return nil
}
