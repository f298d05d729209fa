// Package discover says which nodes there should be. Every source always
// emits its full set, never a difference, so that whoever reads it compares
// and nothing can be lost.
//
// It owns the description of a node (Spec), its validation, the sources
// (Static from the configuration, API for nodes added at run time) and the
// rule by which several sources make one set. It never contacts a node and
// knows nothing of a node's state.
package discover
