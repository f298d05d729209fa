package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Registration is a node that registers itself with routers, and renews its lease at
// each of them until it is told to stop.
type Registration struct {
	Name    string
	Body    []byte   // the node as POST /api/nodes takes it
	Routers []string // base URLs of admin sides, as ParseRouter returns them
	Token   *Token
	Log     *slog.Logger
}

const (
	registerWithin = 5 * time.Second
	retryLeast     = 500 * time.Millisecond // after a failure, and twice as long after each …
	retryMost      = 10 * time.Second       // … up to this
	renewals       = 3                      // in the time of a lease: two may be lost
)

// Register keeps the node registered until ctx ends, and takes it away then: routers
// send it nothing new, and it can be stopped once it has finished what it has. It
// returns when every router was told, or could not be.
func (r *Registration) Register(ctx context.Context) {
	client := &http.Client{Timeout: registerWithin}
	defer client.CloseIdleConnections()
	var wait sync.WaitGroup
	for _, base := range r.Routers {
		wait.Go(func() {
			registered := &registered{r: r, base: base, client: client}
			registered.keep(ctx)
			registered.release()
		})
	}
	wait.Wait()
}

// registered is the node as one router knows it.
type registered struct {
	r      *Registration
	base   string
	client *http.Client
	there  bool   // the router has it, as far as is known
	said   string // the failure that was logged last
}

// keep renews the lease until ctx ends.
func (g *registered) keep(ctx context.Context) {
	retry := retryLeast
	for ctx.Err() == nil {
		lease, err := g.renew(ctx)
		wait := lease / renewals
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			g.failed(err)
			wait = retry
			retry = min(2*retry, retryMost)
		default:
			g.renewed(lease)
			retry = retryLeast
		}
		// Apart, so that a fleet that was started at once does not come at once.
		pause := time.NewTimer(wait - time.Duration(rand.Int64N(int64(wait)/10+1)))
		select {
		case <-ctx.Done():
			pause.Stop()
		case <-pause.C:
		}
	}
}

func (g *registered) failed(err error) {
	if g.said != err.Error() {
		g.said = err.Error()
		g.r.Log.Warn("not registered", "router", g.base, "node", g.r.Name, "err", err)
	}
}

func (g *registered) renewed(lease time.Duration) {
	if !g.there || g.said != "" {
		g.r.Log.Info("registered", "router", g.base, "node", g.r.Name, "lease", lease)
	}
	g.there, g.said = true, ""
}

// renew registers the node, or renews its lease, and returns how long that is.
func (g *registered) renew(ctx context.Context) (time.Duration, error) {
	status, answer, err := g.do(ctx, http.MethodPost, "/api/nodes", g.r.Body)
	if err == nil && status == http.StatusUnauthorized && g.r.Token.read() == nil { // it may have been replaced
		status, answer, err = g.do(ctx, http.MethodPost, "/api/nodes", g.r.Body)
	}
	if err != nil {
		return 0, err
	}
	var lease struct {
		Seconds float64 `json:"lease_seconds"`
	}
	switch {
	case status != http.StatusOK && status != http.StatusCreated:
		return 0, fmt.Errorf("status %d: %s", status, bytes.TrimSpace(answer))
	case json.Unmarshal(answer, &lease) != nil || !(lease.Seconds > 0):
		return 0, errors.New("the router gives no lease: the token must be its discovery.register.token, and not its admin.token")
	}
	return time.Duration(lease.Seconds * float64(time.Second)), nil
}

// release ends the lease.
func (g *registered) release() {
	if !g.there {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerWithin)
	defer cancel()
	status, answer, err := g.do(ctx, http.MethodDelete, "/api/nodes/"+url.PathEscape(g.r.Name), nil)
	switch {
	case err != nil:
		g.r.Log.Warn("not taken away; its lease ends by itself", "router", g.base, "node", g.r.Name, "err", err)
	case status != http.StatusAccepted && status != http.StatusNotFound:
		g.r.Log.Warn("not taken away; its lease ends by itself", "router", g.base, "node", g.r.Name, "err", fmt.Sprintf("status %d: %s", status, bytes.TrimSpace(answer)))
	default:
		g.r.Log.Info("taken away", "router", g.base, "node", g.r.Name)
	}
}

const registerAnswerBytes = 64 << 10

func (g *registered) do(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, g.base+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+g.r.Token.value())
	req.Header.Set("Content-Type", "application/json")
	resp, err := g.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, registerAnswerBytes))
	return resp.StatusCode, answer, err
}
