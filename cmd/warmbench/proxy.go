package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/peer/httputilproxy"
	"warmpath/bench/proxy"
)

// proxyFlags are those that do not stand in proxy.Options as they are given.
type proxyFlags struct {
	peers       []string
	exact       []string
	output      string
	alone       bool
	get, stream bool
	streams     int
	share       float64
}

func newProxyCommand() *cobra.Command {
	o := proxy.Options{Commit: version, Nodes: 4}
	var g proxyFlags
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Measure proxies side by side: requests per CPU second, CPU per chunk, latency, memory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := g.fill(&o, cmd.Flags().Changed("size")); err != nil {
				return err
			}
			return measureInto(cmd, g.output, o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.SizeBytes, "size", 4096, "bytes of a request body; of a stream's request 1024 without it")
	f.IntVar(&o.Concurrency, "concurrency", 64, "connections; 1 with --one-core")
	f.BoolVar(&g.get, "get", false, "requests without bodies")
	f.BoolVar(&g.stream, "stream", false, "event streams: CPU and latency of a chunk")
	f.IntVar(&g.streams, "streams", 50, "event streams at once")
	f.DurationVar(&o.Interval, "interval", 10*time.Millisecond, "between two chunks of a stream")
	f.Float64Var(&g.share, "open", 0, "open loop at this share of what each can carry, such as 0.3: latency without queues")
	f.StringSliceVar(&g.peers, "peer", []string{proxy.Direct, "nginx", "haproxy"}, "what to measure beside warmpath")
	f.StringSliceVar(&g.exact, "exact", nil, "measure warmpath by the engine's tokens too: warm (its memos know the texts), new (no text comes twice)")
	f.BoolVar(&g.alone, "no-warmpath", false, "measure the peers alone")
	f.StringVar(&o.Warmpath, "warmpath", "", "the router's executable; default: warmpath beside this program")
	f.StringVar(&o.Peers, "peers-dir", filepath.Join(".cache", "venv-peers"), "Python environment of the peers that scripts/peers.sh installs")
	f.StringVar(&o.ModelDir, "model-dir", filepath.Join(".cache", "models", "qwen3"), "folder of a model's tokenizer, for --exact")
	f.IntVar(&o.Runs, "runs", 5, "measured runs of each")
	f.DurationVar(&o.Duration, "duration", 3*time.Second, "of a measured run")
	f.DurationVar(&o.Warmup, "warmup", time.Second, "discarded before each run")
	f.BoolVar(&o.OneCore, "one-core", false, "everything on the proxy's core, one connection: added latency")
	f.IntVar(&o.ProxyCore, "proxy-core", 1, "core of the proxy")
	f.IntVar(&o.LoadCore, "load-core", 0, "core of the load and the nodes")
	f.Float64Var(&o.MaxForeignShare, "max-foreign", 0.1, "share of a core that other processes may take before a run is measured again")
	f.Float64Var(&o.MaxStealPercent, "max-steal", 2, "percent of all processors' time that the machine's host may take before a run is measured again")
	f.IntVar(&o.Tries, "tries", 5, "times a run is measured at most when the machine is busy")
	f.StringVar(&g.output, "output", "", "file that the JSON lines are added to, beside standard output")
	cmd.MarkFlagsMutuallyExclusive("get", "stream", "open")
	cmd.AddCommand(newHTTPUtilCommand())
	return cmd
}

// fill completes the options.
func (g *proxyFlags) fill(o *proxy.Options, sized bool) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own executable: %w", err)
	}
	o.Self = self
	if o.Warmpath == "" {
		o.Warmpath = filepath.Join(filepath.Dir(self), "warmpath")
	}
	if !g.alone {
		o.Subjects = []string{proxy.Warmpath}
	}
	for _, kind := range g.exact {
		name, ok := map[string]string{"warm": proxy.WarmpathExact, "new": proxy.WarmpathNew}[kind]
		if !ok {
			return fmt.Errorf("check --exact %q: use warm or new", kind)
		}
		o.Subjects = append(o.Subjects, name)
	}
	o.Subjects = append(o.Subjects, g.peers...)
	o.Load, o.Share = proxy.LoadPost, g.share
	switch {
	case g.get:
		o.Load = proxy.LoadGet
	case g.stream:
		o.Load, o.Concurrency = proxy.LoadStream, g.streams
		if !sized {
			o.SizeBytes = 1024
		}
	case g.share != 0:
		o.Load = proxy.LoadOpen
	}
	return nil
}

// newHTTPUtilCommand is a peer that this program is itself.
func newHTTPUtilCommand() *cobra.Command {
	var listen string
	var nodes []string
	cmd := &cobra.Command{
		Use: "httputil", Short: "Be Go's reverse proxy, to be measured", Args: cobra.NoArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return httputilproxy.Run(cmd.Context(), listen, nodes)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "address (host:port)")
	cmd.Flags().StringSliceVar(&nodes, "nodes", nil, "addresses (host:port) of the nodes")
	return cmd
}

// measureInto also appends to the output file, so that one file can hold a
// series of sizes.
func measureInto(cmd *cobra.Command, output string, o proxy.Options) (err error) {
	out := cmd.OutOrStdout()
	if output != "" {
		file, openErr := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if openErr != nil {
			return fmt.Errorf("open output: %w", openErr)
		}
		defer func() {
			if closeErr := file.Close(); err == nil && closeErr != nil {
				err = fmt.Errorf("close output: %w", closeErr)
			}
		}()
		out = io.MultiWriter(out, file)
	}
	return proxy.Measure(cmd.Context(), o, out, cmd.ErrOrStderr())
}
