package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"warmpath/controlplane"
	"warmpath/controlplane/config"
)

// configFlags are the flags of commands that load a configuration: --config,
// and one for every single key.
type configFlags struct {
	path string
	cmd  *cobra.Command
}

func addConfigFlags(cmd *cobra.Command) *configFlags {
	f := addOverrides(cmd)
	if err := cmd.MarkFlagRequired("config"); err != nil {
		panic("BUG: warmpath: " + err.Error())
	}
	return f
}

// addOverrides is addConfigFlags for a command that can do without a configuration.
func addOverrides(cmd *cobra.Command) *configFlags {
	f := &configFlags{cmd: cmd}
	cmd.Flags().StringVar(&f.path, "config", "", "configuration file (YAML)")
	for _, key := range config.Keys() {
		cmd.Flags().String(key, "", "overrides this key of the file; so does the variable "+config.VariableOf(key))
		_ = cmd.Flags().MarkHidden(key) // one a key would drown the others
	}
	cmd.Long += "\n\nEvery single key of the file can be overridden, by a flag (--timeouts.connect 2s) or by a\nvariable (WARMPATH_TIMEOUTS_CONNECT=2s)."
	return f
}

func (f *configFlags) load() (*config.Config, error) {
	flags := map[string]string{}
	for _, key := range config.Keys() {
		if flag := f.cmd.Flags().Lookup(key); flag.Changed {
			flags[key] = flag.Value.String()
		}
	}
	return config.Load(f.path, config.Environ(), flags)
}

// overridden is a key that a flag overrides, "" if none does.
func (f *configFlags) overridden() string {
	for _, key := range config.Keys() {
		if f.cmd.Flags().Lookup(key).Changed {
			return key
		}
	}
	return ""
}

func newServe() *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve --config FILE", Short: "Run the router", GroupID: "run", Args: cobra.NoArgs,
		Long: `Run the router until SIGTERM or SIGINT, which drain it: it stops accepting, finishes what is
under way (timeouts.drain_process) and exits. A second signal ends it at once. SIGHUP loads the
configuration again.

Started while a router with the same state_dir (or, without one, the same listen address) runs, it
takes over: listening sockets, and what is known of the nodes' caches. No request is refused or
broken; the other process finishes what it has under way and exits.`,
	}
	flags := addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.load()
		if err != nil {
			return err
		}
		log := newLog(cmd.ErrOrStderr(), c)
		s, err := succeed(cmd.Context(), c, log, flags.load)
		if err != nil {
			return err
		}
		r := s.router
		log.Info("serving", "clients", r.data.Addr().String(), "admin", r.adminAddr(), "reports", r.control.ReportsAddr(), "nodes", len(c.Nodes), "policy", c.Policy.Name, "kernel", r.kernel.String(), "guard", r.control.Guard().Line(), "version", version)
		s.tellManager()
		return s.untilSignal()
	}
	return cmd
}

func newLog(w io.Writer, c *config.Config) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Log.Level)) // checked by the configuration
	options := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// untilSignal serves until a signal or a successor ends it.
func (s *succession) untilSignal() error {
	r := s.router
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	for {
		select {
		case sig := <-signals:
			if sig == syscall.SIGHUP {
				_, _ = r.control.Reload() // it logs what came of it
				continue
			}
			s.withdraw()
			return r.shutdown(signals, 1, stoppedGrace)
		case <-s.done():
			defer s.server.Stop()
			return r.shutdown(signals, 2, succeededGrace) // the first one asks for what is done already
		case <-r.data.Stopped():
			return fmt.Errorf("event loops ended: %w", r.data.Stop())
		}
	}
}

// How long clients keep connections that they do not use. Somebody waits for a process
// that was told to stop; nobody does for one that has a successor.
const (
	stoppedGrace   = time.Second
	succeededGrace = 5 * time.Second
)

// shutdown drains and stops; so many more signals cut the draining short.
func (r *router) shutdown(signals <-chan os.Signal, more int, grace time.Duration) error {
	r.control.HaltScaler() // what it would see from now on is not the load
	limit := r.control.Config().Timeouts.DrainProcess
	r.log.Info("draining", "under_way", r.data.Active(), "limit", limit)
	ctx, cancel := context.WithCancel(context.Background())
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				if s == syscall.SIGHUP {
					continue
				}
				if more--; more <= 0 {
					cancel()
				}
			}
		}
	}()
	left := r.data.Drain(ctx, grace)
	cancel()
	r.stop()
	if left > 0 {
		return fmt.Errorf("drain: requests cut after %v: %d", limit, left)
	}
	r.log.Info("stopped")
	return nil
}

func newCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check --config FILE", Short: "Check a configuration and print all that is wrong with it", GroupID: "run", Args: cobra.NoArgs,
		Long: "Check a configuration whole, with the overrides that serve would use, and print every problem\nwith file, line, key, value and remedy.",
	}
	flags := addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.load()
		if err != nil {
			return err
		}
		hard, err := hardDescriptorLimit()
		if err != nil {
			return err
		}
		if problems := c.CheckLimits(hard); len(problems) > 0 {
			return config.Errors(problems)
		}
		notes, err := controlplane.CheckFiles(c)
		for _, note := range notes {
			fmt.Fprintln(cmd.ErrOrStderr(), "note:", note)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok, %d nodes, policy %s\n", flags.path, len(c.Nodes), c.Policy.Name)
		return err
	}
	return cmd
}
