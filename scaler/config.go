package scaler

import (
	"errors"
	"fmt"
	"math"
)

// Bounds of a Config.
const (
	MostNodes  = 1024 // of one pool
	MostOffers = 64
)

// Config says what is asked for: of one pool of nodes that are alike, those that
// serve one model. It is immutable once passed in. See DefaultConfig.
type Config struct {
	IntervalSeconds float64 // between two calls of Plan
	Min, Max        int     // nodes; Min 0 = scale to zero

	TargetTTFTSeconds float64 // of first tokens, the share …
	Attainment        float64 // … that shall come within it, such as 0.99
	// TargetSlowdown lets a first token come within so many times what its prompt takes on
	// an idle node, if that is longer than TargetTTFTSeconds; 0 = the target is the same for all.
	TargetSlowdown float64
	Triggers       Triggers

	// StabiliseUpSeconds and StabiliseDownSeconds are how long more, or fewer, nodes must
	// be wanted without a break before they are asked for, or given back.
	StabiliseUpSeconds   float64
	StabiliseDownSeconds float64
	CoolDownSeconds      float64 // after nodes were asked for, before any is given back
	StepUp, StepDown     int     // most nodes in one decision; 0 = any number
	RecoverySeconds      float64 // within it, once new nodes serve, first tokens shall come in time again
	IdleSeconds          float64 // without a request before the last node goes; needs Min 0
	ReplaceDownSeconds   float64 // a node that is down for so long is given back

	BudgetPerHour     float64 // of all nodes together; 0 = no bound
	MaxLatencySeconds float64 // of an offer, to the clients; 0 = no bound
	Spread            bool    // over offers' regions; else the cheapest first
	StartUpSeconds    float64 // of an offer that does not say and was not measured

	// PrefillTokensPerSecond is what a node is taken for until one was measured; 0 = then
	// nothing is predicted.
	PrefillTokensPerSecond float64
	Offers                 []Offer
}

// Triggers are thresholds that ask for one step more, or forbid one less, whatever
// is predicted. 0 turns one off.
type Triggers struct {
	QueueDepth     float64 // requests that wait in an engine, mean over the ready nodes: more → up
	LowQueueDepth  float64 // down only below it
	HitRatio       float64 // share of prompt tokens that were cached: less → up
	TTFTSeconds    float64 // p99: more → up
	KVUse          float64 // mean share of the KV caches in use by running requests: more → up
	LowUtilisation float64 // predicted after it: down only below it; 0 = as the target allows
}

// Offer is one way to get nodes: a provider, a region and a GPU at a price.
type Offer struct {
	Name           string
	Provider       string
	Region         string
	GPU            string
	Island         string
	PricePerHour   float64 // any currency, the same as BudgetPerHour's
	LatencySeconds float64 // to the clients
	StartUpSeconds float64 // until measured; 0 = Config.StartUpSeconds
	Quota          int     // nodes; 0 = no bound but Max
	Weight         float64 // speed of its nodes against the others'; 0 = 1.0
}

// DefaultConfig is a Config without offers.
func DefaultConfig() Config {
	return Config{
		IntervalSeconds: 10, Min: 1, Max: 16,
		TargetTTFTSeconds: 1, Attainment: 0.99,
		Triggers:           Triggers{QueueDepth: 8, LowQueueDepth: 2, KVUse: 0.95},
		StabiliseUpSeconds: 0, StabiliseDownSeconds: 180, CoolDownSeconds: 180,
		RecoverySeconds: 60, IdleSeconds: 600, ReplaceDownSeconds: 120, StartUpSeconds: 180,
	}
}

// Validate reports all that is wrong with a Config, in the names of its fields.
func (c *Config) Validate() error {
	var errs []error
	bad := func(field string, value any, remedy string) {
		errs = append(errs, fmt.Errorf("%s is %v: %s", field, value, remedy))
	}
	positive := func(field string, v float64) {
		if !(v > 0) || math.IsInf(v, 0) {
			bad(field, v, "must be above 0")
		}
	}
	positive("interval", c.IntervalSeconds)
	positive("target_ttft", c.TargetTTFTSeconds)
	positive("start_up", c.StartUpSeconds)
	positive("recovery", c.RecoverySeconds)
	switch {
	case c.Min < 0:
		bad("min", c.Min, "use 0 or more")
	case c.Max < 1 || c.Max > MostNodes:
		bad("max", c.Max, fmt.Sprintf("use 1 to %d", MostNodes))
	case c.Min > c.Max:
		bad("min", c.Min, fmt.Sprintf("max is %d: lower one or raise the other", c.Max))
	}
	if !(c.Attainment > 0 && c.Attainment < 1) {
		bad("attainment", c.Attainment, "use a share above 0 and below 1, such as 0.99")
	}
	for _, f := range []struct {
		field string
		value float64
	}{
		{"target_slowdown", c.TargetSlowdown},
		{"stabilise_up", c.StabiliseUpSeconds},
		{"stabilise_down", c.StabiliseDownSeconds},
		{"cool_down", c.CoolDownSeconds},
		{"idle", c.IdleSeconds},
		{"replace_down", c.ReplaceDownSeconds},
		{"budget", c.BudgetPerHour},
		{"max_latency", c.MaxLatencySeconds},
		{"prefill_tokens_per_second", c.PrefillTokensPerSecond},
	} {
		if !(f.value >= 0) || math.IsInf(f.value, 0) {
			bad(f.field, f.value, "must not be negative")
		}
	}
	if t := &c.Triggers; t.LowQueueDepth > t.QueueDepth && t.QueueDepth > 0 {
		bad("triggers.low_queue", t.LowQueueDepth, fmt.Sprintf("triggers.queue is %v: it must not lie below", t.QueueDepth))
	}
	return errors.Join(append(errs, c.validateOffers()...)...)
}

func (c *Config) validateOffers() (errs []error) {
	if len(c.Offers) > MostOffers {
		errs = append(errs, fmt.Errorf("%d offers: use at most %d", len(c.Offers), MostOffers))
	}
	seen := map[string]bool{}
	for i := range c.Offers {
		o := &c.Offers[i]
		switch {
		case o.Name == "":
			errs = append(errs, fmt.Errorf("offer %d has no name: give it one", i+1))
		case seen[o.Name]:
			errs = append(errs, fmt.Errorf("offer %q stands twice: rename one", o.Name))
		case !(o.PricePerHour >= 0), !(o.LatencySeconds >= 0), !(o.StartUpSeconds >= 0), !(o.Weight >= 0), o.Quota < 0:
			errs = append(errs, fmt.Errorf("offer %q: price, latency, start_up, weight and quota must not be negative", o.Name))
		}
		seen[o.Name] = true
	}
	return errs
}

// offer returns the named offer, nil if there is none.
func (c *Config) offer(name string) *Offer {
	for i := range c.Offers {
		if c.Offers[i].Name == name {
			return &c.Offers[i]
		}
	}
	return nil
}

// goal is when first tokens are in time.
func (c *Config) goal() goal { return goal{c.TargetTTFTSeconds, c.TargetSlowdown} }

func orOne(weight float64) float64 {
	if weight <= 0 {
		return 1
	}
	return weight
}
