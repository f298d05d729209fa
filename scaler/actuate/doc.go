// Package actuate is how the scaler gets nodes and gives them back: what every
// provider can be asked for, and in which words it says no. Each provider has a
// folder of its own.
//
// An Actuator owns the talk with one provider about the nodes that carry one
// fleet's mark. It may assume that its caller serialises calls about one key,
// keeps a journal of what it asked for, and asks List again when it does not know
// how a call ended.
//
// It never decides how many nodes there are, never drains, never ends a node that
// it was not told to end, and keeps nothing that a restart would lose: what it
// knows of its nodes it reads back from the provider.
package actuate
