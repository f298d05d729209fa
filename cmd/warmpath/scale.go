package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"warmpath/controlplane/admin"
	"warmpath/controlplane/config"
	"warmpath/controlplane/provide"
	"warmpath/controlplane/remote"
	"warmpath/controlplane/state"
	"warmpath/scaler"
)

// checkWithin bounds the first look at the routers, with the wait for the claim of a
// process that was killed.
const checkWithin = (10 + scaler.TwinSeconds) * time.Second

func newScale() *cobra.Command {
	cmd := &cobra.Command{
		Use: "scale --config FILE", Short: "Run the scaler alone, beside one or more routers", GroupID: "run", Args: cobra.NoArgs,
		Long: `Run the scaler in a process of its own, for the routers of scaler.routers, over their admin sides;
the rest of the section scaler is as for serve, with enabled: false. scaler.router_token, or
admin.token, is what those routers ask for. admin.listen is this process's own side, for
warmpath scaler --admin, metrics and health.

It needs a state_dir, and refuses to start beside another scaler of the same nodes. While a router
does not answer, nothing is changed. Ends with SIGTERM or SIGINT: the nodes stay, at their providers
and at the routers, and the next start goes on with them.`,
	}
	flags := addConfigFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := flags.load()
		if err != nil {
			return err
		}
		if err := canScale(c, flags.path); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		signal.Ignore(syscall.SIGHUP) // no key of a scaler changes without a restart
		return runScale(ctx, c, newLog(cmd.ErrOrStderr(), c))
	}
	return cmd
}

// canScale refuses a configuration that lacks what a scaler alone needs.
func canScale(c *config.Config, file string) error {
	lacks := func(key, remedy string) error { return fmt.Errorf("%s: %s: %s", file, key, remedy) }
	switch s := &c.Scaler; {
	case s.Enabled:
		return lacks("scaler.enabled is true", "that is the scaler inside `warmpath serve`; set it to false and list scaler.routers")
	case len(s.Routers) == 0:
		return lacks("scaler.routers is empty", "list the admin sides of all routers, such as [http://127.0.0.1:8081]")
	case len(s.Offers) == 0:
		return lacks("scaler.offers is empty", "there is nothing to get nodes from; add an offer")
	case c.StateDir == "":
		return lacks("state_dir is empty", "give a folder: the journal there is what a restart knows its nodes by")
	}
	return nil
}

// alone is a scaler that runs in a process of its own.
type alone struct {
	config    *config.Config
	log       *slog.Logger
	actuators provide.Actuators
	routers   *remote.Routers
	loop      atomic.Pointer[scaler.Loop]
}

// runScale runs the scaler until ctx ends.
func runScale(ctx context.Context, c *config.Config, log *slog.Logger) (err error) {
	journal, err := scaler.OpenJournal(c.StateDir)
	if errors.Is(err, scaler.ErrLocked) {
		return fmt.Errorf("%w; end the other process, or give this one a state_dir and a scaler.fleet of its own", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, journal.Close()) }()
	a := &alone{config: c, log: log}
	a.routers = remote.New(a.remoteOptions(journal.Epoch))
	checking, cancel := context.WithTimeout(ctx, checkWithin)
	err = a.routers.Check(checking)
	cancel()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Admin.Listen)
	if err != nil {
		return fmt.Errorf("listen on admin.listen: %w; a router on this host may have it: give the scaler another port", err)
	}
	a.actuators = provide.New(&c.Scaler, provide.Options{Environ: config.EnvironOfNodes(), Log: log})
	a.loop.Store(scaler.NewLoop(scaler.LoopOptions{
		Config: provide.Config(&c.Scaler), Book: provide.Book(&c.Scaler, int64(c.Timeouts.DrainNode)), Model: c.Scaler.Model,
		Actuators: a.actuators.ByOffer, Journal: journal, Routers: a.routers, Log: log,
	}))
	side := admin.ServeScaler(listener, admin.ScalerOptions{
		Status: a.status, Routers: a.views, Refused: a.routers.Refused, Callback: a.callback, Token: c.Admin.Token, Version: version, Log: log,
	})
	log.Info("scaling", "routers", c.Scaler.Routers, "admin", listener.Addr().String(), "fleet", c.Scaler.Fleet, "nodes", len(a.status().Nodes), "version", version)
	a.run(ctx)
	log.Info("stopped; the nodes stay", "nodes", len(a.status().Nodes))
	ending, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	side.Stop(ending)
	return a.actuators.Close()
}

// run runs the loop until ctx ends, and the routers' side of it until the loop has ended:
// then they may hear another process.
func (a *alone) run(ctx context.Context) {
	asking, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wait sync.WaitGroup
	wait.Go(func() { a.routers.Run(asking) })
	a.loop.Load().Run(ctx)
	stop()
	wait.Wait()
}

func (a *alone) remoteOptions(epoch string) remote.Options {
	s := &a.config.Scaler
	offers := map[string]*config.Offer{}
	for i := range s.Offers {
		offers[s.Offers[i].Name] = &s.Offers[i]
	}
	token := s.RouterToken
	if token == "" {
		token = a.config.Admin.Token
	}
	return remote.Options{
		Routers: s.Routers, Token: token, ID: epoch, Fleet: s.Fleet, Model: s.Model, Status: a.status, Log: a.log,
		Spec: func(n *scaler.Owned) state.Spec { return offers[n.Offer].Spec(n.Key, n.URL) },
	}
}

// status is what the scaler has done last, nil before it runs.
func (a *alone) status() *scaler.Status {
	if loop := a.loop.Load(); loop != nil {
		return loop.Status()
	}
	return nil
}

func (a *alone) views() []admin.ScalerRouterView {
	views := []admin.ScalerRouterView{}
	for _, r := range a.routers.Status() {
		views = append(views, admin.ScalerRouterView{URL: r.URL, OK: r.Error == "", Error: r.Error, Nodes: r.Nodes})
	}
	return views
}

// callback is who takes what the provider of an offer tells of its own accord.
func (a *alone) callback(offer string) http.Handler {
	return a.actuators.Callback(offer, func() { a.loop.Load().Relist(offer) })
}
