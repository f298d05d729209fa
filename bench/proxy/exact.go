package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// plain is the class of requests that the benchmark sends.
const plain = "plain"

// waitExact waits until the router has proved that it makes the tokens of all
// nodes.
func (p *process) waitExact(ctx context.Context, admin string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		proved, nodes, err := exactNodes(ctx, admin)
		if err == nil && nodes > 0 && proved == nodes {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("wait for exactness: it ended early: %s", p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("wait for exactness: %d of %d nodes make the router's tokens (%v); do the nodes answer /tokenize? It printed: %s",
				proved, nodes, err, p.logTail())
		case <-tick.C:
		}
	}
}

// exactNodes counts the nodes at which plain requests are exact.
func exactNodes(ctx context.Context, admin string) (proved, nodes int, err error) {
	text, err := get(ctx, "http://"+admin+"/api/nodes")
	if err != nil {
		return 0, 0, err
	}
	var views []struct {
		Exact []string `json:"exact"`
	}
	if err := json.Unmarshal(text, &views); err != nil {
		return 0, 0, fmt.Errorf("read nodes: %w", err)
	}
	for _, v := range views {
		if slices.Contains(v.Exact, plain) {
			proved++
		}
	}
	return proved, len(views), nil
}

// decisions counts the router's decisions so far, and those by exact tokens.
func decisions(ctx context.Context, admin string) (exact, all float64, err error) {
	text, err := get(ctx, "http://"+admin+"/metrics")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok || !strings.HasPrefix(series, "warmpath_decisions_total{") {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read metrics: %w", err)
		}
		all += n
		if strings.Contains(series, `exactness="exact"`) {
			exact += n
		}
	}
	return exact, all, nil
}

// get reads a small answer of the router's admin side.
func get(ctx context.Context, url string) ([]byte, error) {
	const most = 8 << 20
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %q: status %d", url, res.StatusCode)
	}
	return io.ReadAll(io.LimitReader(res.Body, most))
}
