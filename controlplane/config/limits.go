package config

import (
	"fmt"
	"math"
)

// reserveDescriptors are for listeners, loops, files, the admin side, probes,
// sentinels and event streams.
const reserveDescriptors = 512

// DescriptorsNeeded is the number of open descriptors that the configured
// connections may need: two a request (client and node), and a reserve.
func (c *Config) DescriptorsNeeded() uint64 {
	return 2*uint64(c.Limits.Connections) + reserveDescriptors
}

// FitLimits returns c with limits.connections lowered to what the hard limit
// of open descriptors (RLIMIT_NOFILE) allows, if the key was left to its
// default; c itself if it fits or was given.
func (c *Config) FitLimits(hard uint64) *Config {
	if c.Limits.ConnectionsGiven || c.DescriptorsNeeded() <= hard || hard < reserveDescriptors+2 {
		return c
	}
	fitted := *c
	fitted.Limits.Connections = int((hard - reserveDescriptors) / 2)
	return &fitted
}

// CheckLimits compares limits.connections with the hard limit of open
// descriptors. It gives no problem if they fit, or if FitLimits can make them.
func (c *Config) CheckLimits(hard uint64) []Problem {
	if c.FitLimits(hard).DescriptorsNeeded() <= hard {
		return nil
	}
	fits := "raise the hard limit (LimitNOFILE= of a systemd unit)"
	if hard >= reserveDescriptors+2 {
		fits = fmt.Sprintf("set limits.connections to at most %d, or ", min(math.MaxInt32, (hard-reserveDescriptors)/2)) + fits
	}
	return []Problem{{
		File: "host", Key: "limits.connections", Value: fmt.Sprint(c.Limits.Connections),
		What:   fmt.Sprintf("needs %d open descriptors, the hard limit is %d", c.DescriptorsNeeded(), hard),
		Remedy: fits,
	}}
}
