package main

import (
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/indexbench"
)

func newIndexCommand() *cobra.Command {
	o := indexbench.Options{Commit: version}
	cmd := &cobra.Command{
		Use:   "index",
		Short: "Measure the prefix index: memory, stores, matches, readers beside a writer",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return indexbench.Measure(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", 256, "nodes of the fleet, 64 to 1024")
	f.IntVar(&o.Blocks, "blocks", 50_000, "blocks that a node holds")
	f.IntVar(&o.Runs, "runs", 5, "measured runs of each subject")
	f.DurationVar(&o.Duration, "duration", 500*time.Millisecond, "of a measured run")
	return cmd
}
