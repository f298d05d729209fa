package kubeclient

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options say how a cluster is reached.
type Options struct {
	Kubeconfig string // file; "" = as a pod of the cluster
	Context    string // of the kubeconfig; "" = its current one
	Namespace  string // "" = the kubeconfig's, or the pod's own
	Agent      string // what the API server's logs call the client
	// Calls a second, and at once; 0 = 5 and 10, which is for a person at a terminal.
	CallsPerSecond, CallsAtOnce int
}

// Open makes a client and returns it with its namespace. It contacts nobody. A kubeconfig
// that was corrected is read again when a call has failed for who calls, or whom; the
// namespace stays.
func Open(o Options) (c *Client, namespace string, err error) {
	if o.Kubeconfig == "" && o.Context != "" {
		return nil, "", fmt.Errorf("context %q is of a kubeconfig, and none is named: name it, or take the context out", o.Context)
	}
	file := remember(o.Kubeconfig, func() (*rest.Config, error) {
		config, _, err := o.load()
		return config, err
	})
	config, namespace, err := o.load()
	if err != nil {
		return nil, "", err
	}
	if c, err = New(config); err != nil {
		return nil, "", fmt.Errorf("make a client from kubeconfig %q: %w", o.Kubeconfig, err)
	}
	c.file = file
	return c, namespace, nil
}

// load reads how the cluster is reached, and the namespace.
func (o *Options) load() (config *rest.Config, namespace string, err error) {
	// Without a file the loader takes what a pod is given.
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: o.Context})
	config, err = loader.ClientConfig()
	if namespace = o.Namespace; err == nil && namespace == "" {
		namespace, _, err = loader.Namespace()
	}
	if err != nil {
		if o.Kubeconfig == "" {
			return nil, "", fmt.Errorf("reach the cluster from inside: %w; outside one name a kubeconfig", err)
		}
		return nil, "", fmt.Errorf("read kubeconfig %q: %w", o.Kubeconfig, err)
	}
	if _, _, err := rest.DefaultServerUrlFor(config); err != nil { // its words would show a password
		return nil, "", fmt.Errorf("read kubeconfig %q: the server in it is neither a URL nor host:port", o.Kubeconfig)
	}
	config.QPS, config.Burst = float32(o.CallsPerSecond), o.CallsAtOnce
	config.WarningHandlerWithContext = rest.NoWarnings{}
	config.UserAgent = o.Agent
	return config, namespace, nil
}
