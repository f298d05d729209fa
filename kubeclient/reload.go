package kubeclient

import (
	"crypto/sha256"
	"net/http"
	"os"

	"k8s.io/client-go/rest"
)

// noticing notes that a call came to nothing by who called, or whom: what is in the
// kubeconfig may be wrong.
type noticing struct {
	http.RoundTripper
	to *Client
}

// RoundTrip implements http.RoundTripper.
func (n noticing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		n.to.doubted.Store(true)
	}
	return resp, err
}

// WrappedRoundTripper is for those who close idle connections.
func (n noticing) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }

// noticed is an HTTP client that notes what fails. The one given may be net/http's own.
func (c *Client) noticed(connections *http.Client) *http.Client {
	own := *connections
	if own.Transport == nil {
		own.Transport = http.DefaultTransport
	}
	own.Transport = noticing{own.Transport, c}
	return &own
}

// kubeconfig is a file that a client was made of.
type kubeconfig struct {
	path string
	sum  [sha256.Size]byte // of what it held
	load func() (*rest.Config, error)
}

// remember returns the kubeconfig as it is now, nil if there is none.
func remember(path string, load func() (*rest.Config, error)) *kubeconfig {
	if path == "" {
		return nil
	}
	text, _ := os.ReadFile(path) // whoever loads it says why it cannot be read
	return &kubeconfig{path, sha256.Sum256(text), load}
}

// again makes the groups anew if the kubeconfig has changed since, and does nothing if that
// cannot be used: then what there is goes on being refused, with the cluster's words.
func (c *Client) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.file
	text, err := os.ReadFile(k.path)
	sum := sha256.Sum256(text)
	if err != nil || sum == k.sum {
		return
	}
	config, err := k.load()
	if err != nil {
		return
	}
	config.RateLimiter = c.limiter // what was spent is spent
	if groups, err := c.connect(config); err == nil {
		c.groups.Store(&groups)
		k.sum = sum
	}
}
