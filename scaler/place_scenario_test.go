package scaler

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmpath/scenariotest"
)

// TestPlaceScenarios runs testdata/place*.txt. A case begins with "place N"; its lines
// are of the configuration and of what is known:
//
//	budget 5 · max_latency 50ms · spread
//	offer NAME price=1 latency=5ms region=r1 quota=2 weight=2
//	nodes OFFER ready|starting|draining|down N     "-" is the offer of nobody's
//	status OFFER withheld=WORDS_JOINED price=2 uncertain=1
func TestPlaceScenarios(t *testing.T) {
	scenariotest.Run(t, "testdata/place*.txt", func(t *testing.T, c scenariotest.Case) string {
		n, err := strconv.Atoi(c.Command()[1])
		m := market{c: DefaultConfig()}
		m.c.Max, m.c.Offers = 100, nil
		for _, line := range c.Lines()[1:] {
			if err == nil {
				err = m.line(strings.Fields(line))
			}
		}
		if err == nil {
			err = m.c.Validate()
		}
		if err != nil {
			t.Fatalf("%s: %v", c.At, err)
		}
		before := spending(&m.s, &m.c)
		starts, unmet := place(float64(n), MostNodes, &m.s, &m.c)
		var out strings.Builder
		cost := before
		for _, s := range starts {
			fmt.Fprintf(&out, "%s: %d\n", s.Offer, s.Count)
			cost += float64(s.Count) * statusOf(&m.s, s.Offer).PricePerHour.Or(m.c.offer(s.Offer).PricePerHour)
		}
		if unmet != "" {
			fmt.Fprintf(&out, "not all: %s\n", unmet)
		}
		fmt.Fprintf(&out, "an hour: %.4g, was %.4g\n", cost, before)
		return out.String()
	})
}

type market struct {
	c Config
	s Signals
}

func (m *market) line(words []string) error {
	v := pairs(words[1:])
	number := func(key string) float64 {
		f, _ := strconv.ParseFloat(v[key], 64)
		return f
	}
	switch words[0] {
	case "budget":
		f, err := strconv.ParseFloat(words[1], 64)
		m.c.BudgetPerHour = f
		return err
	case "max_latency":
		d, err := time.ParseDuration(words[1])
		m.c.MaxLatencySeconds = d.Seconds()
		return err
	case "spread":
		m.c.Spread = true
	case "offer":
		o := Offer{Name: words[1], Region: v["region"], Quota: int(number("quota")), PricePerHour: number("price"), Weight: number("weight")}
		if d, err := time.ParseDuration(v["latency"]); err == nil {
			o.LatencySeconds = d.Seconds()
		}
		m.c.Offers = append(m.c.Offers, o)
	case "nodes":
		n := Node{Offer: strings.TrimPrefix(words[1], "-"), Phase: watchOf("=" + words[2]).Phase}
		count, err := strconv.Atoi(words[3])
		for range count {
			n.Name = fmt.Sprint("n", len(m.s.Nodes))
			m.s.Nodes = append(m.s.Nodes, n)
		}
		return err
	case "status":
		o := OfferStatus{Name: words[1], Withheld: strings.ReplaceAll(v["withheld"], "_", " "), Uncertain: int(number("uncertain"))}
		if _, ok := v["price"]; ok {
			o.PricePerHour = Known(number("price"))
		}
		m.s.Offers = append(m.s.Offers, o)
	default:
		return fmt.Errorf("unknown line %q", words)
	}
	return nil
}

func pairs(words []string) map[string]string {
	all := map[string]string{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		all[key] = value
	}
	return all
}
