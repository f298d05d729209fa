package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"warmpath/controlplane/config"
)

const (
	demoNodes       = 4
	demoModel       = "demo"
	demoListen      = 8080
	demoAdmin       = 8081
	demoEngines     = 8001
	portsTried      = 100
	demoStartWithin = 20 * time.Second
	demoModelDir    = ".cache/models/qwen3"
	simFourBytes    = "four bytes a token" // what the simulator says without a model
)

func newDemo() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demo", Short: "Run a simulated fleet and a router before it, and say what to try", GroupID: "run", Args: cobra.NoArgs,
		Long: "Run simulated engines and a router before them until Ctrl-C. Nothing is written and nothing else is\ntouched; everything listens on loopback.",
	}
	nodes := cmd.Flags().Int("nodes", demoNodes, "simulated engines")
	traffic := cmd.Flags().Bool("traffic", false, "send light multi-turn traffic")
	modelDir := cmd.Flags().String("model-dir", demoModelDir, "folder of a model's tokenizer.json, for exact prefixes; the simulator needs the Hugging Face library and jinja2 for it")
	scale := cmd.Flags().Bool("scale", false, "begin with one engine and let the scaler run up to --nodes of them, under traffic that comes in waves")
	policyName := cmd.Flags().String("policy", "cost", "routing policy")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *nodes < 1 || *nodes > 64 {
			return fmt.Errorf("%w: --nodes %d: use 1 to 64", errUsage, *nodes)
		}
		return (&demo{out: cmd.OutOrStdout(), errs: cmd.ErrOrStderr(), nodes: *nodes, traffic: *traffic, scale: *scale, policy: *policyName, modelDir: *modelDir}).run()
	}
	return cmd
}

// demo is one run of the demonstration.
type demo struct {
	out, errs io.Writer
	nodes     int
	traffic   bool
	scale     bool
	policy    string
	modelDir  string

	scaled  string // the scaler's part of the configuration; "" without one
	engines []demoEngine
	exact   bool // the engines have the model's own tokens
	router  *router
}

// demoEngine is where a simulated engine listens.
type demoEngine struct {
	URL      string `json:"url"`
	KVEvents string `json:"kv_events"`
	Replay   string `json:"replay"`
}

func (d *demo) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if d.scale {
		return d.runScaled(ctx)
	}
	end, err := d.startEngines(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := d.startRouter(ctx); err != nil {
		return err
	}
	defer func() {
		d.stopRouter()
		fmt.Fprintln(d.out, "ended: router, engines and traffic are gone")
	}()
	d.explainScreen()
	if d.traffic {
		go sendTraffic(ctx, "http://"+d.router.data.Addr().String(), d.out)
	}
	<-ctx.Done()
	fmt.Fprintln(d.out)
	return nil
}

// stopRouter drains the router for a moment and ends it.
func (d *demo) stopRouter() {
	drain, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	d.router.control.HaltScaler()
	d.router.data.Drain(drain, stoppedGrace)
	d.router.stop()
}

// startEngines starts the enginesim that lies beside our own executable. Its
// standard input is ours to hold: it ends when we do, however we end.
func (d *demo) startEngines(ctx context.Context) (end func(), err error) {
	sim, err := besideSelf("enginesim")
	if err != nil {
		return nil, err
	}
	first := freePorts(demoEngines, d.nodes)
	if first != demoEngines {
		fmt.Fprintf(d.out, "ports from %d are taken; the engines use those from %d\n", demoEngines, first)
	}
	args := []string{
		"--engines", strconv.Itoa(d.nodes), "--port", strconv.Itoa(first), "--model", demoModel,
		"--output", "json", "--with-parent", "--admin", "127.0.0.1:0", "--kv-events-port", "-1", "--replay-port", "-1",
	}
	if _, err := os.Stat(filepath.Join(d.modelDir, "tokenizer.json")); err == nil {
		args = append(args, "--model-dir", d.modelDir)
	} else {
		fmt.Fprintf(d.out, "no model in %q: prefixes are known by text; `make models` fetches some\n", d.modelDir)
	}
	cmd := exec.Command(sim, args...)
	// Ctrl-C goes to the whole foreground group; the engines must outlive the
	// router's draining.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = d.errs
	hold, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start engine simulator: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start engine simulator: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start engine simulator: %w", err)
	}
	end = func() {
		_ = hold.Close()
		_ = cmd.Wait()
	}
	if err := d.readEngines(ctx, out); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// readEngines reads where the engines listen.
func (d *demo) readEngines(ctx context.Context, out io.Reader) error {
	type result struct {
		line []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		line, err := bufio.NewReader(out).ReadBytes('\n')
		read <- result{line, err}
	}()
	var r result
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(demoStartWithin):
		return fmt.Errorf("start engine simulator: it said nothing within %v", demoStartWithin)
	case r = <-read:
	}
	if r.err != nil {
		return fmt.Errorf("start engine simulator: %w", r.err)
	}
	var started struct {
		Engines []demoEngine
		Tokens  string
	}
	if err := json.Unmarshal(r.line, &started); err != nil {
		return fmt.Errorf("read what the engine simulator says: %w", err)
	}
	d.engines, d.exact = started.Engines, started.Tokens != simFourBytes
	return nil
}

func (d *demo) startRouter(ctx context.Context) error {
	listen, adminPort := freePorts(demoListen, 1), freePorts(demoAdmin, 1)
	if listen == adminPort {
		adminPort = freePorts(listen+1, 1)
	}
	for _, p := range []struct{ want, got int }{{demoListen, listen}, {demoAdmin, adminPort}} {
		if p.want != p.got {
			fmt.Fprintf(d.out, "port %d is taken; using %d\n", p.want, p.got)
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "listen: 127.0.0.1:%d\nadmin: {listen: \"127.0.0.1:%d\"}\nlog: {level: warn}\nlimits: {connections: 200}\npolicy: {name: %s}\n", listen, adminPort, d.policy)
	if d.exact {
		fmt.Fprintf(&text, "models: [{name: %s, tokenizer: %q}]\n", demoModel, filepath.Join(d.modelDir, "tokenizer.json"))
	}
	if d.scaled != "" {
		text.WriteString("nodes: []\nhealth: {interval: 2s, interval_down: 200ms}\n" + d.scaled)
	} else {
		text.WriteString("nodes:\n")
	}
	for i, e := range d.engines {
		fmt.Fprintf(&text, "  - {name: sim-%d, url: %q, kv_events: {endpoint: %q, replay: %q}}\n", i, e.URL, e.KVEvents, e.Replay)
	}
	read := func() (*config.Config, error) { return config.Parse("demo", []byte(text.String())) }
	c, err := read()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(d.errs, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if d.router, err = startRouter(c, log, read); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, demoStartWithin)
	defer cancel()
	if err := d.router.control.WaitReady(ready); err != nil {
		d.router.stop()
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil
		}
		return err
	}
	return nil
}

// explainScreen says where everything is and what to try.
func (d *demo) explainScreen() {
	clients, operators := "http://"+d.router.data.Addr().String(), "http://"+d.router.adminAddr()
	const ask = `curl -s -i %s/v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"demo","max_tokens":32,` +
		`"messages":[{"role":"system","content":"You are a careful assistant. %s"},{"role":"user","content":"Hello, who are you?"}%s]}'`
	long := strings.Repeat("Answer in full sentences and name your sources. ", 8)
	more := `,{"role":"assistant","content":"A simulated engine."},{"role":"user","content":"And what do you cache?"}`
	fmt.Fprintf(d.out, `
warmpath %s: %d simulated engines behind one router

  clients     %s   (OpenAI API; model "%s"; any API key)
  status page %s
  metrics     %s/metrics
  engines     %s
  prefixes    %s

Try this, in another terminal:

  1. a first turn: see which node answers (X-Routed-To) and the request's id (X-Request-Id)
     %s

  2. the second turn of the same conversation: the same node, and cached_tokens in usage
     %s

  3. why it went there
     %s explain --admin %s REQUEST-ID
     curl -s '%s/api/decisions?n=1'

  Drain that node and send turn 2 again: another node answers, and the decision
  says both why and what it passed over. NODE is what X-Routed-To said.
     %s drain --admin %s NODE

Ctrl-C ends all of it.
`, version, d.nodes, clients, demoModel, operators, operators, d.urls(), d.prefixes(),
		fmt.Sprintf(ask, clients, long, ""), fmt.Sprintf(ask, clients, long, more),
		os.Args[0], d.router.adminAddr(), operators, os.Args[0], d.router.adminAddr())
}

func (d *demo) urls() string {
	urls := make([]string, len(d.engines))
	for i, e := range d.engines {
		urls[i] = e.URL
	}
	return strings.Join(urls, " ")
}

// prefixes says how well prompts are known here.
func (d *demo) prefixes() string {
	if d.exact {
		return "exact: the router's own tokens of " + filepath.Base(d.modelDir) + ", the engines' by the Hugging Face library and jinja2"
	}
	return "by text: the simulator takes four bytes for a token (with `make models build-hf` and Python's jinja2: exact)"
}

// freePorts returns the first of n consecutive ports of loopback that are free
// now, from the wanted one on; the wanted one if it finds none.
func freePorts(want, n int) int {
	for first := want; first < want+portsTried*n; first += n {
		if allFree(first, n) {
			return first
		}
	}
	return want
}

func allFree(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
