package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/laws"
	"warmpath/bench/scaleplot"
	"warmpath/bench/scenario"
)

// scaleOptions are the flags of the verb scale.
type scaleOptions struct {
	scalers  []string
	trace    string
	tune     bool
	verbose  bool
	parallel int
	plot     string // file
	series   string // folder
	sloTTFT  time.Duration
	startUp  time.Duration
	own      float64
	attained float64
	cfg      scenario.Config
	cases    laws.CaseOptions
}

func newScaleCommand() *cobra.Command {
	var o scaleOptions
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Compare scaling laws on a simulated fleet in virtual time",
		Long: "Compare scaling laws on a simulated fleet in virtual time.\n\nCases:\n" + laws.CaseTable() +
			"\nScaling laws: " + strings.Join(laws.Names(), ", ") + ".\nOf a family the law speaks that needs the fewest GPU-hours.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.trace, "trace", "diurnal", "case, or a trace: a .csv of Azure's, a .jsonl of Mooncake's")
	f.StringVar(&o.cases.AzureFile, "azure-file", "azure_2023_conv.csv", "trace of the case azure")
	f.StringVar(&o.cases.MooncakeFile, "mooncake-file", "mooncake_conversation.jsonl", "trace of the case mooncake")
	f.StringSliceVar(&o.scalers, "scaler", []string{"hpa", "keda", "oracle"}, "scaling laws, or families of them")
	f.BoolVar(&o.tune, "tune", false, "run each law at the cheapest setting that attains the target")
	f.BoolVar(&o.verbose, "verbose", false, "print every run of the tuning")
	f.IntVar(&o.parallel, "parallel", 1, "laws that are run at once")
	f.StringVar(&o.plot, "plot", "", "picture to write, a .png")
	f.StringVar(&o.series, "series", "", "folder for the fleet of each law over time, as CSV")
	f.IntVar(&o.cases.Times, "times", 0, "requests made of each of a trace (default 20 for azure, 4 for mooncake)")
	f.Uint64Var(&o.cases.Seed, "seed", 1, "of all that is drawn")
	f.IntVar(&o.cases.Days, "days", 1, "of a diurnal load; the last is measured")
	f.Float64Var(&o.cases.Hours, "hours", 0, "of the load; 0 = all")
	f.Float64Var(&o.cases.Peak, "peak", 0, "requests a second at the peak of a synthetic load (default 50)")
	f.DurationVar(&o.startUp, "start-up", 180*time.Second, "of a node")
	f.Float64Var(&o.cases.StartUpSigma, "start-up-sigma", 0, "by which start-up times differ: sigma of their logarithm")
	f.DurationVar(&o.sloTTFT, "slo-ttft", time.Second, "target of first tokens")
	f.Float64Var(&o.own, "slo-own", -1, "target of long prompts: so many times their own prefill, if that is more than --slo-ttft (default 2 for mooncake, else 0)")
	f.Float64Var(&o.attained, "attainment", .99, "share of first tokens that shall attain the target")
	f.StringVar(&o.cfg.Policy, "policy", "", "of the router (default its own default)")
	f.IntVar(&o.cfg.MaxNodes, "max-nodes", 64, "ready and starting")
	f.IntVar(&o.cfg.StartNodes, "start-nodes", 0, "ready at the start; 0 = what the first minutes take, -1 = none")
	f.Float64Var(&o.cfg.Engine.ContextTokens, "context-tokens", 0, "context at which prefill of a token takes twice as long; 0 = none")
	f.IntVar(&o.cfg.Engine.CacheTokens, "cache-tokens", 600_000, "of a node")
	f.Float64Var(&o.cfg.Signs.Noise, "noise", 0, "by which gauges are off: sigma of their logarithm")
	f.Float64Var(&o.cfg.Signs.Unknown, "unknown", 0, "share of gauges that are not known")
	f.Float64Var(&o.cfg.Signs.Missing, "missing", 0, "share of the signals that are missing as a whole")
	f.Float64Var(&o.cfg.Signs.Stale, "stale", 0, "share of nodes whose gauges stay as they are, a minute each time")
	f.Float64Var(&o.cfg.Signs.MetricsSeconds, "metrics-seconds", 1, "between two readings of an engine's gauges")
	return cmd
}

func (o *scaleOptions) run(ctx context.Context, out io.Writer) error {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	families := make([][]laws.Spec, len(o.scalers))
	for i, name := range o.scalers {
		if families[i], err = laws.Find(name, cfg.MaxNodes); err != nil {
			return err
		}
	}
	cfg.Series = o.plot != "" || o.series != ""
	var mu sync.Mutex
	enc := json.NewEncoder(out)
	compare := laws.Comparison{Tune: o.tune, Parallel: o.parallel}
	if o.verbose {
		compare.Progress = func(r *scenario.Report) {
			mu.Lock()
			defer mu.Unlock()
			_ = enc.Encode(r) // if it fails, so will the last
		}
	}
	best, err := laws.Compare(ctx, families, cfg, compare)
	if err != nil {
		return err
	}
	reports := make([]*scenario.Report, len(best))
	for i, t := range best {
		reports[i] = t.Report
		reports[i].Commit = version
		if err := enc.Encode(t.Report); err != nil {
			return err
		}
	}
	return o.files(reports, best)
}

// files writes the picture and the series of the laws, as far as they are asked for.
func (o *scaleOptions) files(reports []*scenario.Report, best []*laws.Tuned) error {
	if o.plot != "" {
		if err := scaleplot.Write(o.plot, reports); err != nil {
			return err
		}
	}
	if o.series == "" {
		return nil
	}
	for i, r := range reports {
		if err := writeSeries(filepath.Join(o.series, r.Workload+"_"+best[i].Spec.Name+".csv"), r); err != nil {
			return err
		}
	}
	return nil
}

func writeSeries(file string, r *scenario.Report) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.WriteSeries(f)
}

// config is the case with what the flags say.
func (o *scaleOptions) config() (scenario.Config, error) {
	switch filepath.Ext(o.trace) {
	case ".csv":
		o.cases.AzureFile, o.trace = o.trace, "azure"
	case ".jsonl":
		o.cases.MooncakeFile, o.trace = o.trace, "mooncake"
	}
	o.cases.StartUp = o.startUp.Seconds()
	cfg, err := laws.Case(o.trace, o.cases)
	if err != nil {
		return cfg, err
	}
	cfg.Target.TTFTSeconds, cfg.Target.Attainment = o.sloTTFT.Seconds(), o.attained
	if o.own >= 0 {
		cfg.Target.OwnFactor = o.own
	}
	cfg.Policy, cfg.MaxNodes, cfg.StartNodes = o.cfg.Policy, o.cfg.MaxNodes, o.cfg.StartNodes
	cfg.Engine, cfg.Signs = o.cfg.Engine, o.cfg.Signs
	return cfg, nil
}
