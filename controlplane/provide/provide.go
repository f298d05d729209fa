package provide

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"warmpath/controlplane/config"
	"warmpath/scaler"
	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/command"
	"warmpath/scaler/actuate/ec2"
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
// asked of it, and says why, until it can.
func New(s *config.Scaler, opt Options) Actuators {
	a := Actuators{ByOffer: map[string]actuate.Actuator{}, Callbacks: map[string]http.Handler{}}
	for i := range s.Offers {
		o := &s.Offers[i]
		again := func() (actuate.Actuator, error) { return make1(s, o, opt) }
		made, err := again()
		if err != nil { // whoever lists its nodes hears of it
			made = &late{make: again}
		}
		if h, ok := made.(http.Handler); ok && o.Provider == "webhook" {
			a.Callbacks[o.Name] = h
		}
		a.ByOffer[o.Name] = made
	}
	return a
}

// Callback returns who takes what the provider of an offer tells of its own accord,
// nil if nobody does. taken is called after each that was taken: what nobody signed
// must not make this process ask providers.
func (a Actuators) Callback(offer string, taken func()) http.Handler {
	h := a.Callbacks[offer]
	if h == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		said := &answered{ResponseWriter: w}
		h.ServeHTTP(said, r)
		if said.status < 300 {
			taken()
		}
	})
}

// answered remembers the status of an answer.
type answered struct {
	http.ResponseWriter
	status int // 0 = none was written, which is 200
}

// WriteHeader implements http.ResponseWriter.
func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

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
		read := func() ([]byte, error) {
			secret, err := os.ReadFile(w.SecretFile)
			if err != nil {
				return nil, fmt.Errorf("read webhook.secret_file: %w", err)
			}
			return bytes.TrimSpace(secret), nil
		}
		secret, err := read()
		if err != nil {
			return nil, err
		}
		return webhook.New(webhook.Options{
			URL: w.URL, Secret: secret, Reread: read, CallbackURL: w.CallbackURL, Fleet: fleet, Timeout: w.Timeout, Settings: settingsOf(o), Log: opt.Log,
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
	case "ec2":
		return makeEC2(&o.EC2, fleet, o.Quota, opt)
	default:
		return nil, fmt.Errorf("provider %q is not known", o.Provider)
	}
}

func makeEC2(e *config.EC2Offer, fleet string, quota int, opt Options) (actuate.Actuator, error) {
	var userData []byte
	if e.UserDataFile != "" {
		var err error
		if userData, err = os.ReadFile(e.UserDataFile); err != nil {
			return nil, fmt.Errorf("read ec2.user_data_file: %w", err)
		}
	}
	return ec2.New(ec2.Options{
		Region: e.Region, Endpoint: e.Endpoint, Profile: e.Profile, LaunchTemplate: e.LaunchTemplate, Image: e.Image, InstanceType: e.InstanceType,
		Subnet: e.Subnet, SecurityGroups: e.SecurityGroups, KeyName: e.KeyName, InstanceProfile: e.InstanceProfile, UserData: string(userData),
		Spot: e.Spot, MaxPrice: e.MaxPrice, Address: e.Address, Port: e.Port, Fleet: fleet, MaxNodes: quota, Log: opt.Log,
	})
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

// Config is the scaler's configuration.
func Config(s *config.Scaler) scaler.Config {
	c := scaler.Config{
		IntervalSeconds: s.Interval.Seconds(), Min: s.Min, Max: s.Max, TargetTTFTSeconds: s.TargetTTFT.Seconds(), Attainment: s.Attainment, TargetSlowdown: s.TargetSlowdown,
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
