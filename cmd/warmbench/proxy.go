package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/proxy"
)

func newProxyCommand() *cobra.Command {
	o := proxy.Options{Commit: version, Nodes: 4}
	var peers []string
	var output string
	var alone bool
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Measure proxies side by side: requests per CPU second, latency, memory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			self, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find own executable: %w", err)
			}
			o.Backend = []string{self, "backend"}
			if o.Warmpath == "" {
				o.Warmpath = filepath.Join(filepath.Dir(self), "warmpath")
			}
			if !alone {
				o.Subjects = []string{proxy.Warmpath}
			}
			o.Subjects = append(o.Subjects, peers...)
			return measureInto(cmd, output, o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.SizeBytes, "size", 4096, "bytes of a request body")
	f.IntVar(&o.Concurrency, "concurrency", 64, "connections; 1 with --one-core")
	f.StringSliceVar(&peers, "peer", []string{proxy.Direct, "nginx", "haproxy"}, "what to measure beside warmpath")
	f.BoolVar(&alone, "no-warmpath", false, "measure the peers alone")
	f.StringVar(&o.Warmpath, "warmpath", "", "the router's executable; default: warmpath beside this program")
	f.IntVar(&o.Runs, "runs", 5, "measured runs of each")
	f.DurationVar(&o.Duration, "duration", 3*time.Second, "of a measured run")
	f.DurationVar(&o.Warmup, "warmup", time.Second, "discarded before each run")
	f.BoolVar(&o.OneCore, "one-core", false, "everything on the proxy's core, one connection: added latency")
	f.IntVar(&o.ProxyCore, "proxy-core", 1, "core of the proxy")
	f.IntVar(&o.LoadCore, "load-core", 0, "core of wrk and the nodes")
	f.Float64Var(&o.MaxForeignShare, "max-foreign", 0.1, "share of a core that other processes may take before a run is measured again")
	f.IntVar(&o.Tries, "tries", 5, "times a run is measured at most when the machine is busy")
	f.StringVar(&output, "output", "", "file that the JSON lines are added to, beside standard output")
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
