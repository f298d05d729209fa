package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/soak"
)

func newSoakCommand() *cobra.Command {
	o := soak.Options{Commit: version}
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Run a router under faults of nodes, clients and operations, and check every byte of every answer",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Warmpath == "" {
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("find own executable: %w", err)
				}
				o.Warmpath = filepath.Join(filepath.Dir(self), "warmpath")
			}
			return soak.Run(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Warmpath, "warmpath", "", "the router's executable; default: warmpath beside this program")
	f.DurationVar(&o.Duration, "duration", 10*time.Minute, "the run lasts at least as long")
	f.Int64Var(&o.Requests, "requests", 1_000_000, "and has at least so many requests (but for a machine on which that takes four times as long)")
	f.IntVar(&o.Rate, "rate", 0, "requests a second at most; 0 = no bound")
	f.IntVar(&o.Clients, "clients", 256, "clients that send at once")
	f.IntVar(&o.Nodes, "nodes", 5, "nodes")
	f.Uint64Var(&o.Seed, "seed", 1, "of everything that is random: what a client sends, what its nodes answer and how they fail")
	f.DurationVar(&o.OperateEvery, "operate-every", 5*time.Second, "between two reloads, drains or changes of the fleet; below 0 = never")
	f.DurationVar(&o.DisturbEvery, "disturb-every", 15*time.Second, "between two times that a node is stopped; below 0 = never")
	f.DurationVar(&o.RestartEvery, "restart-every", 0, "between two hot restarts of the router; 0 = never")
	f.IntVar(&o.Violations, "violations", 1, "end the run after so many")
	f.StringArrayVar(&o.Config, "config-line", nil, "further line of the router's configuration; may be given many times")
	return cmd
}
