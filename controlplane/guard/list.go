package guard

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"warmpath/bpf"
)

// Bounds of a file of prefixes.
const (
	maxListBytes    = 64 << 20
	maxListProblems = 20 // that are shown
	maxLineBytes    = 4096
)

// ParsePrefix reads a CIDR or an address. The error says what to write instead.
func ParsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		a, notAddr := netip.ParseAddr(text)
		if notAddr != nil || a.Zone() != "" {
			return p, fmt.Errorf("%.60q is no address or CIDR; write one such as 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32", text)
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	switch {
	case p.Addr().Is4In6():
		return p, fmt.Errorf("%.60q is an IPv4 address written as IPv6; write it as IPv4", text)
	case p != p.Masked():
		return p, fmt.Errorf("%.60q has bits beyond its prefix; write %v", text, p.Masked())
	}
	return p, nil
}

// ReadList reads a file of prefixes: one CIDR or address a line; what follows a #
// is a comment, empty lines do not count. The error names every bad line, up to
// twenty, with what to write instead.
func ReadList(path string) ([]netip.Prefix, error) {
	f, err := os.Open(path)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("open list %s: %w; name a readable file, or none", path, err)
	}
	defer f.Close()
	limited := &io.LimitedReader{R: f, N: maxListBytes + 1}
	prefixes, err := readList(path, limited)
	if limited.N == 0 {
		return nil, fmt.Errorf("%s: more than %d bytes; %d prefixes are the most", path, maxListBytes, bpf.MaxGuardEntries)
	}
	return prefixes, err
}

func readList(path string, r io.Reader) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	var problems []error
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLineBytes)
	number := 0
	for lines.Scan() {
		number++
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		p, err := ParsePrefix(text)
		if err == nil {
			prefixes = append(prefixes, p)
		} else if len(problems) < maxListProblems {
			problems = append(problems, fmt.Errorf("%s:%d: %w", path, number, err))
		}
	}
	if err := lines.Err(); err != nil {
		problems = append(problems, fmt.Errorf("%s:%d: %w; write one CIDR a line", path, number+1, err))
	}
	if len(prefixes) > bpf.MaxGuardEntries {
		problems = append(problems, fmt.Errorf("%s: %d prefixes; %d are the most", path, len(prefixes), bpf.MaxGuardEntries))
	}
	return prefixes, errors.Join(problems...)
}
