package controlplane

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"warmpath/controlplane/config"
	"warmpath/controlplane/engine"
	"warmpath/controlplane/kernel"
	"warmpath/controlplane/state"
	"warmpath/dataplane"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/prefix"
	"warmpath/dataplane/wire"
)

// firstEventFloorNs is the least silence that first_event: auto allows.
const firstEventFloorNs = int64(20e9)

// hedgeFloorNs is the least silence that hedge: auto waits for.
const hedgeFloorNs = int64(1e9)

// kernelSlots is how many connections to nodes are followed segment by segment:
// 3 MiB of memory that is shared with the kernel.
const kernelSlots = 1 << 14

// KernelOptions translates a configuration for the kernel plane.
func KernelOptions(c *config.Config, log *slog.Logger) kernel.Options {
	return kernel.Options{
		Mode: c.Kernel.Mode, Slots: kernelSlots, Log: log,
		Tuning: tuningOf(c), NodeLoad: c.Kernel.NodeLoad,
	}
}

// tuningOf is how connections to nodes are treated. Nodes that are added at run time
// have the marks that all have.
func tuningOf(c *config.Config) kernel.Tuning {
	k := &c.Kernel
	t := kernel.Tuning{
		RTOMin: k.RTOMin, SynRTO: k.SynRTO, UserTimeout: k.UserTimeout, NotSentLowatBytes: k.NotSentLowatBytes,
		Mark: kernel.Mark(k.Mark), Marks: map[string]kernel.Mark{},
	}
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Mark != (config.Mark{}) {
			t.Marks[n.Name] = kernel.Mark(n.Mark)
		}
	}
	return t
}

// DataplaneSettings translates a configuration for the data plane.
func DataplaneSettings(c *config.Config) (*dataplane.Settings, error) {
	rule, err := policy.New(c.Policy.Name, policy.Params(c.Policy.Params))
	if err != nil {
		return nil, fmt.Errorf("make policy: %w", err)
	}
	s := &dataplane.Settings{
		Policy: rule, Island: c.Site.Island,
		Head:      wire.Limits{HeadBytes: int(c.Limits.HeadBytes), Fields: c.Limits.Headers},
		BodyBytes: c.Limits.BodyBytes, RetryBodyBytes: int(c.Limits.RetryBodyBytes), RoutingWindowBytes: c.Limits.RoutingWindowBytes, MemoryBytes: memoryBudget(c.Limits.MemoryBytes), Connections: c.Limits.Connections,
		ConnectNs: int64(c.Timeouts.Connect), HeadNs: int64(c.Timeouts.Head), FirstEventNs: int64(c.Timeouts.FirstEvent.Value),
		FirstAuto: c.Timeouts.FirstEvent.Auto, IdleStreamNs: int64(c.Timeouts.IdleStream), RequestNs: int64(c.Timeouts.Request),
		IdentifyNs:   int64(c.Timeouts.Identify),
		HoldRequests: c.Limits.HoldRequests, HoldBytes: c.Limits.HoldBytes, HoldNs: int64(c.Timeouts.Hold),
		IdleClientNs: int64(c.Timeouts.IdleClient), IdleNodeNs: int64(c.Timeouts.IdleNode),
		SpeculativeNs: int64(c.Index.SpeculativeTTL),
		Retries:       c.Retry.Retries, RetryBudget: c.Retry.Budget, HoldHead: c.Retry.HoldStreamHead, TrustedSource: c.TrustedProxies,
		HedgeNs: int64(c.Retry.Hedge.Value), HedgeAuto: c.Retry.Hedge.Auto,
	}
	if s.HoldRequests == 0 {
		s.HoldRequests = -1 // none
	}
	if s.FirstAuto {
		s.FirstEventNs = firstEventFloorNs
	}
	if s.HedgeAuto {
		s.HedgeNs = hedgeFloorNs
	}
	if len(c.Timeouts.Paths) > 0 {
		s.RequestNsByPath = make(map[string]int64, len(c.Timeouts.Paths))
		for path, d := range c.Timeouts.Paths {
			s.RequestNsByPath[path] = int64(d)
		}
	}
	return s, nil
}

// settingsOf is what the State needs of a configuration whose seed is set.
func settingsOf(c *config.Config) state.Settings { return c.StateSettings(prefix.Seed(c.Seed)) }

func specsOf(c *config.Config) []state.Spec { return specs(c.Nodes) }

func specs(nodes []config.Node) []state.Spec {
	specs := make([]state.Spec, len(nodes))
	for i, n := range nodes {
		specs[i] = state.Spec{
			Name: n.Name, URL: n.URL, Models: n.Models, Engine: n.Engine, Island: n.Island, Region: n.Region,
			Weight: n.Weight, MaxInFlight: n.MaxInFlight,
			KVEvents: state.KVEvents{
				Endpoint: n.KVEvents.Endpoint, Listen: n.KVEvents.Listen, Replay: n.KVEvents.Replay,
				Topic: n.KVEvents.Topic, Ranks: n.KVEvents.Ranks,
			},
			HashScheme: n.HashScheme, PrefixTokens: n.PrefixTokens,
		}
	}
	return specs
}

func statusOf(err error) int {
	var status *engine.StatusError
	if errors.As(err, &status) {
		return status.Status
	}
	return 0
}

// Seed returns the fleet's seed of chain hashes: the configured one; else the
// one of the process that is taken over from, "" if there is none; else the one
// kept in the state folder, made at the first start; else one for this process
// alone.
func Seed(c *config.Config, inherited string) (string, error) {
	if c.Seed != "" {
		return c.Seed, nil
	}
	fresh := inherited
	if fresh == "" {
		var random [16]byte
		if _, err := rand.Read(random[:]); err != nil {
			return "", fmt.Errorf("make seed: %w", err)
		}
		fresh = hex.EncodeToString(random[:])
	}
	if c.StateDir == "" {
		return fresh, nil
	}
	path := filepath.Join(c.StateDir, "seed")
	raw, err := os.ReadFile(path)
	kept := strings.TrimSpace(string(raw))
	if err == nil && kept != "" && (inherited == "" || kept == inherited) {
		return kept, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read seed from state_dir %q: %w", c.StateDir, err)
	}
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return "", fmt.Errorf("make state_dir %q: %w", c.StateDir, err)
	}
	if err := os.WriteFile(path, []byte(fresh+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep seed in state_dir %q: %w", c.StateDir, err)
	}
	return fresh, nil
}
