package kubernetes

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"warmpath/kubeclient"
	"warmpath/scaler/actuate"
)

// Kinds of workload.
const (
	Deployment  = "deployment"
	StatefulSet = "statefulset"
)

// MaxNodes bounds the nodes of one workload: their record must fit a ConfigMap.
const MaxNodes = 1000

const (
	defaultTimeout = 10 * time.Second
	// costSettles is how long the controller gets to see a pod's deletion cost before
	// replicas are lowered: it hears of pods and of replicas on two ways.
	costSettles = 500 * time.Millisecond
	// Of calls to the API server; the client's own are for a person at a terminal.
	callsPerSecond, callsAtOnce = 50, 100
)

// Options say which workload is scaled and how it is reached.
type Options struct {
	Kubeconfig string // file; "" = as a pod of the cluster
	Context    string // of the kubeconfig; "" = its current one
	Namespace  string // "" = the kubeconfig's, or the pod's own
	Kind       string // Deployment or StatefulSet; "" = Deployment
	Name       string // of the workload
	// Port is where the engine listens, as a number or by its name in the pod's template;
	// "" = not known: the node is found by discovery or registers itself.
	Port     string
	Fleet    string        // marks the record and the pods; as a key in form
	MaxNodes int           // beyond the baseline; 0 = MaxNodes
	Timeout  time.Duration // of one call to the API server; 0 = 10 s
	Log      *slog.Logger
	Client   *kubeclient.Client // in place of Kubeconfig; it needs a Namespace
}

// check fills in defaults, makes the client and returns what is wrong.
func (o *Options) check() error {
	if o.Kind == "" {
		o.Kind = Deployment
	}
	if o.MaxNodes == 0 {
		o.MaxNodes = MaxNodes
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Kind != Deployment && o.Kind != StatefulSet:
		return fmt.Errorf("kind %q: use %s or %s", o.Kind, Deployment, StatefulSet)
	case o.Name == "":
		return fmt.Errorf("the name of the %s is empty: name one", o.Kind)
	case o.MaxNodes < 0 || o.MaxNodes > MaxNodes:
		return fmt.Errorf("max nodes %d: use 1 to %d, or 0, which is %d", o.MaxNodes, MaxNodes, MaxNodes)
	case o.Timeout < 0:
		return fmt.Errorf("timeout %v: use a time above 0", o.Timeout)
	}
	if faults := validation.IsDNS1123Subdomain(o.Name); len(faults) > 0 {
		return fmt.Errorf("name %q: %s", o.Name, faults[0])
	}
	if err := checkPort(o.Port); err != nil {
		return fmt.Errorf("port %q: %w", o.Port, err)
	}
	if err := actuate.CheckKey(o.Fleet); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if err := o.connect(); err != nil {
		return err
	}
	if faults := validation.IsDNS1123Label(o.Namespace); len(faults) > 0 {
		return fmt.Errorf("namespace %q: %s", o.Namespace, faults[0])
	}
	return nil
}

func checkPort(port string) error {
	if n, err := strconv.Atoi(port); err == nil {
		if n < 1 || n > 65535 || strconv.Itoa(n) != port {
			return errors.New("use 1 to 65535, or a port's name in the template")
		}
		return nil
	}
	if port != "" && len(validation.IsValidPortName(port)) > 0 {
		return errors.New("neither a number nor the name of a port: names have small letters, digits and '-', at most 15 bytes")
	}
	return nil
}

// connect makes the client. It contacts nobody.
func (o *Options) connect() error {
	if o.Client != nil {
		return nil
	}
	var err error
	o.Client, o.Namespace, err = kubeclient.Open(kubeclient.Options{
		Kubeconfig: o.Kubeconfig, Context: o.Context, Namespace: o.Namespace,
		Agent: "warmpath-scaler", CallsPerSecond: callsPerSecond, CallsAtOnce: callsAtOnce,
	})
	return err
}
