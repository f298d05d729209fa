package state

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestParseEndpoint(t *testing.T) {
	for raw, want := range map[string]Endpoint{
		"http://10.0.0.1:8000":     {"http://10.0.0.1:8000", "10.0.0.1:8000", "10.0.0.1:8000", ""},
		"http://gpu-a/":            {"http://gpu-a", "gpu-a:80", "gpu-a", ""},
		"http://[fd00::1]:8000/a/": {"http://[fd00::1]:8000/a", "[fd00::1]:8000", "[fd00::1]:8000", "/a"},
		"http://[fd00::1]":         {"http://[fd00::1]", "[fd00::1]:80", "[fd00::1]", ""},
		"HTTP://H:1/a/b":           {"http://h:1/a/b", "h:1", "h:1", "/a/b"},
		"http://h:80":              {"http://h", "h:80", "h", ""},
		"http://[::80]":            {"http://[::80]", "[::80]:80", "[::80]", ""},
	} {
		if got, err := ParseEndpoint(raw); err != nil || got != want {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
	for raw, want := range map[string]string{
		"":                                       "not http",
		"10.0.0.1:8000":                          "write http://host:port",
		"https://h:1":                            "not available",
		"http://":                                "host is missing",
		"http://h:":                              "port is missing",
		"http://h:0":                             "use 1 to 65535",
		"http://h:65536":                         "use 1 to 65535",
		"http://h:080":                           "use 1 to 65535",
		"http://u@h:1":                           "user information",
		"http://h:1?a":                           "query or fragment",
		"http://h:1#a":                           "query or fragment",
		"http://h:1/a b":                         "not allowed",
		"http://h:1/\r\n":                        "not allowed",
		"http://h,g:1":                           "neither a host name nor an address",
		"http://127.1":                           "neither a host name nor an address",
		"http://h..x":                            "neither a host name nor an address",
		"http://h:1/a%2Fb":                       "is not plain",
		"http://h:1/a/../b":                      "is not plain",
		"http://h:1//":                           "is not plain",
		"http://h:1/#":                           "query or fragment",
		"http://h:1/" + strings.Repeat("a", 512): "at most 512",
		"http://[fe80::1%25eth0]":                "neither a host name nor an address",
		"http://[fd00::1x]":                      "not a URL",
		"unix:///run/x":                          "not http",
	} {
		if got, err := ParseEndpoint(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v", raw, got, err)
		}
	}
}

// What is accepted, the standard library accepts and reads the same way, and
// reading the canonical form changes nothing.
func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"http://h:1/a", "http://[::1]:2", "http://h", "https://h", "http://h:1/%2f?x#y", "http://u:p@h", "HTTP://H:80/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		e, err := ParseEndpoint(raw)
		if err != nil {
			if !errors.As(err, new(*Fault)) {
				t.Fatalf("%q: %v is no *Fault", raw, err)
			}
			return
		}
		given, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequest(http.MethodGet, e.URL+"/v1/models", nil)
		if err != nil || req.Host != e.Host || req.URL.User != nil || req.URL.RawQuery != "" ||
			!strings.EqualFold(req.URL.Hostname(), given.Hostname()) || req.URL.Path != e.PathPrefix+"/v1/models" || e.PathPrefix != strings.TrimSuffix(given.Path, "/") {
			t.Fatalf("%q: %+v, %v", raw, e, err)
		}
		host, port, err := net.SplitHostPort(e.Address)
		if want := given.Port(); err != nil || host != req.URL.Hostname() || want != "" && want != port || want == "" && port != "80" {
			t.Fatalf("%q: address %q, %v", raw, e.Address, err)
		}
		if again, err := ParseEndpoint(e.URL); err != nil || again != e {
			t.Fatalf("%q: %+v read again is %+v, %v", raw, e, again, err)
		}
	})
}
