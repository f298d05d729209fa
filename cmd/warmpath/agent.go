package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"warmpath/controlplane/agent"
	"warmpath/controlplane/config"
	"warmpath/controlplane/engine"
	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/state"
)

// agentFlags are the flags of the agent as they were given.
type agentFlags struct {
	routers                             []string
	worker, model, tokenFile, encoding  string
	events, eventsListen, replay, topic string
	ranks                               int
	interval, sync                      time.Duration
	logLevel, logFormat                 string

	register                            []string
	registerToken, nodeURL, nodeOptions string

	load                          bool
	loadPorts                     []uint
	loadCgroup, loadURL, loadKind string
	loadInterval                  time.Duration
}

func newAgent() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use: "agent [--router URL --engine-events ENDPOINT --token-file FILE] [--register URL --node-url URL --register-token-file FILE] [--load-option]", GroupID: "run", Args: cobra.NoArgs,
		Short: "Report an engine's cache and load to routers (runs on the GPU node)",
		Long: `Follow the KV-cache events of an engine on this host and report them to every router, for engines
whose event port routers cannot or must not reach. Each router needs reports.listen, and this
worker's token in its reports.tokens_file.

With --register it also, or only, registers the node with routers that have
discovery.register.enabled, renews its lease, and takes it away when it ends: routers then send it
nothing new, and the engine can be stopped once it has finished what it has.

With --load-option it also, or only, has this host's kernel put the engine's queue and KV use into a
TCP option of its answers, where routers with kernel.node_load read them as they come, ten times a
second and more, without asking. That needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; beside
reports, a host that does not allow it is said to, and the reports go on. Connections that stood
before the first agent began carry nothing. Ends with SIGTERM or SIGINT.`,
		Example: `  warmpath agent --router http://10.0.0.1:8082 --router http://10.0.0.2:8082 \
      --engine-events tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5558 \
      --worker-id gpu-a --token-file /etc/warmpath/agent.token
  warmpath agent --register http://10.0.0.1:8081 --register-token-file /etc/warmpath/register.token \
      --worker-id gpu-a --node-url http://10.0.0.11:8000 --node-options '{"island":"rack-1"}'
  warmpath agent --load-option --load-port 8000`,
	}
	cmd.Flags().StringArrayVar(&f.routers, "router", nil, "URL of a router's reports listener; once for each router")
	cmd.Flags().StringVar(&f.worker, "worker-id", "", "this node's name in the routers' configuration")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "file with this worker's token")
	cmd.Flags().StringVar(&f.model, "model", "", "the model that the engine serves, if it serves several names")
	cmd.Flags().StringVar(&f.events, "engine-events", "", "the engine's event port, such as tcp://127.0.0.1:5557")
	cmd.Flags().StringVar(&f.eventsListen, "engine-events-listen", "", "in place of --engine-events: where an engine that connects by itself is awaited")
	cmd.Flags().StringVar(&f.replay, "replay", "", "the engine's replay port, such as tcp://127.0.0.1:5558")
	cmd.Flags().StringVar(&f.topic, "topic", "", "take only events whose topic begins so")
	cmd.Flags().IntVar(&f.ranks, "ranks", 1, "data-parallel ranks, on ports that follow each other")
	cmd.Flags().DurationVar(&f.interval, "interval", 100*time.Millisecond, "between two reports of changes")
	cmd.Flags().DurationVar(&f.sync, "sync", 5*time.Second, "between two digests")
	cmd.Flags().StringVar(&f.encoding, "encoding", "msgpack", "msgpack or json")
	cmd.Flags().StringVar(&f.logLevel, "log.level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&f.logFormat, "log.format", "text", "text or json")
	cmd.Flags().StringArrayVar(&f.register, "register", nil, "URL of a router's admin side; once for each router")
	cmd.Flags().StringVar(&f.registerToken, "register-token-file", "", "file with the routers' discovery.register.token")
	cmd.Flags().StringVar(&f.nodeURL, "node-url", "", "where routers reach the engine, such as http://10.0.0.11:8000")
	cmd.Flags().StringVar(&f.nodeOptions, "node-options", "{}", "what else routers are to know of the node, as JSON: models, engine, island, region, weight, max_in_flight, kv_events")
	cmd.Flags().BoolVar(&f.load, "load-option", false, "have the kernel put the engine's load into its answers")
	cmd.Flags().UintSliceVar(&f.loadPorts, "load-port", []uint{8000}, "port that the engine listens on; once for each")
	cmd.Flags().StringVar(&f.loadCgroup, "load-cgroup", "", "folder of the cgroup v2 that the engine runs in or below (default: the root, that is every process's)")
	cmd.Flags().StringVar(&f.loadURL, "load-url", "", "where the engine's metrics are asked (default: the first --load-port on 127.0.0.1)")
	cmd.Flags().StringVar(&f.loadKind, "load-engine", engine.Auto, "whose metrics they are: "+strings.Join(slices.DeleteFunc(engine.Names(), func(n string) bool { return n == engine.OpenAI }), ", "))
	cmd.Flags().DurationVar(&f.loadInterval, "load-interval", 100*time.Millisecond, "between two looks at the metrics")
	cmd.MarkFlagsOneRequired("router", "register", "load-option")
	cmd.MarkFlagsRequiredTogether("router", "token-file")
	cmd.MarkFlagsRequiredTogether("register", "register-token-file", "node-url")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	return cmd
}

func (f *agentFlags) run(cmd *cobra.Command) error {
	if err := f.checkLog(); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	log := newLog(cmd.ErrOrStderr(), &config.Config{Log: config.Log{Level: f.logLevel, Format: f.logFormat}})
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	load, err := f.loadOptions(log)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	registration, err := f.registration(log)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	var o agent.Options
	if len(f.routers) > 0 {
		if o, err = f.options(); err != nil {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
	}
	if registration != nil {
		if registration.Token, err = agent.OpenToken(f.registerToken); err != nil {
			return err
		}
	}
	if len(f.routers) > 0 {
		if o.Token, err = agent.OpenToken(f.tokenFile); err != nil {
			return err
		}
	}
	o.Log = log
	var others sync.WaitGroup
	defer others.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if registration != nil {
		others.Go(func() { registration.Register(ctx) })
	}
	switch {
	case len(f.routers) == 0 && registration == nil:
		return agent.SayLoad(ctx, load)
	case f.load:
		others.Go(func() {
			if err := agent.SayLoad(ctx, load); err != nil {
				log.Warn("the engine's load is not said; the rest goes on", "err", err)
			}
		})
	}
	if len(f.routers) == 0 {
		<-ctx.Done()
		return nil
	}
	return agent.Run(ctx, o)
}

// registration is what was given for --register, nil if that was not.
func (f *agentFlags) registration(log *slog.Logger) (*agent.Registration, error) {
	if len(f.register) == 0 {
		return nil, nil
	}
	var spec state.Spec
	d := json.NewDecoder(strings.NewReader(f.nodeOptions))
	d.DisallowUnknownFields()
	if err := d.Decode(&spec); err != nil {
		return nil, fmt.Errorf("--node-options: %w", err)
	}
	spec.Name, spec.URL = f.worker, f.nodeURL
	spec, err := spec.Validate()
	if err != nil {
		return nil, fmt.Errorf("--worker-id, --node-url, --node-options: %w", err)
	}
	r := &agent.Registration{Name: spec.Name, Log: log}
	if r.Body, err = json.Marshal(spec); err != nil {
		return nil, err
	}
	for _, raw := range f.register {
		base, err := agent.ParseRouter(raw)
		if err != nil {
			return nil, fmt.Errorf("--register: %w", err)
		}
		r.Routers = append(r.Routers, base)
	}
	return r, nil
}

func (f *agentFlags) checkLog() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return fmt.Errorf("--log.level %q: use debug, info, warn or error", f.logLevel)
	}
	if f.logFormat != "text" && f.logFormat != "json" {
		return fmt.Errorf("--log.format %q: use text or json", f.logFormat)
	}
	return nil
}

// loadOptions checks what was given for --load-option, if that was.
func (f *agentFlags) loadOptions(log *slog.Logger) (agent.LoadOptions, error) {
	o := agent.LoadOptions{Engine: f.loadKind, Cgroup: f.loadCgroup, Interval: f.loadInterval, Log: log}
	if !f.load {
		return o, nil
	}
	for _, port := range f.loadPorts {
		if port == 0 || port > math.MaxUint16 {
			return o, fmt.Errorf("--load-port %d: use 1 to %d", port, math.MaxUint16)
		}
		o.Ports = append(o.Ports, uint16(port))
	}
	base := f.loadURL
	if base == "" && len(o.Ports) > 0 {
		base = fmt.Sprintf("http://127.0.0.1:%d", o.Ports[0])
	}
	var err error
	if o.URL, err = agent.ParseEngine(base); err != nil {
		return o, fmt.Errorf("--load-url: %w", err)
	}
	return o, o.Check()
}

// options checks what was given.
func (f *agentFlags) options() (agent.Options, error) {
	o := agent.Options{WorkerID: f.worker, Model: f.model, Ranks: f.ranks, Interval: f.interval, Sync: f.sync}
	if err := state.CheckName(f.worker); err != nil {
		return o, fmt.Errorf("--worker-id %q: %w", f.worker, err)
	}
	for _, raw := range f.routers {
		base, err := agent.ParseRouter(raw)
		if err != nil {
			return o, fmt.Errorf("--router: %w", err)
		}
		o.Routers = append(o.Routers, base)
	}
	var err error
	if o.Encoding, err = agent.ParseEncoding(f.encoding); err != nil {
		return o, fmt.Errorf("--encoding: %w", err)
	}
	source := kvevent.Source{Node: f.worker, Endpoint: f.events, Listen: f.eventsListen, Replay: f.replay, Topic: f.topic}
	for rank := range max(f.ranks, 1) {
		source.Rank = rank
		if err := source.Check(); err != nil {
			return o, fmt.Errorf("--engine-events: %w", err)
		}
	}
	source.Rank = 0
	o.Source = agent.FromEngine(source)
	return o, o.Check()
}
