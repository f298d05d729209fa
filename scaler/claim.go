package scaler

// ClaimSeconds is how long a Claim lasts that is not made again.
const ClaimSeconds = 15

// TwinSeconds is how long after a Claim another process with the same journal is kept
// out. One that lives claims every second; one that was killed and started again shall
// not wait longer than it must.
const TwinSeconds = 5

// Claim is what a scaler that runs in a process of its own says to each router, every
// second: it scales the nodes of a model there. No other one may meanwhile, for two
// would see the same load and each make nodes for it.
type Claim struct {
	ID      string `json:"id"`      // of the scaler's journal; the same after a restart
	Process string `json:"process"` // of the process; another one after a restart
	Fleet   string `json:"fleet"`   // the mark of its nodes at providers
	Model   string `json:"model"`   // "" = all
	// May says that nodes may come, so that requests wait for them.
	May bool `json:"may"`
	// Ends says that the process ends: others may claim at once. What it said of nodes
	// that may come stays true as long as a Claim lasts, for it may be started again.
	Ends bool `json:"ends,omitempty"`
}

// Conflicts reports whether two scalers cannot both be: they would scale the same
// nodes, or take each other's for orphans.
func (c *Claim) Conflicts(o *Claim) bool {
	if c.ID == o.ID {
		return c.Twins(o)
	}
	return c.Fleet == o.Fleet || c.Model == o.Model || c.Model == "" || o.Model == ""
}

// Twins reports whether two processes have one journal: one was started after the
// other, or the journal was copied.
func (c *Claim) Twins(o *Claim) bool { return c.ID == o.ID && c.Process != o.Process }

// MayCome reports whether nodes may come, so that a request may wait for one: a node
// is on its way or serves, or an offer may be asked for one.
func (s *Status) MayCome() bool {
	for i := range s.Offers {
		if s.Offers[i].Withheld == "" {
			return true
		}
	}
	for i := range s.Nodes {
		if stage := s.Nodes[i].Stage; stage != StageLeaving && stage != StageEnding {
			return true
		}
	}
	return false
}
