package engine

import (
	"flag"
	"testing"
)

var live = flag.String("engine", "", "base URL of a real engine, to be read as the router would")

// What a running engine says must be known in full: a gauge that turned
// unknown is a renamed metric.
func TestLiveEngine(t *testing.T) {
	if *live == "" {
		t.Skip("no real engine given (-engine URL)")
	}
	p := newTestProber(t)
	if err := p.Health(t.Context(), *live, "", 0); err != nil {
		t.Error(err)
	}
	list, err := p.Models(t.Context(), *live)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("models: %+v", list)
	if len(list.Models) == 0 || list.Models[0].MaxModelLen == 0 {
		t.Error("no model with its length")
	}
	s, err := p.Metrics(t.Context(), Auto, *live)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("metrics: %s", show(s))
	if s.Engine != list.Engine {
		t.Errorf("the metrics are of %q, the models of %q", s.Engine, list.Engine)
	}
	known := s.Queued.Known && s.Running.Known && s.KVUse.Known && s.HitTokens.Known && s.QueryTokens.Known &&
		s.PromptTokens.Known && s.GeneratedTokens.Known && s.BlockTokens > 0 && s.CacheTokens > 0
	if !known {
		t.Error("something is unknown")
	}
}
