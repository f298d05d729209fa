package config

import (
	"slices"

	"warmpath/controlplane/state"
)

// StateSettings are the parts that package state needs. seed is the fleet's
// seed of chain hashes, which the configuration may leave to the router.
func (c *Config) StateSettings(seed uint64) state.Settings {
	s := state.DefaultSettings()
	s.Seed = seed
	s.ProbeIntervalNs = int64(c.Health.Interval)
	s.ProbeIntervalDownNs = int64(min(c.Health.Interval, c.Health.IntervalDown))
	s.ProbeTimeoutNs, s.HealthPath = int64(c.Health.Timeout), c.Health.Path
	s.DownAfter, s.UpAfter = c.Health.DownAfter, c.Health.UpAfter
	s.BreakerFailures, s.BreakerOpenNs = c.Breaker.Failures, int64(c.Breaker.Open)
	s.BreakerProbeNs, s.MaxEjected = int64(c.Breaker.ProbeTimeout), c.Breaker.MaxEjected
	s.SlowP95OverBaseline, s.SlowP99OverBaseline = c.Breaker.SlowP95OverBaseline, c.Breaker.SlowP99OverBaseline
	s.DrainNodeNs = int64(c.Timeouts.DrainNode)
	s.Models = nil
	for _, m := range c.Models {
		s.Models = append(s.Models, state.ModelSpec{Name: m.Name, Aliases: slices.Clone(m.Aliases), Default: m.Default})
	}
	return s
}
