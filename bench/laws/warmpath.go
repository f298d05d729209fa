package laws

import (
	"warmpath/bench/scenario"
	"warmpath/scaler"
)

// planned is the product's own law. It has no knob: it holds itself to the
// attainment that is asked for.
type planned struct {
	config  scaler.Config
	history scaler.History
}

// newPlanned gives the law what a user would write into the configuration: the
// target, the offers, and the defaults.
func newPlanned(_ float64, s scenario.Setup) scenario.Law {
	c := scaler.DefaultConfig()
	c.Max, c.TargetTTFTSeconds, c.Attainment = s.MaxNodes, s.Target.TTFTSeconds, s.Target.Attainment
	c.TargetSlowdown = s.Target.OwnFactor
	c.Offers, c.StartUpSeconds = s.Offers, s.StartUpSeconds
	return &planned{config: c, history: scaler.NewHistory()}
}

// Name implements scenario.Law.
func (p *planned) Name() string { return "warmpath" }

// IntervalSeconds implements scenario.Law.
func (p *planned) IntervalSeconds() float64 { return p.config.IntervalSeconds }

// Decide implements scenario.Law.
func (p *planned) Decide(s *scaler.Signals) scenario.Orders {
	var d scaler.Decision
	d, p.history = scaler.Plan(*s, p.history, &p.config)
	return scenario.Orders{Start: d.Start, Drain: d.Drain, Undrain: d.Undrain}
}
