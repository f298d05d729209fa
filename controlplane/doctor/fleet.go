package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"warmpath/controlplane/config"
	"warmpath/controlplane/engine"
)

const (
	// nodeTimeout bounds one question to a node.
	nodeTimeout = 2 * time.Second
	// nodesAtOnce bounds how many are asked side by side: the largest fleet, all
	// dead, takes 16 s.
	nodesAtOnce = 128
)

// configuration makes checks of a configuration that was refused.
func configuration(err error) []Check {
	const name = "configuration"
	var problems config.Errors
	if !errors.As(err, &problems) {
		what, remedy, ok := strings.Cut(err.Error(), "; ")
		if !ok {
			remedy = "name a readable file with --config"
		}
		return []Check{broken(name, what, remedy)}
	}
	var checks []Check
	for _, p := range problems {
		remedy := p.Remedy
		if p.Remedy = ""; remedy == "" {
			remedy = "correct the file"
		}
		checks = append(checks, broken(name, p.Error(), remedy))
	}
	return checks
}

// files makes checks of what came of reading the files that a configuration names.
func files(notes []string, err error) []Check {
	const name = "files"
	if err != nil {
		return []Check{broken(name, oneLine(err), "correct the path in the configuration, or let the router's user read the file")}
	}
	var checks []Check
	for _, note := range notes {
		checks = append(checks, lacking(name, note, "none is needed to serve; correct it if it is not meant so"))
	}
	if checks == nil {
		checks = append(checks, needed(good(name, "tokenizers, templates and tokens that are configured can be read")))
	}
	return checks
}

// answer is what came of asking a node.
type answer struct {
	err  error
	took time.Duration
}

// askNodes asks every node once for its health.
func askNodes(ctx context.Context, c *config.Config) []answer {
	prober := engine.NewProber()
	defer prober.HTTP.CloseIdleConnections()
	answers := make([]answer, len(c.Nodes))
	free := make(chan struct{}, nodesAtOnce)
	var all sync.WaitGroup
	for i, n := range c.Nodes {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			began := time.Now()
			err := prober.Health(ctx, n.URL, c.Health.Path, nodeTimeout)
			answers[i] = answer{err, time.Since(began)}
		})
	}
	all.Wait()
	return answers
}

// nodes makes a check of each node's answer.
func nodes(c *config.Config, answers []answer) []Check {
	checks := make([]Check, len(answers))
	for i, a := range answers {
		n := &c.Nodes[i]
		name := "node " + n.Name
		if a.err == nil {
			checks[i] = needed(good(name, "%s%s answers in %s", n.URL, c.Health.Path, milliseconds(a.took)))
			continue
		}
		checks[i] = broken(name, oneLine(a.err), nodeRemedy(a.err))
	}
	return checks
}

// nodeRemedy says what to do about a node that did not answer as it should.
func nodeRemedy(err error) string {
	var status *engine.StatusError
	var name *net.DNSError
	var network net.Error
	switch {
	case errors.As(err, &status) && status.Status >= 500:
		return "see the engine's log: it still loads its model, or its core has ended"
	case errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden):
		return "let the engine answer its health route without a key"
	case errors.As(err, &status):
		return "set health.path to a route that the engine answers with 200, and see that its url is the engine's"
	case errors.As(err, &name):
		return "correct the name in its url, or what resolves it"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "start the engine, let it listen beyond its own loopback (--host 0.0.0.0), or correct its url"
	case errors.As(err, &network) && network.Timeout():
		return "see that nothing on the way drops packets (firewall, security group, route), and that the engine is not stuck"
	}
	return "see that the engine runs and that this host reaches it"
}

func milliseconds(d time.Duration) string {
	if d < time.Millisecond {
		return "less than 1 ms"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

// oneLine keeps a check on one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
