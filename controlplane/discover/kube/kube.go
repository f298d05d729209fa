package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"warmpath/controlplane/discover"
	"warmpath/controlplane/engine"
	"warmpath/controlplane/state"
	"warmpath/kubeclient"
)

// Options say which EndpointSlices are followed and what their endpoints are.
type Options struct {
	Kubeconfig string // file; "" = as a pod of the cluster
	Context    string // of the kubeconfig; "" = its current one
	Namespace  string // "" = the kubeconfig's, or the pod's own
	Service    string // whose slices are followed; or
	Selector   string // labels of the slices that are followed
	// Port is where the engines listen: a number, which no slice need name, or a port's
	// name in the slices; "" = the one that they have.
	Port   string
	Node   state.Spec     // what all nodes have; its Name and URL are not used
	Client EndpointSlices // in place of Kubeconfig: those of Namespace, which must be named
}

// Source is the source of the nodes that EndpointSlices name.
type Source struct {
	opt      Options
	selector string
	what     string // is followed, for people
	number   int    // Port, if that is one
	nodes    map[string]*node
	backoff  *wait.Backoff // nil = the reflector's: 0.8 s to 30 s
}

var _ discover.Source = (*Source)(nil)

// New checks the options and contacts nobody.
func New(opt Options) (*Source, error) {
	s := &Source{opt: opt, nodes: map[string]*node{}}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("discovery.kubernetes: %w", err)
	}
	return s, nil
}

func (s *Source) check() error {
	switch o := &s.opt; {
	case (o.Service == "") == (o.Selector == ""):
		return errors.New("name either a service or a selector of EndpointSlices")
	case o.Service != "":
		if faults := validation.IsDNS1035Label(o.Service); len(faults) > 0 {
			return fmt.Errorf("service %q: %s", o.Service, faults[0])
		}
		s.what, s.selector = o.Service, discoveryv1.LabelServiceName+"="+o.Service
	default:
		selector, err := labels.Parse(o.Selector)
		if err == nil && selector.Empty() {
			err = errors.New("it selects everything: name labels")
		}
		if err != nil {
			return fmt.Errorf("selector %q: %w", o.Selector, err)
		}
		s.what, s.selector = selector.String(), selector.String()
	}
	if n, err := strconv.Atoi(s.opt.Port); err == nil {
		if n < 1 || n > 65535 || strconv.Itoa(n) != s.opt.Port {
			return fmt.Errorf("port %q: use 1 to 65535, or a port's name", s.opt.Port)
		}
		s.number = n
	} else if s.opt.Port != "" && len(validation.IsDNS1123Label(s.opt.Port)) > 0 {
		return fmt.Errorf("port %q: neither a number nor the name of a port", s.opt.Port)
	}
	if err := s.connect(); err != nil {
		return err
	}
	if faults := validation.IsDNS1123Label(s.opt.Namespace); len(faults) > 0 {
		return fmt.Errorf("namespace %q: %s", s.opt.Namespace, faults[0])
	}
	if !engine.Known(s.opt.Node.Engine) {
		return fmt.Errorf("engine %q is not known: use %s", s.opt.Node.Engine, strings.Join(engine.Names(), ", "))
	}
	return s.checkNode()
}

// checkNode checks what all nodes have.
func (s *Source) checkNode() error {
	example := s.opt.Node
	example.Name, example.URL = "example", "http://192.0.2.1:8000"
	checked, err := example.Validate()
	if err != nil {
		return err
	}
	s.opt.Node = checked
	return nil
}

// connect makes the client. It contacts nobody.
func (s *Source) connect() error {
	o := &s.opt
	if o.Client != nil {
		return nil
	}
	c, namespace, err := kubeclient.Open(kubeclient.Options{
		Kubeconfig: o.Kubeconfig, Context: o.Context, Namespace: o.Namespace, Agent: "warmpath-discovery",
	})
	if err != nil {
		return err
	}
	o.Client, o.Namespace = c.EndpointSlices(namespace), namespace
	return nil
}

// Name is "kubernetes:", the namespace, '/', the service or the selector, and the port
// if one is named.
func (s *Source) Name() string {
	name := "kubernetes:" + s.opt.Namespace + "/" + s.what
	if s.opt.Port != "" {
		name += ":" + s.opt.Port
	}
	return name
}

// Run implements discover.Source.
func (s *Source) Run(ctx context.Context, to discover.Listener) error {
	seen := newStore()
	quiet := logr.Discard() // what fails is said to the listener
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, quiet))
	reflector := cache.NewReflectorWithOptions(
		&source{client: s.opt.Client, selector: s.selector, to: seen},
		&discoveryv1.EndpointSlice{}, seen, cache.ReflectorOptions{Name: s.Name(), Logger: &quiet, Backoff: s.backoff})
	done := make(chan struct{})
	go func() {
		defer close(done)
		reflector.RunWithContext(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	s.follow(ctx, seen, to)
	return nil
}

// follow tells of what the store has, until ctx ends.
func (s *Source) follow(ctx context.Context, seen *store, to discover.Listener) {
	var told []state.Spec
	ever, failing := false, false
	look := time.NewTimer(0)
	look.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-seen.changed:
		case <-look.C:
		}
		all, listed, err := seen.load()
		if listed {
			nodes, again, fault := s.merge(all, time.Now())
			if again > 0 {
				look.Reset(again)
			} else {
				look.Stop()
			}
			if err == nil {
				err = fault
			}
			// What is known of nodes is told also when no newer can be had.
			known := !errors.Is(fault, errFrozen)
			if known && (!ever || !slices.EqualFunc(nodes, told, state.Spec.Equal) || failing && err == nil) {
				ever, told = true, nodes
				to.Emit(slices.Clone(nodes))
			}
		}
		if failing = err != nil; failing && ctx.Err() == nil {
			to.Failed(fmt.Errorf("follow discovery.kubernetes %s: %w", s.what, err))
		}
	}
}
