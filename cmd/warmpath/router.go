package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"syscall"
	"time"

	"warmpath/controlplane"
	"warmpath/controlplane/admin"
	"warmpath/controlplane/config"
	"warmpath/controlplane/kernel"
	"warmpath/controlplane/takeover"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

// router is a whole running router.
type router struct {
	log     *slog.Logger
	config  *config.Config // as it was started with
	sockets *takeover.Sockets
	fleet   *fleet.Holder
	index   *index.Index
	kernel  *kernel.Plane
	control *controlplane.ControlPlane

	clients   *net.TCPListener
	operators net.Listener         // the admin side's
	data      *dataplane.Dataplane // nil before serve, like admin
	admin     *admin.Server
}

// startRouter starts everything in the order of need; on an error nothing is
// left running.
func startRouter(c *config.Config, log *slog.Logger, reread func() (*config.Config, error)) (*router, error) {
	r, err := prepare(c, log, reread, takeover.NewSockets(), nil)
	if err != nil {
		return nil, err
	}
	if err := r.serve(0, 0); err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
}

// prepare listens and starts the control plane, so that serve has a fleet to
// serve with; on an error nothing is left running. offer is what is taken over,
// nil if there is nothing.
func prepare(c *config.Config, log *slog.Logger, reread func() (*config.Config, error), sockets *takeover.Sockets, offer *takeover.Offer) (*router, error) {
	c, err := fitDescriptors(c, log)
	if err != nil {
		return nil, err
	}
	seeded := *c
	inherited := ""
	if offer != nil {
		inherited = offer.Seed
	}
	if seeded.Seed, err = controlplane.Seed(c, inherited); err != nil {
		return nil, err
	}
	eviction, err := index.ParseEviction(c.Index.LearnedEviction)
	if err != nil {
		return nil, fmt.Errorf("read index.learned_eviction: %w", err)
	}
	r := &router{
		log: log, config: &seeded, sockets: sockets, fleet: fleet.NewHolder(),
		index: index.New(index.Options{MemoryBytes: c.Index.MemoryBytes, Eviction: eviction}),
	}
	if r.clients, err = sockets.ListenTCP(context.Background(), "listen", c.Listen); err != nil {
		return nil, err
	}
	if r.operators, err = sockets.Listen(context.Background(), "admin.listen", "tcp", c.Admin.Listen); err != nil {
		_ = r.clients.Close()
		return nil, err
	}
	if r.kernel, err = kernel.Open(controlplane.KernelOptions(c, log)); err == nil {
		r.control, err = controlplane.Start(controlplane.Options{
			Config: r.config, Fleet: r.fleet, Index: r.index, Log: log, Reread: reread, Sockets: sockets, Offer: offer, Kernel: r.kernel,
		})
	}
	if err != nil {
		_ = r.clients.Close()
		_ = r.operators.Close()
		r.kernel.Close()
		return nil, err
	}
	return r, nil
}

// serve begins to serve clients and operators. takeoverSeconds is what it took to
// take over from another process, former, 0 if there was none. On an error stop
// ends the rest.
func (r *router) serve(takeoverSeconds float64, former int) error {
	c := r.config
	settings, err := controlplane.DataplaneSettings(c)
	if err != nil {
		return err
	}
	r.data, err = dataplane.Start(dataplane.Options{
		Listener: r.clients, Loops: c.Loops, Fleet: r.fleet, Index: r.index, Settings: settings, Decisions: c.Decisions.Keep, Flow: r.kernel.Table(), Time: r.kernel.NeedsLoops(), Log: r.log,
	})
	if err != nil {
		return err
	}
	r.control.Attach(r.data)
	if err := r.control.StartGuard(r.data.Addr(), former); err != nil {
		return err
	}
	r.admin = admin.Serve(r.operators, admin.Options{
		Control: r.control, Dataplane: r.data, Fleet: r.fleet, Index: r.index, Token: c.Admin.Token, Version: version, Log: r.log,
		TakeoverSeconds: takeoverSeconds, RegisterToken: registerToken(c),
	})
	return nil
}

// registerToken is what nodes register themselves with, "" if they may not.
func registerToken(c *config.Config) string {
	if !c.Discovery.Register.Enabled {
		return ""
	}
	return c.Discovery.Register.Token
}

func (r *router) adminAddr() string { return r.operators.Addr().String() }

// stop ends everything at once. Drain the data plane first.
func (r *router) stop() {
	defer r.kernel.Close() // last: the loops use its memory
	r.stopAdmin()
	r.control.Stop()
	if r.data == nil {
		_ = r.clients.Close()
		return
	}
	if err := r.data.Stop(); err != nil {
		r.log.Error("event loops ended badly", "err", err)
	}
}

// stopAdmin ends the admin side, if it serves; requests under way have a moment.
func (r *router) stopAdmin() {
	if r.admin == nil {
		_ = r.operators.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	r.admin.Stop(ctx)
}

func hardDescriptorLimit() (uint64, error) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("read RLIMIT_NOFILE: %w", err)
	}
	return r.Max, nil
}

// fitDescriptors raises the soft limit of open descriptors to the hard one and
// fits the number of connections to it, unless that number was asked for: then
// it refuses what cannot be had.
func fitDescriptors(c *config.Config, log *slog.Logger) (*config.Config, error) {
	hard, err := hardDescriptorLimit()
	if err != nil {
		return nil, err
	}
	if problems := c.CheckLimits(hard); len(problems) > 0 {
		return nil, config.Errors(problems)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: hard, Max: hard}); err != nil {
		return nil, fmt.Errorf("raise RLIMIT_NOFILE to %d: %w", hard, err)
	}
	fitted := c.FitLimits(hard)
	if fitted != c {
		log.Warn("fewer client connections than the default, as this host allows so many open descriptors",
			"limits.connections", fitted.Limits.Connections, "default", c.Limits.Connections, "descriptors", hard, "remedy", "raise the hard limit (LimitNOFILE= of a systemd unit)")
	}
	return fitted, nil
}
