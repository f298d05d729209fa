package main

import (
	"fmt"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"warmpath/controlplane/agent"
	"warmpath/controlplane/config"
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
}

func newAgent() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use: "agent --router URL --engine-events ENDPOINT --worker-id NAME --token-file FILE", GroupID: "run", Args: cobra.NoArgs,
		Short: "Report an engine's cache to routers (runs on the GPU node)",
		Long: `Follow the KV-cache events of an engine on this host and report them to every router, for engines
whose event port routers cannot or must not reach. Each router needs reports.listen, and this
worker's token in its reports.tokens_file. Ends with SIGTERM or SIGINT.`,
		Example: `  warmpath agent --router http://10.0.0.1:8082 --router http://10.0.0.2:8082 \
      --engine-events tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5558 \
      --worker-id gpu-a --token-file /etc/warmpath/agent.token`,
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
	for _, name := range []string{"router", "worker-id", "token-file"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic("BUG: warmpath: " + err.Error())
		}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	return cmd
}

func (f *agentFlags) run(cmd *cobra.Command) error {
	o, err := f.options()
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if o.Token, err = agent.OpenToken(f.tokenFile); err != nil {
		return err
	}
	o.Log = newLog(cmd.ErrOrStderr(), &config.Config{Log: config.Log{Level: f.logLevel, Format: f.logFormat}})
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return agent.Run(ctx, o)
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
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return o, fmt.Errorf("--log.level %q: use debug, info, warn or error", f.logLevel)
	}
	if f.logFormat != "text" && f.logFormat != "json" {
		return o, fmt.Errorf("--log.format %q: use text or json", f.logFormat)
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
