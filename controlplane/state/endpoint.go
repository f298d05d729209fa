package state

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const maxURLBytes = 512

// Endpoint is a node's URL taken apart.
type Endpoint struct {
	URL        string // canonical: no trailing slash, host in lower case, no :80
	Address    string // host:port to dial
	Host       string // value of the Host field (RFC 9110 section 7.2)
	PathPrefix string // "" for none
}

// ParseEndpoint takes a node's URL apart and refuses what the router cannot
// dial, and what two readers could take in two ways. The error is a *Fault.
func ParseEndpoint(raw string) (Endpoint, error) {
	const remedy = "write http://host:port"
	if len(raw) > maxURLBytes {
		return Endpoint{}, fault(fmt.Sprintf("the URL has %d bytes", len(raw)), fmt.Sprintf("use at most %d", maxURLBytes))
	}
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] >= 0x7f {
			return Endpoint{}, fault(fmt.Sprintf("the character %q is not allowed", raw[i]), remedy)
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) { // it quotes the URL, which may hold a password
			err = ue.Err
		}
		return Endpoint{}, fault(fmt.Sprintf("not a URL (%v)", err), remedy)
	}
	switch {
	case u.Scheme == "https":
		err = fault("https to nodes is not available in this build", "use http, over a private network or a tunnel")
	case u.Scheme != "http":
		err = fault(fmt.Sprintf("scheme %q is not http", u.Scheme), remedy)
	case u.User != nil:
		err = fault("user information in a URL is not supported", "remove it")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(raw, "#"):
		err = fault("a query or fragment is not supported", "remove it")
	case u.Hostname() == "":
		err = fault("the host is missing", remedy)
	case !hostOrAddress(u.Hostname()):
		err = fault(fmt.Sprintf("host %q is neither a host name nor an address", u.Hostname()), remedy)
	case strings.HasSuffix(u.Host, ":"):
		err = fault("the port is missing after the colon", remedy)
	case !plainPath(u.EscapedPath()):
		err = fault(fmt.Sprintf("path %q is not plain", u.EscapedPath()), "use segments without %, // and dots alone")
	}
	if err != nil {
		return Endpoint{}, err
	}
	return endpointOf(u)
}

// endpointOf checks the port of an otherwise good URL.
func endpointOf(u *url.URL) (Endpoint, error) {
	port := u.Port()
	if port == "" {
		port = "80"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return Endpoint{}, fault(fmt.Sprintf("port %q is not a port", u.Port()), "use 1 to 65535")
	}
	host := strings.ToLower(u.Host)
	address := strings.TrimSuffix(host, ":"+port) + ":" + port
	if port == "80" {
		host = strings.TrimSuffix(host, ":80")
	}
	prefix := strings.TrimSuffix(u.EscapedPath(), "/")
	return Endpoint{URL: "http://" + host + prefix, Address: address, Host: host, PathPrefix: prefix}, nil
}

// hostOrAddress takes no zone: which interface it means is this host's affair.
func hostOrAddress(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Zone() == ""
	}
	return IsHostName(strings.ToLower(host))
}

// IsHostName checks the shape of RFC 1123, section 2.1, in lower case, and
// takes '_' too, which names of containers have. A last label of digits alone
// is no name but a mistyped address.
func IsHostName(s string) bool {
	labels := strings.Split(s, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return false
			}
		}
	}
	return len(s) <= 253 && strings.Trim(labels[len(labels)-1], "0123456789") != ""
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

// withoutUser hides what stands before the last @ of a URL, which may be a
// password.
func withoutUser(raw string) string {
	at := strings.LastIndexByte(raw, '@')
	if at < 0 {
		return raw
	}
	scheme, _, found := strings.Cut(raw[:at], "://")
	if !found {
		return "(hidden)" + raw[at:]
	}
	return scheme + "://(hidden)" + raw[at:]
}
