package controlplane

import (
	"errors"
	"fmt"
	"strings"

	"warmpath/controlplane/config"
	"warmpath/controlplane/discover"
	"warmpath/controlplane/guard"
	"warmpath/controlplane/state"
)

// Reload loads the configuration again: validated whole, then put in force in
// one go; on an error the last good one stays. It returns the keys whose new
// values wait for a restart. Any goroutine may call it.
func (c *ControlPlane) Reload() (restart []string, err error) {
	c.reloads.Lock()
	defer c.reloads.Unlock()
	defer func() {
		c.reloadBad.Store(err != nil)
		if err != nil {
			c.opt.Log.Error("configuration not reloaded; the last good one stays in force", "err", err)
			return
		}
		c.opt.Log.Info("configuration reloaded", "needs_restart", strings.Join(restart, " "))
	}()
	if c.opt.Reread == nil {
		return nil, errors.New("reload configuration: the router was started without a file")
	}
	next, err := c.opt.Reread()
	if err != nil {
		return nil, fmt.Errorf("reload configuration: %w", err)
	}
	restart = c.restartKeys(next)
	inForce := *next
	// Seed: a new one would void every entry of the index. Connections: they
	// must fit the descriptors, which are counted at the start. The kernel's mode:
	// what it allows was loaded then.
	inForce.Seed, inForce.Limits.Connections = c.opt.Config.Seed, c.opt.Config.Limits.Connections
	inForce.Kernel.Mode, inForce.Kernel.NodeLoad = c.opt.Config.Kernel.Mode, c.opt.Config.Kernel.NodeLoad
	guarding, err := guard.Read(guardSettings(&inForce))
	if err != nil {
		return nil, fmt.Errorf("reload kernel.xdp: %w", err)
	}
	settings, err := DataplaneSettings(&inForce)
	if err != nil {
		return nil, fmt.Errorf("reload configuration: %w", err)
	}
	allowed, err := discover.ParseAllowed(next.NodeURLsAllowed)
	if err != nil {
		return nil, fmt.Errorf("reload node_urls_allowed: %w", err)
	}
	if err := c.reports.reload(); err != nil {
		return nil, fmt.Errorf("reload configuration: %w", err)
	}
	if err := c.static.Replace(specsOf(next)); err != nil {
		return nil, fmt.Errorf("reload nodes: %w", err)
	}
	// From here on nothing can fail.
	if gone := append(c.api.SetAllowed(allowed), c.leases.SetAllowed(allowed)...); len(gone) > 0 {
		c.opt.Log.Warn("nodes that were added at run time are no longer allowed and leave", "nodes", strings.Join(gone, " "))
	}
	c.config.Store(&inForce)
	if data := c.data.Load(); data != nil {
		data.Apply(settings)
	}
	c.guard.Apply(guarding)
	c.opt.Kernel.Retune(tuningOf(&inForce))
	c.Send(state.ConfigChanged{NowNs: c.NowNs(), Settings: settingsOf(&inForce)})
	return restart, nil
}

// restartKeys names the keys of next that differ from what the router was
// started with and wait for a restart. Values that the start itself found for
// keys that were left open differ from nothing.
func (c *ControlPlane) restartKeys(next *config.Config) []string {
	started, filled := c.opt.Config, *next
	if filled.Seed == "" {
		filled.Seed = started.Seed
	}
	if !filled.Limits.ConnectionsGiven && !started.Limits.ConnectionsGiven {
		filled.Limits.Connections = started.Limits.Connections
	}
	return append(config.RestartKeys(started, &filled), tokenizerKeys(started, next)...)
}

// tokenizerKeys names the models of next whose tokenizer or template is another
// than the router has loaded.
func tokenizerKeys(started, next *config.Config) (keys []string) {
	loaded := map[string]config.Model{}
	for _, m := range started.Models {
		loaded[m.Name] = m
	}
	for i, m := range next.Models {
		if was := loaded[m.Name]; was.Tokenizer != m.Tokenizer || was.ChatTemplate != m.ChatTemplate {
			keys = append(keys, fmt.Sprintf("models[%d].tokenizer", i))
		}
	}
	return keys
}

// ReloadOK reports whether the last reload, if there was one, succeeded.
func (c *ControlPlane) ReloadOK() bool { return !c.reloadBad.Load() }
