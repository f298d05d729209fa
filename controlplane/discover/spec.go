package discover

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"warmpath/controlplane/engine"
)

// Bounds of a Spec.
const (
	MaxNameBytes   = 63
	maxURLBytes    = 512
	maxModels      = 256
	maxModelBytes  = 512
	maxPlaceBytes  = 63
	maxWeight      = 1000
	maxMaxInFlight = 1 << 20
)

// Spec describes one node that should exist.
type Spec struct {
	Name        string   `json:"name"`
	URL         string   `json:"url"`                     // http://host[:port][/path]
	Models      []string `json:"models,omitempty"`        // empty = ask the engine
	Engine      string   `json:"engine,omitempty"`        // "" or "auto" = find out, else a dialect
	Island      string   `json:"island,omitempty"`        // the set of nodes inside which KV state can be reused
	Region      string   `json:"region,omitempty"`        // where it stands
	Weight      float64  `json:"weight,omitempty"`        // capacity class; 0 = 1.0
	MaxInFlight int      `json:"max_in_flight,omitempty"` // requests; 0 = no cap
	Source      string   `json:"source,omitempty"`        // name of the source it comes from; set by that source
}

// Equal reports whether two specs say the same.
func (s Spec) Equal(o Spec) bool {
	return s.Name == o.Name && s.URL == o.URL && slices.Equal(s.Models, o.Models) && s.Engine == o.Engine &&
		s.Island == o.Island && s.Region == o.Region && s.Weight == o.Weight && s.MaxInFlight == o.MaxInFlight &&
		s.Source == o.Source
}

// Validate checks a spec and returns it in canonical form: URL without a
// trailing slash, with a lower-case host and without :80, weight 1 if none is
// given. The
// error names node, field, value and remedy.
func (s Spec) Validate() (Spec, error) {
	if err := CheckName(s.Name); err != nil {
		return Spec{}, err
	}
	u, err := parseURL(s.URL)
	if err != nil {
		return Spec{}, fmt.Errorf("node %q: %w", s.Name, err)
	}
	s.URL = u.String()
	if s.Weight == 0 {
		s.Weight = 1
	}
	switch {
	case !engine.Known(s.Engine):
		err = fmt.Errorf("engine %q: use auto, vllm, sglang, tgi, llamacpp, trtllm or openai", s.Engine)
	case !(s.Weight > 0 && s.Weight <= maxWeight):
		err = fmt.Errorf("weight %v: use more than 0 and at most %d", s.Weight, maxWeight)
	case s.MaxInFlight < 0 || s.MaxInFlight > maxMaxInFlight:
		err = fmt.Errorf("max_in_flight %d: use 0 (no cap) to %d", s.MaxInFlight, maxMaxInFlight)
	case len(s.Models) > maxModels:
		err = fmt.Errorf("%d models: use at most %d", len(s.Models), maxModels)
	}
	if err != nil {
		return Spec{}, fmt.Errorf("node %q: %w", s.Name, err)
	}
	s.Models = slices.Clone(s.Models) // the caller's array is the caller's
	for i, m := range s.Models {
		if m == "" || len(m) > maxModelBytes || !printable(m) {
			return Spec{}, fmt.Errorf("node %q: model %q: use 1 to %d printable characters", s.Name, m, maxModelBytes)
		}
		if slices.Contains(s.Models[:i], m) {
			return Spec{}, fmt.Errorf("node %q: model %q stands twice: remove one", s.Name, m)
		}
	}
	for _, place := range []struct{ key, value string }{{"island", s.Island}, {"region", s.Region}} {
		if len(place.value) > maxPlaceBytes || !printable(place.value) {
			return Spec{}, fmt.Errorf("node %q: %s %q: use at most %d printable characters", s.Name, place.key, place.value, maxPlaceBytes)
		}
	}
	return s, nil
}

// CheckName checks a node's name. It stands in a header field, in paths of the
// admin API and in metric labels, so it has only letters, digits and . _ - and
// begins with a letter or digit.
func CheckName(name string) error {
	if name == "" || len(name) > MaxNameBytes {
		return fmt.Errorf("node name %q: use 1 to %d characters", name, MaxNameBytes)
	}
	for i, c := range name {
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && (i == 0 || !strings.ContainsRune("._-", c)) {
			return fmt.Errorf("node name %q: character %q at %d: use letters, digits and . _ -, a letter or digit first", name, c, i+1)
		}
	}
	return nil
}

// parseURL checks a node's URL: plain HTTP, a host, nothing a request would
// not carry on.
func parseURL(text string) (*url.URL, error) {
	if len(text) > maxURLBytes || !printable(text) || strings.Contains(text, " ") {
		return nil, fmt.Errorf("url %q: use at most %d printable characters without spaces", text, maxURLBytes)
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("url %q: %w", text, err)
	}
	switch {
	case u.User != nil:
		return nil, fmt.Errorf("url %q: a user name: remove it", u.Redacted())
	case u.Scheme != "http":
		return nil, fmt.Errorf("url %q: scheme %q: use http:// (nodes are spoken to in plain HTTP/1.1)", text, u.Scheme)
	case u.Hostname() == "":
		return nil, fmt.Errorf("url %q: no host: use http://host:port", text)
	case !hostOrAddress(u.Hostname()):
		return nil, fmt.Errorf("url %q: host %q is neither a host name nor an address", text, u.Hostname())
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(text, "#"):
		return nil, fmt.Errorf("url %q: a query or fragment: remove it", text)
	case strings.HasSuffix(u.Host, ":"):
		return nil, fmt.Errorf("url %q: no port after the colon", text)
	case !plainPath(u.EscapedPath()):
		return nil, fmt.Errorf("url %q: path %q: use plain segments without %%, // and dots alone", text, u.EscapedPath())
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("url %q: port %q: use 1 to 65535", text, p)
		}
	}
	u.Host = strings.TrimSuffix(strings.ToLower(u.Host), ":80")
	u.Path = strings.TrimSuffix(u.Path, "/")
	return u, nil
}

// hostOrAddress takes no zone: which interface it means is this host's affair.
func hostOrAddress(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Zone() == ""
	}
	return hostName(strings.ToLower(host))
}

// plainPath reports whether a path can stand before every request's own
// without anybody reading it in another way.
func plainPath(path string) bool {
	if strings.Contains(path, "%") {
		return false
	}
	segments := strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"), "/")
	for _, s := range segments {
		if s == "." || s == ".." || s == "" && len(segments) > 1 {
			return false
		}
	}
	return path != "//"
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0x7f {
			return false
		}
	}
	return true
}
