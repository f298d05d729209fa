package state

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a Spec.
const (
	MaxNameBytes     = 63 // of a node's, an island's and a region's name
	MaxModelBytes    = 256
	MinCapacityClass = 0.001
	MaxCapacityClass = 1000.0
	MostInFlight     = 1000000
)

// Spec is one node as a source names it. The tags are its form in the admin
// API.
type Spec struct {
	Name        string   `json:"name"`                    // see CheckName; unique
	URL         string   `json:"url"`                     // see ParseEndpoint; unique
	Models      []string `json:"models,omitempty"`        // names it serves; empty = ask the engine
	Engine      string   `json:"engine,omitempty"`        // "" or "auto" = find out
	Island      string   `json:"island,omitempty"`        // the set of nodes inside which KV state can be reused
	Region      string   `json:"region,omitempty"`        // where it stands
	Weight      float64  `json:"weight,omitempty"`        // capacity class; 0 = 1.0
	MaxInFlight int      `json:"max_in_flight,omitempty"` // requests; 0 = no cap
	KVEvents    KVEvents `json:"kv_events,omitzero"`      // where the engine's KV-cache events are had
	// HashScheme is what a minimal reporter of this node names prompts by: "" =
	// none, "sha256_prefix", "sglang" or "vllm_cbor". PrefixTokens goes with
	// the first: how many tokens it hashes.
	HashScheme   string `json:"hash_scheme,omitempty"`
	PrefixTokens int    `json:"prefix_tokens,omitempty"`
}

// KVEvents says where an engine publishes its KV-cache events. With neither an
// Endpoint nor Listen there are none.
type KVEvents struct {
	Endpoint string `json:"endpoint,omitempty"` // dialled: tcp://host:port or ipc:///path
	Listen   string `json:"listen,omitempty"`   // bound here, for engines that connect
	Replay   string `json:"replay,omitempty"`   // asked for what was missed
	Topic    string `json:"topic,omitempty"`    // prefix of the messages that are taken
	Ranks    int    `json:"ranks,omitempty"`    // data-parallel ranks, each on the port plus its number; 0 = 1
}

// Configured reports whether there are events at all.
func (k KVEvents) Configured() bool { return k.Endpoint != "" || k.Listen != "" }

// SchemePrefix is the hash scheme that names a prompt by its first tokens.
const SchemePrefix = "sha256_prefix"

// HashSchemes are the values of Spec.HashScheme; "" = no minimal reporter.
var HashSchemes = []string{"", SchemePrefix, "sglang", "vllm_cbor"}

// Bounds of Spec.PrefixTokens: an index entry has at least 16 tokens, so that
// fewer make none, and none longer than a prompt is of use.
const (
	MinPrefixTokens     = 16
	MaxPrefixTokens     = 131072
	DefaultPrefixTokens = 64
)

// MaxRanks bounds the data-parallel ranks of one node.
const MaxRanks = 64

// Ranks is how many data-parallel ranks the node has: each has a cache, and a
// slot, of its own.
func (s Spec) Ranks() int { return max(s.KVEvents.Ranks, 1) }

// Equal reports whether two specs say the same.
func (s Spec) Equal(o Spec) bool {
	return s.Name == o.Name && s.URL == o.URL && slices.Equal(s.Models, o.Models) && s.Engine == o.Engine &&
		s.Island == o.Island && s.Region == o.Region && s.Weight == o.Weight && s.MaxInFlight == o.MaxInFlight &&
		s.KVEvents == o.KVEvents && s.HashScheme == o.HashScheme && s.PrefixTokens == o.PrefixTokens
}

// Validate checks a spec and returns it in canonical form: the URL as
// ParseEndpoint makes it, weight 1 if none is given, no engine for "auto",
// prefix tokens for the scheme that has them, 64 if none are given, and for no
// other. It
// shares nothing with s. The error names node, field, value and remedy. Which
// engines there are is not known here: whoever reads a spec checks that.
func (s Spec) Validate() (Spec, error) {
	if err := CheckName(s.Name); err != nil {
		return Spec{}, fmt.Errorf("node name %q: %w", s.Name, err)
	}
	fail := func(field, value string, err error) (Spec, error) {
		return Spec{}, fmt.Errorf("node %q: %s %s: %w", s.Name, field, value, err)
	}
	end, err := ParseEndpoint(s.URL)
	if err != nil {
		return fail("url", fmt.Sprintf("%q", withoutUser(s.URL)), err)
	}
	s.URL = end.URL
	if s.Weight == 0 {
		s.Weight = 1
	}
	if s.Engine == "auto" {
		s.Engine = ""
	}
	switch {
	case s.HashScheme != SchemePrefix:
		s.PrefixTokens = 0 // it says nothing
	case s.PrefixTokens == 0:
		s.PrefixTokens = DefaultPrefixTokens
	}
	switch {
	case !(s.Weight >= MinCapacityClass && s.Weight <= MaxCapacityClass):
		return fail("weight", fmt.Sprint(s.Weight), fault("out of range", fmt.Sprintf("use %v to %v", MinCapacityClass, MaxCapacityClass)))
	case s.MaxInFlight < 0 || s.MaxInFlight > MostInFlight:
		return fail("max_in_flight", fmt.Sprint(s.MaxInFlight), fault("out of range", fmt.Sprintf("use 0 (no cap) to %d", MostInFlight)))
	case s.KVEvents.Ranks < 0 || s.KVEvents.Ranks > MaxRanks:
		return fail("kv_events.ranks", fmt.Sprint(s.KVEvents.Ranks), fault("out of range", fmt.Sprintf("use 1 to %d", MaxRanks)))
	case s.KVEvents.Endpoint != "" && s.KVEvents.Listen != "":
		return fail("kv_events.listen", fmt.Sprintf("%q", s.KVEvents.Listen), fault("kv_events.endpoint is given too", "dial the engine or listen for it, not both"))
	case !slices.Contains(HashSchemes, s.HashScheme):
		return fail("hash_scheme", fmt.Sprintf("%q", s.HashScheme), fault("no such scheme", "use "+strings.Join(HashSchemes[1:], ", ")))
	case s.HashScheme != "" && s.KVEvents.Configured():
		return fail("hash_scheme", fmt.Sprintf("%q", s.HashScheme), fault("the node's events are followed, so its reports are refused", "remove hash_scheme or kv_events"))
	case s.HashScheme == SchemePrefix && (s.PrefixTokens < MinPrefixTokens || s.PrefixTokens > MaxPrefixTokens):
		return fail("prefix_tokens", fmt.Sprint(s.PrefixTokens), fault("out of range", fmt.Sprintf("use %d to %d", MinPrefixTokens, MaxPrefixTokens)))
	case len(s.Models) > MaxModels:
		return fail("models", fmt.Sprintf("[%d values]", len(s.Models)), fault("too many", fmt.Sprintf("use at most %d", MaxModels)))
	}
	s.Models = slices.Clone(s.Models)
	for i, m := range s.Models {
		err := CheckModel(m)
		if err == nil && slices.Contains(s.Models[:i], m) {
			err = fault("it stands twice", "remove one")
		}
		if err != nil {
			return fail("model", fmt.Sprintf("%q", m), err)
		}
	}
	for _, place := range []struct{ key, value string }{{"island", s.Island}, {"region", s.Region}} {
		if place.value == "" {
			continue
		}
		if err := CheckName(place.value); err != nil {
			return fail(place.key, fmt.Sprintf("%q", place.value), err)
		}
	}
	return s, nil
}

// CheckName checks the name of a node, an island or a region. It stands in
// header values, metric labels and paths of the admin API. The error is a
// *Fault.
func CheckName(name string) error {
	const remedy = "use letters, digits, '.', '_' and '-', a letter or digit first"
	if name == "" {
		return fault("the name is empty", remedy)
	}
	if len(name) > MaxNameBytes {
		return fault(fmt.Sprintf("the name has %d bytes", len(name)), fmt.Sprintf("use at most %d", MaxNameBytes))
	}
	for i, c := range name {
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && (i == 0 || !strings.ContainsRune("._-", c)) {
			return fault(fmt.Sprintf("the name has %q at %d", c, i+1), remedy)
		}
	}
	return nil
}

// CheckModel checks the name of a model as clients send it. The error is a
// *Fault.
func CheckModel(name string) error {
	switch {
	case name == "":
		return fault("the name is empty", "write the name that clients send")
	case len(name) > MaxModelBytes:
		return fault(fmt.Sprintf("the name has %d bytes", len(name)), fmt.Sprintf("use at most %d", MaxModelBytes))
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fault("the name has control characters or is not UTF-8", "write it on one line, without tabs")
	}
	return nil
}

// Fault is what is wrong with one value, and what to do about it. It does not
// repeat the value: whoever shows it knows it, and whether it may be shown.
type Fault struct{ What, Remedy string }

// Error is What and Remedy.
func (f *Fault) Error() string { return f.What + ": " + f.Remedy }

func fault(what, remedy string) error { return &Fault{what, remedy} }
