// Package discover says which nodes there should be. Every source always
// emits its full set, never a difference, so that whoever reads it compares
// and nothing can be lost.
//
// A source that cannot look says so, and its last set stands.
//
// It owns the sources (Static from the configuration, File, DNS, API for nodes
// added at run time, Leases for those that register themselves) and the rule by which URLs are allowed. What a node may be called
// and where it may stand is state.Spec's to say; how several sources make one
// fleet is state.Step's. It never contacts a node and knows nothing of a
// node's state.
package discover
