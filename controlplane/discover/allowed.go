package discover

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"warmpath/controlplane/state"
)

// ErrNotAllowed says that no pattern of node_urls_allowed fits a node's URL.
var ErrNotAllowed = errors.New("is not allowed")

// Allowed says which URLs nodes may have that were added or registered at run time,
// not named by the configuration, its file of nodes or its DNS names: whoever may add a node could otherwise make the router send
// requests anywhere. The zero Allowed allows nothing.
type Allowed struct {
	patterns []pattern
}

// pattern is a network, or a host name, each with a port or any.
type pattern struct {
	network netip.Prefix // valid for a network or address
	host    string       // "gpu.example", or ".example" for every host below it
	port    string       // "" = any
}

// ParseAllowed reads node_urls_allowed. A pattern is a CIDR (10.0.0.0/8), an
// address (10.0.0.7, [fd00::7]), a host name (gpu-1.example) or a star and a
// domain (*.gpu.example, any depth, not the domain itself), each with or without
// :port. A host name is allowed as a name, whatever it resolves to. The error
// joins all faults found.
func ParseAllowed(patterns []string) (Allowed, error) {
	var a Allowed
	var faults []error
	for _, text := range patterns {
		p, err := parsePattern(text)
		if err != nil {
			faults = append(faults, fmt.Errorf("node_urls_allowed %q: %w", text, err))
			continue
		}
		a.patterns = append(a.patterns, p)
	}
	if err := errors.Join(faults...); err != nil {
		return Allowed{}, err
	}
	return a, nil
}

// CheckPattern checks one pattern of node_urls_allowed. The error is what is
// wrong, ": " and the remedy.
func CheckPattern(text string) error {
	_, err := parsePattern(text)
	return err
}

func parsePattern(text string) (pattern, error) {
	if _, rest, found := strings.Cut(text, "://"); found {
		return pattern{}, fmt.Errorf("a pattern has no scheme: use %q", rest)
	}
	if network, err := netip.ParsePrefix(text); err == nil {
		if network != network.Masked() {
			return pattern{}, fmt.Errorf("bits are set beyond the mask: use %v", network.Masked())
		}
		return pattern{network: network}, nil
	}
	host, port, err := splitPort(text)
	if err != nil {
		return pattern{}, err
	}
	if network, err := netip.ParsePrefix(host); err == nil && network == network.Masked() {
		return pattern{network: network, port: port}, nil
	}
	if address, err := netip.ParseAddr(host); err == nil {
		address = address.Unmap()
		return pattern{network: netip.PrefixFrom(address, address.BitLen()), port: port}, nil
	}
	name := strings.ToLower(host)
	below, star := strings.CutPrefix(name, "*")
	if star && !strings.HasPrefix(below, ".") {
		return pattern{}, errors.New("a star stands only as the whole first label: use *.domain")
	}
	if !state.IsHostName(strings.TrimPrefix(below, ".")) {
		return pattern{}, errors.New("neither CIDR, address nor host name: use 10.0.0.0/8, gpu-1.example or *.gpu.example, with or without :port")
	}
	return pattern{host: below, port: port}, nil
}

// splitPort cuts ":port" off; an IPv6 address with a port stands in brackets.
func splitPort(text string) (host, port string, err error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		host, rest, closed := strings.Cut(inner, "]")
		if !closed || rest != "" && rest[0] != ':' {
			return "", "", errors.New("the bracket does not end before a port: use [address]:port")
		}
		if rest == "" {
			return host, "", nil
		}
		return checkPort(host, rest[1:])
	}
	if strings.Count(text, ":") != 1 { // none, or a bare IPv6 address or network
		return text, "", nil
	}
	host, port, _ = strings.Cut(text, ":")
	return checkPort(host, port)
}

func checkPort(host, port string) (string, string, error) {
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
		return "", "", fmt.Errorf("port %q: use 1 to 65535", port)
	}
	return host, port, nil
}

// Check returns nil if a validated URL fits a pattern, or if there are none,
// else ErrNotAllowed: who adds nodes has come over loopback or with a token. A
// host name fits no network: what it resolves to may change after the check.
func (a Allowed) Check(nodeURL string) error {
	if len(a.patterns) == 0 {
		return nil
	}
	u, err := url.Parse(nodeURL)
	if err != nil {
		return fmt.Errorf("url %q: %w", nodeURL, err)
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	host := strings.ToLower(u.Hostname())
	address, addressErr := netip.ParseAddr(host)
	for _, p := range a.patterns {
		switch {
		case p.port != "" && p.port != port:
		case p.network.IsValid():
			if addressErr == nil && address.Zone() == "" && p.network.Contains(address.Unmap()) {
				return nil
			}
		case addressErr == nil: // an address fits no name
		case strings.HasPrefix(p.host, "."):
			if strings.HasSuffix(host, p.host) && len(host) > len(p.host) {
				return nil
			}
		case host == p.host:
			return nil
		}
	}
	return fmt.Errorf("url %q %w: no pattern of node_urls_allowed fits; add one", nodeURL, ErrNotAllowed)
}
