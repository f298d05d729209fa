package laws

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"warmpath/bench/scenario"
	"warmpath/bench/workload"
	"warmpath/scaler"
)

// CaseOptions choose what a case is made of. The zero value of a field means its
// default.
type CaseOptions struct {
	Seed         uint64
	Times        int    // of each arrival of a trace; default 20 for azure, 4 for mooncake
	AzureFile    string // azure_2023_conv.csv
	MooncakeFile string // mooncake_conversation.jsonl
	Days         int    // of the diurnal loads, of which the last is measured; default 1
	Peak         float64
	Hours        float64 // cuts the load; 0 = whole
	StartUp      float64 // seconds; default 180
	StartUpSigma float64 // of its logarithm
}

// oneCase is one line of the registry.
type oneCase struct {
	name, about string
	make        func(o *CaseOptions, c *scenario.Config) error
}

var cases = []oneCase{
	{"azure", "arrivals and lengths of Azure's conversations, an hour", func(o *CaseOptions, c *scenario.Config) (err error) {
		c.Load, err = workload.Azure(o.AzureFile, or(o.Times, 20))
		return err
	}},
	{"mooncake", "Mooncake's conversations, an hour, long prompts that share", func(o *CaseOptions, c *scenario.Config) (err error) {
		c.Load, err = workload.Mooncake(o.MooncakeFile, or(o.Times, 4))
		c.Target.OwnFactor = 2
		return err
	}},
	{"diurnal", "a day whose peak is six times its trough", day(nil)},
	{"diurnal_noise", "the same, multiplied by noise that lasts minutes", day(func(d *workload.Day, _ *CaseOptions, _ *scenario.Config) {
		d.NoiseSigma, d.NoiseSeconds = .2, 600
	})},
	{"constant_noise", "twelve hours of the same load, multiplied by noise", day(func(d *workload.Day, _ *CaseOptions, _ *scenario.Config) {
		d.Hours, d.PeakToTrough, d.NoiseSigma, d.NoiseSeconds = 12, 1, .15, 120
		d.PeakPerSecond *= .6
	})},
	{"step", "two hours of the same load, that doubles after one", day(func(d *workload.Day, _ *CaseOptions, _ *scenario.Config) {
		d.Hours, d.PeakToTrough, d.Changes = 2, 1, []workload.Change{{Name: "step", From: 1, By: 2}}
		d.PeakPerSecond *= .5
	})},
	{"burst", "two hours of the same load, three times as much for three minutes", day(func(d *workload.Day, _ *CaseOptions, _ *scenario.Config) {
		d.Hours, d.PeakToTrough, d.Changes = 2, 1, []workload.Change{{Name: "burst", From: 1, To: 1.05, By: 3}}
		d.PeakPerSecond *= .5
	})},
	{"failures", "a day on which twelve nodes die, and once a third of all", day(func(d *workload.Day, o *CaseOptions, c *scenario.Config) {
		r := rand.New(rand.NewPCG(o.Seed, 0xdead))
		for i := range 12 {
			c.Kills = append(c.Kills, scenario.Kill{AtNs: int64((float64(2*i) + 2*r.Float64()) * 3600e9), Share: 1e-9})
		}
		c.Kills = append(c.Kills, scenario.Kill{AtNs: 14 * 3600e9, Share: 1. / 3})
	})},
	{"outage", "a day on which the cheaper of two offers refuses for two hours of the rise", day(twoOffers(false, true))},
	{"hang", "a day on which the cheaper of two offers does not answer for two hours of the rise", day(twoOffers(true, true))},
	{"price", "a day on which the cheaper of two offers is the dearer from noon to six", day(twoOffers(false, false))},
}

func or(v, otherwise int) int {
	if v == 0 {
		return otherwise
	}
	return v
}

// day makes a case of a synthetic day that is changed first.
func day(change func(*workload.Day, *CaseOptions, *scenario.Config)) func(*CaseOptions, *scenario.Config) error {
	return func(o *CaseOptions, c *scenario.Config) error {
		d := workload.NewDay("diurnal", o.Seed)
		if o.Peak > 0 {
			d.PeakPerSecond = o.Peak
		}
		if change != nil {
			change(&d, o, c)
		}
		if o.Days > 1 && d.Hours == 24 {
			d.MeasureHours = 24 * float64(o.Days-1)
			d.Hours *= float64(o.Days)
			for i := range c.Kills {
				c.Kills[i].AtNs += int64(d.MeasureHours * 3600e9)
			}
			for i := range c.Offers {
				c.Offers[i].Later(int64(d.MeasureHours * 3600e9))
			}
		}
		if o.Hours > 0 {
			d.Hours = min(d.Hours, o.Hours)
		}
		c.Load = d.Make()
		return nil
	}
}

// twoOffers are a cheap and a dear one, and what becomes of the cheap.
func twoOffers(hangs, outage bool) func(*workload.Day, *CaseOptions, *scenario.Config) {
	return func(_ *workload.Day, _ *CaseOptions, c *scenario.Config) {
		cheap := scenario.Offer{Offer: scaler.Offer{Name: "cheap", Provider: "a", Region: "one", GPU: "sim", PricePerHour: 2}}
		dear := scenario.Offer{Offer: scaler.Offer{Name: "dear", Provider: "b", Region: "two", GPU: "sim", PricePerHour: 2.6}}
		if outage {
			cheap.Outages = []scenario.Outage{{FromNs: 8 * 3600e9, ToNs: 10 * 3600e9, Hangs: hangs}}
		} else {
			cheap.Prices = []scenario.Price{{FromNs: 12 * 3600e9, PerHour: 4}, {FromNs: 18 * 3600e9, PerHour: 2}}
		}
		c.Offers = []scenario.Offer{cheap, dear}
	}
}

// CaseNames returns the names of all cases.
func CaseNames() []string {
	names := make([]string, len(cases))
	for i := range cases {
		names[i] = cases[i].name
	}
	return names
}

// CaseTable says what each case is, a line each.
func CaseTable() string {
	var b strings.Builder
	for _, c := range cases {
		fmt.Fprintf(&b, "  %-15s %s\n", c.name, c.about)
	}
	return b.String()
}

// Case makes the named case.
func Case(name string, o CaseOptions) (scenario.Config, error) {
	for i := range cases {
		if cases[i].name != name {
			continue
		}
		c := scenario.Config{Seed: o.Seed}
		if err := cases[i].make(&o, &c); err != nil {
			return c, err
		}
		c.Load.Name = name
		c.Load = c.Load.Until(int64(o.Hours * 3600e9))
		if len(c.Offers) == 0 {
			c.Offers = c.WithDefaults().Offers
		}
		for i := range c.Offers {
			if o.StartUp > 0 {
				c.Offers[i].StartUpSeconds = o.StartUp
			} else if c.Offers[i].StartUpSeconds == 0 {
				c.Offers[i].StartUpSeconds = 180
			}
			c.Offers[i].StartUpSigma = o.StartUpSigma
		}
		return c, nil
	}
	return scenario.Config{}, fmt.Errorf("find case %q: no such case; use one of %s", name, strings.Join(CaseNames(), ", "))
}
