package guard

import (
	"errors"
	"fmt"
	"net/netip"

	"warmpath/bpf"
)

// Settings are what a configuration says of the guard.
type Settings struct {
	Off       string // why there is to be none, "" = there is one
	Require   bool   // the router does not start without it
	Interface string
	Mode      string   // auto, native or generic
	Ports     []uint16 // none = the port that clients connect to
	DenyFile  string
	AllowFile string
	Limits    Limits
	Shed      Shed
	Pin       string // folder in a bpffs; "" = not pinned
}

// Limits bound new connections a second; 0 = no bound.
type Limits struct {
	SynPerSource int `json:"syn_per_source"`
	SynBurst     int `json:"syn_burst"` // of a source at once; 0 = twice those of a second
	SynPerPort   int `json:"syn_per_port"`
}

const maxPerSecond = 10_000_000

func (l Limits) check() error {
	for name, n := range map[string]int{"syn_per_source": l.SynPerSource, "syn_burst": l.SynBurst, "syn_per_port": l.SynPerPort} {
		if n < 0 || n > maxPerSecond {
			return fmt.Errorf("%s = %d is out of range; use 0 to %d", name, n, maxPerSecond)
		}
	}
	return nil
}

// Shed is which share of new connections to drop: by the law of Share, or fixed.
type Shed struct {
	Auto  bool
	Share float64
}

// Plan is what settings come to, its files read.
type Plan struct {
	settings Settings
	mode     bpf.GuardMode
	lists    bpf.Lists
}

// Read reads the files that settings name, and checks them.
func Read(s Settings) (*Plan, error) {
	p := &Plan{settings: s}
	if s.Off != "" {
		return p, nil
	}
	var err, denyErr, allowErr error
	if p.mode, err = bpf.ParseGuardMode(s.Mode); err == nil {
		err = s.Limits.check()
	}
	if s.DenyFile != "" {
		p.lists.Deny, denyErr = ReadList(s.DenyFile)
	}
	if s.AllowFile != "" {
		p.lists.Allow, allowErr = ReadList(s.AllowFile)
	}
	if err = errors.Join(err, denyErr, allowErr); err != nil {
		return nil, err
	}
	return p, nil
}

// ListName names one of the two lists.
type ListName string

// The lists.
const (
	Deny  ListName = "deny"
	Allow ListName = "allow"
)

// ListChange says what to do with a list's entries.
type ListChange string

// Changes of a list.
const (
	Replace ListChange = "replace"
	Add     ListChange = "add"
	Remove  ListChange = "remove"
)

// changed is a list after a change, without entries that are there twice.
func (c ListChange) changed(list, by []netip.Prefix) []netip.Prefix {
	in := map[netip.Prefix]bool{}
	for _, p := range by {
		in[p] = true
	}
	out := make([]netip.Prefix, 0, len(list)+len(by))
	if c != Replace {
		for _, p := range list {
			if !in[p] {
				out = append(out, p)
			}
		}
	}
	if c != Remove {
		for _, p := range by {
			if in[p] { // its first time
				in[p] = false
				out = append(out, p)
			}
		}
	}
	return out
}
