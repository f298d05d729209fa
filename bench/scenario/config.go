package scenario

import (
	"errors"
	"fmt"

	"warmpath/bench/virtual"
	"warmpath/bench/workload"
	"warmpath/dataplane/policy"
	"warmpath/scaler"
)

// Target is what first tokens are held to.
type Target struct {
	TTFTSeconds float64 // default 1
	OwnFactor   float64 // of what the prefill of the whole prompt takes; 0 = the target is the same for all
	Attainment  float64 // the share that shall attain it; default 0.99
}

// Offer is one way to get nodes, with what may go wrong with it.
type Offer struct {
	scaler.Offer
	StartUpSigma  float64 // of the logarithm of start-up times, whose median is Offer.StartUpSeconds
	CapacityShare float64 // of creations that are refused for want of capacity
	Outages       []Outage
	Prices        []Price // by time
}

// Outage is a time in which an offer gives no nodes.
type Outage struct {
	FromNs, ToNs int64
	Hangs        bool // creations are not answered; else they are refused
}

// Price is what a node costs from a time on.
type Price struct {
	FromNs  int64
	PerHour float64
}

// Kill is the death of nodes, with all that is on them.
type Kill struct {
	AtNs  int64
	Share float64 // of the ready nodes, at least one; by chance
	Offer string  // of this offer only, all of them if Share is 0; "" = of any
}

// Signs says how good the signals are. The zero value is what a router has: gauges of
// up to MetricsSeconds' age, everything known.
type Signs struct {
	MetricsSeconds float64 // how often engines are asked for gauges; default 1
	Noise          float64 // sigma of the logarithm by which gauges are off
	Unknown        float64 // share of gauges that are not known
	Missing        float64 // share of Signals that cannot be believed at all
	Stale          float64 // share of the nodes whose gauges stay as they are, for a minute each time; below 1
}

// Config is one run, but for the law. The zero value of a field means its default.
type Config struct {
	Load   *workload.Workload
	Seed   uint64
	Target Target
	Engine virtual.Config

	Policy string // name of the router's policy; default policy.Default
	Params policy.Params

	Offers   []Offer // default: one, "gpu", of 2 an hour and 180 s
	MaxNodes int     // ready and starting; default 64
	// StartNodes are ready at the start, with empty caches; default: what the requests
	// of the first minutes take at 70 % of what nodes can do; -1: none.
	StartNodes int

	Kills       []Kill
	Signs       Signs
	MostHeld    int     // requests that wait while no node can take them; default 2000 …
	HeldSeconds float64 // … and for how long; default 600

	// Foreseen are how many nodes there shall be, ready, from each time on, by time. If it
	// is set no law is asked: nodes come to the second, as if asked for exactly their
	// start-up time before, and those that die are replaced at once.
	Foreseen []Wanted
	// Series asks for Report.Points.
	Series bool
}

// Wanted is how many nodes there shall be from a time on.
type Wanted struct {
	FromNs int64
	Nodes  int
}

// WithDefaults fills what was left zero.
func (c Config) WithDefaults() Config {
	c.Engine = c.Engine.WithDefaults()
	for _, f := range []struct {
		to   *float64
		from float64
	}{
		{&c.Target.TTFTSeconds, 1},
		{&c.Target.Attainment, .99},
		{&c.Signs.MetricsSeconds, 1},
		{&c.HeldSeconds, 600},
	} {
		if *f.to == 0 {
			*f.to = f.from
		}
	}
	if c.Policy == "" {
		c.Policy = policy.Default
	}
	if c.Policy == policy.Default && c.Params == nil { // the router's default is a context term that is there
		doubling := c.Engine.ContextTokens
		if doubling == 0 {
			doubling = 1e9
		}
		c.Params = policy.Params{"context_doubling": doubling}
	}
	if len(c.Offers) == 0 {
		c.Offers = []Offer{{Offer: scaler.Offer{Name: "gpu", Provider: "sim", Region: "one", GPU: "sim", PricePerHour: 2, StartUpSeconds: 180}}}
	}
	if c.MaxNodes == 0 {
		c.MaxNodes = 64
	}
	if c.MostHeld == 0 {
		c.MostHeld = 2000
	}
	if c.StartNodes == 0 && c.Load != nil {
		c.StartNodes = startNodes(&c)
	}
	return c
}

// startNodes is what the requests of the first five minutes take, by their own
// prefill and their share of full batches, at 70 % of that.
func startNodes(c *Config) int {
	const span = 300e9
	work := 0.0
	perToken := (c.Engine.DecodeBaseMs/float64(c.Engine.MaxRunning) + c.Engine.DecodePerRequestMs) / 1e3
	seen := map[uint32]bool{}
	for i := range c.Load.Requests {
		r := &c.Load.Requests[i]
		if r.AtNs >= span {
			break
		}
		behind := 0
		for b := 0; b < len(r.Contents) && b < int(r.Prompt-1)/workload.BlockTokens; b++ {
			if seen[r.Contents[b]] && behind == b*workload.BlockTokens {
				behind += workload.BlockTokens
			}
			seen[r.Contents[b]] = true
		}
		work += float64(c.Engine.PrefillNs(behind, int(r.Prompt)-behind))/1e9 + float64(r.Output)*perToken
	}
	return min(c.MaxNodes, 1+int(work/(min(span, float64(c.Load.SpanNs))/1e9)/.7))
}

// Validate reports all that is wrong with a configuration whose defaults are filled
// in.
func (c *Config) Validate() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	if c.Load == nil || len(c.Load.Requests) == 0 {
		return errors.New("check scenario: it has no requests")
	}
	longest := c.Load.Longest()
	bad(longest <= c.Engine.Blocks()*c.Engine.BlockTokens, "check scenario: a request has %d tokens, a node's cache %d: give it more", longest, c.Engine.CacheTokens)
	bad(c.Engine.BlockTokens == workload.BlockTokens, "check scenario: blocks of %d tokens: contents are of %d", c.Engine.BlockTokens, workload.BlockTokens)
	bad(c.MaxNodes >= 1 && c.MaxNodes <= 512, "check scenario: at most %d nodes: use 1 to 512", c.MaxNodes)
	bad(c.StartNodes >= -1 && c.StartNodes <= c.MaxNodes, "check scenario: %d nodes at the start: use -1 for none, up to the most, %d", c.StartNodes, c.MaxNodes)
	bad(c.Signs.Stale >= 0 && c.Signs.Stale < 1, "check scenario: share %v of stale gauges: use 0 or more and less than 1", c.Signs.Stale)
	for i := range c.Offers {
		bad(c.Offers[i].Name != "" && c.Offers[i].StartUpSeconds >= 0, "check scenario: offer %d needs a name and a start-up time of 0 or more", i+1)
	}
	return errors.Join(errs...)
}

// price is what a node of the offer costs an hour at a time.
func (o *Offer) price(nowNs int64) float64 {
	p := o.PricePerHour
	for _, change := range o.Prices {
		if change.FromNs <= nowNs {
			p = change.PerHour
		}
	}
	return p
}

// cost is what a node costs over a time.
func (o *Offer) cost(fromNs, toNs int64) float64 {
	sum, at := 0.0, fromNs
	for _, change := range o.Prices {
		if change.FromNs > at && change.FromNs < toNs {
			sum += o.price(at) * float64(change.FromNs-at) / 3600e9
			at = change.FromNs
		}
	}
	return sum + o.price(at)*float64(max(0, toNs-at))/3600e9
}

// Later moves what happens to an offer.
func (o *Offer) Later(ns int64) {
	for i := range o.Outages {
		o.Outages[i].FromNs += ns
		o.Outages[i].ToNs += ns
	}
	for i := range o.Prices {
		o.Prices[i].FromNs += ns
	}
}
