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
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

// router is a whole running router.
type router struct {
	log     *slog.Logger
	data    *dataplane.Dataplane
	control *controlplane.ControlPlane
	admin   *admin.Server
	address net.Addr // of the admin side
}

// startRouter starts everything in the order of need; on an error nothing is
// left running.
func startRouter(c *config.Config, log *slog.Logger, reread func() (*config.Config, error)) (*router, error) {
	c, err := fitDescriptors(c, log)
	if err != nil {
		return nil, err
	}
	seed, err := controlplane.Seed(c)
	if err != nil {
		return nil, err
	}
	seeded := *c
	seeded.Seed = seed
	c = &seeded
	settings, err := controlplane.DataplaneSettings(c)
	if err != nil {
		return nil, err
	}
	eviction, err := index.ParseEviction(c.Index.LearnedEviction)
	if err != nil {
		return nil, fmt.Errorf("read index.learned_eviction: %w", err)
	}
	clients, err := listen(c.Listen, "listen")
	if err != nil {
		return nil, err
	}
	operators, err := listen(c.Admin.Listen, "admin.listen")
	if err != nil {
		_ = clients.Close()
		return nil, err
	}
	holder := fleet.NewHolder()
	idx := index.New(index.Options{MemoryBytes: c.Index.MemoryBytes, Eviction: eviction})
	data, err := dataplane.Start(dataplane.Options{
		Listener: clients, Loops: c.Loops, Fleet: holder, Index: idx, Settings: settings, Decisions: c.Decisions.Keep, Log: log,
	})
	if err != nil {
		_ = clients.Close()
		_ = operators.Close()
		return nil, err
	}
	control, err := controlplane.Start(controlplane.Options{Config: c, Fleet: holder, Index: idx, Dataplane: data, Log: log, Reread: reread})
	if err != nil {
		_ = data.Stop()
		_ = operators.Close()
		return nil, err
	}
	surface := admin.Serve(operators, admin.Options{
		Control: control, Dataplane: data, Fleet: holder, Index: idx, Token: c.Admin.Token, Version: version, Log: log,
	})
	return &router{log, data, control, surface, operators.Addr()}, nil
}

func (r *router) adminAddr() string { return r.address.String() }

// stop ends everything at once. Drain the data plane first.
func (r *router) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	r.admin.Stop(ctx)
	r.control.Stop()
	if err := r.data.Stop(); err != nil {
		r.log.Error("event loops ended badly", "err", err)
	}
}

// listen opens a TCP listener. Multipath TCP is off: it is not what the kernel
// plane measures.
func listen(address, key string) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s %q: %w; choose another address or end what holds it", key, address, err)
	}
	return l, nil
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
