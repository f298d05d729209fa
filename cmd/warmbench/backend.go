package main

import (
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/backend"
)

func newBackendCommand() *cobra.Command {
	var o backend.Options
	cmd := &cobra.Command{
		Use:   "backend",
		Short: "Serve nodes that answer at once and always the same",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return backend.Run(cmd.Context(), o, nil)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Addresses, "listen", []string{"127.0.0.1:9001"}, "addresses (host:port), one node each")
	f.IntVar(&o.Loops, "loops", 1, "event loops")
	f.IntVar(&o.Chunks, "chunks", 20, "events of a stream")
	f.IntVar(&o.ChunkBytes, "chunk-bytes", 150, "bytes of an event")
	f.DurationVar(&o.Interval, "interval", 10*time.Millisecond, "between the events of a stream")
	f.StringVar(&o.Model, "model", "bench", "model that the nodes name")
	return cmd
}
