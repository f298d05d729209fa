package main

import (
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/tokenbench"
)

func newTokensCommand() *cobra.Command {
	o := tokenbench.Options{Commit: version}
	cmd := &cobra.Command{
		Use:   "tokens",
		Short: "Measure tokenizer and prompts: texts, and bodies to who holds them (built with the tag hf: beside Hugging Face's own)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return tokenbench.Measure(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Model, "model", ".cache/models/qwen3", "folder of the tokenizer")
	f.IntVar(&o.Runs, "runs", 5, "measured runs of each subject")
	f.DurationVar(&o.Duration, "duration", 300*time.Millisecond, "of a measured run")
	return cmd
}
