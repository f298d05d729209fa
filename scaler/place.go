package scaler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// choice is an offer under consideration.
type choice struct {
	offer *Offer
	price float64
	left  int // nodes that it may still give
	held  int // nodes that it has given, in its region
}

// place spreads nodes of so much strength together, and no more than most, over the
// offers: the cheapest for what it does first, or by regions in turn. unmet says why there
// are fewer.
func place(strength float64, most int, s *Signals, c *Config) (starts []Start, unmet string) {
	if name := priceless(s, c); name != "" {
		return nil, fmt.Sprintf("what %s costs is not known, as its offer is not configured any more: bring that back under its name, or end the node by hand", name)
	}
	choices, refused := choicesOf(s, c)
	spent := spending(s, c)
	given, placed, found := map[string]int{}, 0, 0.0
	for found < strength && placed < most {
		best := -1
		for i := range choices {
			if choices[i].left > 0 && (best < 0 || better(&choices[i], &choices[best], c.Spread)) {
				best = i
			}
		}
		switch {
		case best < 0 && len(refused) == 0:
			return startsOf(c, given), "all offers have given what they may"
		case best < 0:
			return startsOf(c, given), strings.Join(refused, "; ")
		}
		b := &choices[best]
		if c.BudgetPerHour > 0 && spent+b.price > c.BudgetPerHour+1e-9 {
			refused = append(refused, fmt.Sprintf("one more of %s at %.4g an hour would exceed the budget of %.4g (%.4g are spent)", b.offer.Name, b.price, c.BudgetPerHour, spent))
			b.left = 0
			continue
		}
		given[b.offer.Name]++
		if b.left--; b.left == 0 && b.offer.Quota > 0 {
			refused = append(refused, quotaUsed(b.offer))
		}
		spent += b.price
		placed++
		found += orOne(b.offer.Weight)
		for i := range choices {
			if choices[i].offer.Region == b.offer.Region {
				choices[i].held++
			}
		}
	}
	return startsOf(c, given), ""
}

// better orders offers.
func better(a, b *choice, spread bool) bool {
	if spread && a.held != b.held {
		return a.held < b.held
	}
	return cmp.Or(
		cmp.Compare(a.price/orOne(a.offer.Weight), b.price/orOne(b.offer.Weight)),
		cmp.Compare(a.offer.LatencySeconds, b.offer.LatencySeconds),
		cmp.Compare(a.offer.Name, b.offer.Name),
	) < 0
}

// choicesOf are the offers that may be asked, and why others may not.
func choicesOf(s *Signals, c *Config) (choices []choice, refused []string) {
	held, regions := map[string]int{}, map[string]int{}
	for i := range s.Nodes {
		if o := c.offer(s.Nodes[i].Offer); o != nil {
			held[o.Name]++
			regions[o.Region]++
		}
	}
	for i := range c.Offers {
		o := &c.Offers[i]
		status := statusOf(s, o.Name)
		left := c.Max
		if o.Quota > 0 {
			left = o.Quota - held[o.Name] - status.Uncertain
		}
		switch {
		case status.Withheld != "":
			refused = append(refused, o.Name+": "+status.Withheld)
		case c.MaxLatencySeconds > 0 && o.LatencySeconds > c.MaxLatencySeconds:
			refused = append(refused, fmt.Sprintf("%s: %.0f ms away, max_latency is %.0f ms", o.Name, 1e3*o.LatencySeconds, 1e3*c.MaxLatencySeconds))
		case left <= 0:
			refused = append(refused, quotaUsed(o))
		default:
			choices = append(choices, choice{o, status.PricePerHour.Or(o.PricePerHour), left, regions[o.Region]})
		}
	}
	if len(c.Offers) == 0 {
		refused = append(refused, "no offers are configured")
	}
	return choices, refused
}

func quotaUsed(o *Offer) string { return fmt.Sprintf("%s: its quota of %d is used", o.Name, o.Quota) }

// spending is what the nodes cost an hour, with those that may exist.
func spending(s *Signals, c *Config) float64 {
	sum := 0.0
	for i := range s.Nodes {
		if o := c.offer(s.Nodes[i].Offer); o != nil {
			sum += statusOf(s, o.Name).PricePerHour.Or(o.PricePerHour)
		}
	}
	for i := range s.Offers {
		if o := c.offer(s.Offers[i].Name); o != nil {
			sum += float64(s.Offers[i].Uncertain) * s.Offers[i].PricePerHour.Or(o.PricePerHour)
		}
	}
	return sum
}

// priceless is a node under a budget of which nobody can say what it costs, "" if there is
// none.
func priceless(s *Signals, c *Config) string {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; c.BudgetPerHour > 0 && n.Offer != "" && c.offer(n.Offer) == nil {
			return n.Name
		}
	}
	return ""
}

func statusOf(s *Signals, name string) OfferStatus {
	if i := slices.IndexFunc(s.Offers, func(o OfferStatus) bool { return o.Name == name }); i >= 0 {
		return s.Offers[i]
	}
	return OfferStatus{Name: name}
}

// startsOf is in the order of the configuration.
func startsOf(c *Config, given map[string]int) (starts []Start) {
	for i := range c.Offers {
		if n := given[c.Offers[i].Name]; n > 0 {
			starts = append(starts, Start{c.Offers[i].Name, n})
		}
	}
	return starts
}
