package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/backend"
	"warmpath/controlplane/exact"
	"warmpath/dataplane/chat"
	"warmpath/dataplane/prompt"
)

func newBackendCommand() *cobra.Command {
	var o backend.Options
	var dir string
	cmd := &cobra.Command{
		Use:   "backend",
		Short: "Serve nodes that answer at once and always the same",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir != "" {
				var err error
				if o.Tokens, err = tokensOf(dir); err != nil {
					return err
				}
			}
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
	f.StringVar(&dir, "model-dir", "", "folder of a model's tokenizer: the nodes answer /tokenize with its ids, as our own packages make them")
	return cmd
}

// tokensOf names tokens as an engine with the tokenizer in a folder does. They
// are our own packages' ids, so that a router finds itself confirmed: this
// measures what exactness costs, and proves nothing.
func tokensOf(dir string) (func(body []byte) ([]uint32, error), error) {
	const memoBytes = 1 << 20
	l, err := exact.Load(exact.Source{Model: filepath.Base(dir), Tokenizer: filepath.Join(dir, "tokenizer.json")})
	if err != nil {
		return nil, err
	}
	if l.Refused != "" {
		return nil, fmt.Errorf("load model in %q: %s", dir, l.Refused)
	}
	m := l.Model(chat.VLLM, prompt.MinUnit, prompt.NewMemo(memoBytes))
	return func(body []byte) ([]uint32, error) {
		form := prompt.FormChat
		if !bytes.Contains(body, []byte(`"messages"`)) {
			form = prompt.FormCompletion
		}
		ids, verdict, err := prompt.IDs(m, form, body)
		if err == nil && verdict.Level != chat.LevelExact {
			err = errors.New(verdict.Reason)
		}
		return ids, err
	}, nil
}
