// Package kubeclient is a client of Kubernetes for the few kinds of objects that are
// used.
//
// The clientset of client-go knows every kind of every group: whoever imports it has
// them all in the binary and registers them at start, for 9 MB of resident memory that
// most routers never need. This one lies over the same REST client and the same types,
// registers those groups only that it reaches, and that when the first client is made.
//
// It owns how a cluster is reached, in the same way for all who do: where the
// credentials come from, what is sent in which encoding, and how often. After a call that
// failed as it does by a wrong kubeconfig, one that was corrected is read again. What a
// cluster answers it returns as it is: errors are those of apimachinery, whose functions
// tell them apart. It knows nothing of nodes or fleets, contacts nobody unless one of a
// Resource's methods is called, and tries nothing again but what the REST client does.
package kubeclient
