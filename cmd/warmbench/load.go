package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/load"
)

// loadFlags are the flags of `warmbench load` beside those of the run itself.
type loadFlags struct {
	prompts      string
	sizeBytes    int
	get          bool
	model        string
	outputTokens int
	ignoreEOS    bool
	arrivals     string
	format       string
}

func newLoadCommand() *cobra.Command {
	var o load.Options
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load",
		Short: "Send requests at a rate, or over so many connections, and measure the answers",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return err
			}
			o.Arrivals = load.Arrivals(f.arrivals)
			return errors.Join(o.Check(), f.check())
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return measureLoad(cmd.Context(), o, f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.URL, "url", "", "http://host:port, with a path if it is not that of chat completions")
	flags.Float64Var(&o.Rate, "rate", 0, "requests a second, an open loop")
	flags.IntVar(&o.Concurrency, "concurrency", 0, "connections of a closed loop, instead of a rate")
	flags.DurationVar(&o.Duration, "duration", 10*time.Second, "measured time")
	flags.DurationVar(&o.Warmup, "warmup", time.Second, "discarded before it")
	flags.DurationVar(&o.Timeout, "timeout", 300*time.Second, "of a request, from when it was due")
	flags.StringVar(&f.arrivals, "arrivals", string(load.Poisson), "poisson or constant")
	flags.Uint64Var(&o.Seed, "seed", 1, "of the arrivals")
	flags.IntVar(&o.MaxConnections, "max-connections", 0, "bound of an open loop; default 10000")
	flags.StringToStringVar(&o.Headers, "header", nil, "further header fields, Name=value")
	flags.DurationVar(&o.Goodput.TTFT, "goodput-ttft", 0, "bound of a good request")
	flags.DurationVar(&o.Goodput.TPOT, "goodput-tpot", 0, "bound of a good request, a token")
	flags.DurationVar(&o.Goodput.E2EL, "goodput-e2el", 0, "bound of a good request")
	flags.BoolVar(&o.Stream, "stream", false, "ask for streams")
	flags.StringVar(&f.prompts, "prompts", "", "file of prompts, JSON lines with prompt, messages or requests; default: made-up text")
	flags.IntVar(&f.sizeBytes, "size", 4096, "bytes of a request body that is made up")
	flags.BoolVar(&f.get, "get", false, "send GET without a body")
	flags.StringVar(&f.model, "model", "", "default: the first that /v1/models names")
	flags.IntVar(&f.outputTokens, "output-tokens", 0, "max_tokens of every request; 0 leaves it to the file or the engine")
	flags.BoolVar(&f.ignoreEOS, "ignore-eos", false, "let engines generate to the last token")
	flags.StringVar(&f.format, "format", "json", "json, or vllm: the names that vllm bench serve uses")
	return cmd
}

func (f *loadFlags) check() error {
	var problems []error
	if f.format != "json" && f.format != "vllm" {
		problems = append(problems, fmt.Errorf("check format %q: use json or vllm", f.format))
	}
	if f.outputTokens < 0 {
		problems = append(problems, fmt.Errorf("check output tokens %d: use 1 or more, or 0", f.outputTokens))
	}
	if f.get && f.prompts != "" {
		problems = append(problems, errors.New("check --get: a GET has no prompts; leave one of them out"))
	}
	return errors.Join(problems...)
}

// measureLoad runs the load and writes one line to out, a summary to log.
func measureLoad(ctx context.Context, o load.Options, f loadFlags, out, log io.Writer) error {
	if !f.get {
		if f.model == "" {
			var err error
			if f.model, err = firstModel(ctx, o.URL); err != nil {
				return fmt.Errorf("%w; name one with --model", err)
			}
		}
		b := load.Bodies{Model: f.model, Stream: o.Stream, OutputTokens: f.outputTokens, IgnoreEOS: f.ignoreEOS}
		var err error
		if f.prompts != "" {
			o.Bodies, err = b.FromFile(f.prompts)
		} else {
			o.Bodies, err = b.MadeUp(f.sizeBytes)
		}
		if err != nil {
			return err
		}
	}
	report, err := load.Run(ctx, o)
	if report == nil {
		return err
	}
	var line any = report
	if f.format == "vllm" {
		line = report.VLLM(f.model)
	}
	if encodeErr := json.NewEncoder(out).Encode(line); encodeErr != nil {
		return fmt.Errorf("write report: %w", encodeErr)
	}
	if summaryErr := report.WriteSummary(log); summaryErr != nil {
		return fmt.Errorf("write summary: %w", summaryErr)
	}
	return err
}

// firstModel asks the server for a model's name.
func firstModel(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("check URL: %w", err)
	}
	u.Path, u.RawQuery = "/v1/models", ""
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", fmt.Errorf("ask for models: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask for models: %w", err)
	}
	defer res.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&list); err != nil || len(list.Data) == 0 {
		return "", fmt.Errorf("ask %s for models: status %d, no list of models", u, res.StatusCode)
	}
	return list.Data[0].ID, nil
}
