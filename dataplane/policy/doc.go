// Package policy chooses the node of a request. Every policy is pure: what it
// decides follows from the snapshot, the request, its match, the loads and the
// inputs that the caller passes, so that any decision can be replayed and
// explained. Preparation that depends on the snapshot alone (rings, orders)
// is done once a snapshot by Prepare. Policies keep no hidden state, read no
// clock and draw no random numbers of their own.
//
// All policies share their ground (view.go, choose.go): a candidate is ready,
// its breaker is closed, it is under its cap, serves the model, and prompt and
// answer fit its context. A policy gives each candidate a score, lower is
// better, and a group, which goes before the score. Equals are ordered by
// rendezvous of the affinity key, so that replicas agree, or by Inputs.Rand
// where the request has none. A measurement that is not known vetoes nothing
// and adds nothing; what no engine could mean (NaN, infinities, negative
// rates) counts as not known. Scores are finite whatever the inputs. What is in
// flight at a node that ramps counts more than once, for new work (ramp.go).
//
// The package owns no counters and no index: what a decision changes
// (counters, speculative entries) is the caller's to record. It never waits,
// never retries and knows no last resort: with no candidate it says so.
package policy
