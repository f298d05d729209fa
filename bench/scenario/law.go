package scenario

import "warmpath/scaler"

// Law says how many nodes there shall be. It is asked again and again, by one
// goroutine, and may remember what it saw.
type Law interface {
	// Name says which law it is, with its parameters.
	Name() string
	// IntervalSeconds is how often it is asked.
	IntervalSeconds() float64
	// Decide is given what is known, which it must neither keep nor change, and says what
	// to do about it.
	Decide(s *scaler.Signals) Orders
}

// Orders are what a law wants done. The world does as much of it as it can; what
// could not be done is not remembered.
type Orders struct {
	// Start asks for nodes. An offer of "" is the cheapest that gives any.
	Start []scaler.Start
	// Drain has nodes take nothing new and end once they are empty; those that are
	// starting end at once.
	Drain []string
	// Undrain has draining nodes serve again.
	Undrain []string
	// Fewer drains so many nodes more, of the world's choice: those that are starting,
	// the youngest first, then those with the fewest requests in flight.
	Fewer int
}

// Setup is what a law may know beforehand.
type Setup struct {
	Offers         []scaler.Offer
	Target         Target
	MaxNodes       int
	MostRunning    int     // requests that a node works on at once
	StartUpSeconds float64 // of the slowest offer
}

// Setup returns what a law may know of the run.
func (c *Config) Setup() Setup {
	s := Setup{Target: c.Target, MaxNodes: c.MaxNodes, MostRunning: c.Engine.MaxRunning}
	for i := range c.Offers {
		s.Offers = append(s.Offers, c.Offers[i].Offer)
		s.StartUpSeconds = max(s.StartUpSeconds, c.Offers[i].StartUpSeconds)
	}
	return s
}
