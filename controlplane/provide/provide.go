package provide

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"warmpath/controlplane/config"
	"warmpath/scaler"
	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/command"
	"warmpath/scaler/actuate/kubernetes"
	"warmpath/scaler/actuate/process"
	"warmpath/scaler/actuate/webhook"
)

// Options are what actuators need beside the configuration.
type Options struct {
	Environ []string // of processes and scripts
	Log     *slog.Logger
}

// Actuators are those of a configuration's offers, by name.
type Actuators struct {
	ByOffer map[string]actuate.Actuator
	// Callbacks take what providers tell of their own accord, by offer.
	Callbacks map[string]http.Handler
}

// New makes an actuator for each offer. One that cannot be made refuses whatever is
// asked of it, and says why; that is logged too.
func New(s *config.Scaler, opt Options) Actuators {
	a := Actuators{ByOffer: map[string]actuate.Actuator{}, Callbacks: map[string]http.Handler{}}
	for i := range s.Offers {
		o := &s.Offers[i]
		made, err := make1(s, o, opt)
		if err != nil {
			opt.Log.Error("scaler: an offer cannot be used", "offer", o.Name, "provider", o.Provider, "err", err)
			made = broken{err}
		}
		if h, ok := made.(http.Handler); ok {
			a.Callbacks[o.Name] = h
		}
		a.ByOffer[o.Name] = made
	}
	return a
}

// Close ends the talk with all providers.
func (a Actuators) Close() error {
	var errs []error
	for _, one := range a.ByOffer {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// fleetOf marks the nodes of one offer: two offers of one provider do not see each
// other's.
func fleetOf(s *config.Scaler, o *config.Offer) string { return s.Fleet + "-" + o.Name }

func make1(s *config.Scaler, o *config.Offer, opt Options) (actuate.Actuator, error) {
	fleet := fleetOf(s, o)
	switch o.Provider {
	case "process":
		return process.New(process.Options{
			Command: o.Process.Command, Fleet: fleet, FirstPort: o.Process.FirstPort, LastPort: o.Process.LastPort,
			LogDir: o.Process.LogDir, MaxNodes: o.Quota, StopAfter: o.Process.StopAfter, Environ: opt.Environ, Log: opt.Log,
		})
	case "command":
		c := &o.Command
		return command.New(command.Options{Create: c.Create, Delete: c.Delete, List: c.List, Fleet: fleet, Timeout: c.Timeout, Environ: opt.Environ, Settings: settingsOf(o)})
	case "webhook":
		w := &o.Webhook
		secret, err := os.ReadFile(w.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("read webhook.secret_file: %w", err)
		}
		return webhook.New(webhook.Options{
			URL: w.URL, Secret: bytes.TrimSpace(secret), CallbackURL: w.CallbackURL, Fleet: fleet, Timeout: w.Timeout, Settings: settingsOf(o), Log: opt.Log,
		})
	case "kubernetes":
		k := &o.Kubernetes
		kind := kubernetes.Deployment
		if k.Kind == "statefulset" {
			kind = kubernetes.StatefulSet
		}
		return kubernetes.New(kubernetes.Options{
			Kubeconfig: k.Kubeconfig, Context: k.Context, Namespace: k.Namespace, Kind: kind, Name: k.Name, Port: k.Port, Fleet: fleet, MaxNodes: o.Quota, Log: opt.Log,
		})
	default:
		return nil, fmt.Errorf("provider %q is not known", o.Provider)
	}
}

// settingsOf is what scripts and webhooks are told of an offer.
func settingsOf(o *config.Offer) map[string]string {
	settings := map[string]string{"offer": o.Name}
	for name, value := range map[string]string{"region": o.Region, "gpu": o.GPU, "island": o.Island} {
		if value != "" {
			settings[name] = value
		}
	}
	return settings
}

// broken is an offer that cannot work.
type broken struct{ err error }

func (b broken) Create(context.Context, actuate.Wanted) (actuate.Instance, error) {
	return actuate.Instance{}, actuate.Refused(actuate.Settings, b.err)
}
func (b broken) Delete(context.Context, actuate.Instance) error { return b.err }
func (b broken) List(context.Context) ([]actuate.Instance, error) {
	return nil, actuate.Refused(actuate.Settings, b.err)
}
func (b broken) Close() error { return nil }

// Config is the scaler's configuration.
func Config(s *config.Scaler) scaler.Config {
	c := scaler.Config{
		IntervalSeconds: s.Interval.Seconds(), Min: s.Min, Max: s.Max, TargetTTFTSeconds: s.TargetTTFT.Seconds(), Attainment: s.Attainment,
		Triggers: scaler.Triggers{
			QueueDepth: s.Triggers.Queue, LowQueueDepth: s.Triggers.LowQueue, HitRatio: s.Triggers.HitRatio,
			TTFTSeconds: s.Triggers.TTFT.Seconds(), KVUse: s.Triggers.KVUse,
		},
		StabiliseUpSeconds: s.StabiliseUp.Seconds(), StabiliseDownSeconds: s.StabiliseDown.Seconds(), CoolDownSeconds: s.CoolDown.Seconds(),
		StepUp: s.StepUp, StepDown: s.StepDown, RecoverySeconds: s.Recovery.Seconds(), IdleSeconds: s.Idle.Seconds(), ReplaceDownSeconds: s.ReplaceDown.Seconds(),
		BudgetPerHour: s.Budget, MaxLatencySeconds: s.MaxLatency.Seconds(), Spread: s.Placement == "spread",
		StartUpSeconds: s.StartUp.Seconds(), PrefillTokensPerSecond: s.PrefillRate,
	}
	for i := range s.Offers {
		o := &s.Offers[i]
		c.Offers = append(c.Offers, scaler.Offer{
			Name: o.Name, Provider: o.Provider, Region: o.Region, GPU: o.GPU, Island: o.Island, PricePerHour: o.Price,
			LatencySeconds: o.Latency.Seconds(), StartUpSeconds: o.StartUp.Seconds(), Quota: o.Quota, Weight: o.Weight,
		})
	}
	return c
}

// Book is what the scaler's Book goes by. drainNs is the longest drain of a node.
func Book(s *config.Scaler, drainNs int64) scaler.BookSettings {
	c := Config(s)
	return scaler.BookSettings{
		Epoch: "0", Orphans: s.Orphans, DrainNs: drainNs, EndUndrained: s.DrainExpired == "end", StartUpSeconds: c.StartUpSeconds, Offers: c.Offers,
	}
}
