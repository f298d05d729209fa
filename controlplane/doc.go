// Package controlplane turns signals into snapshots: correct first, fast
// second. It starts the sources of signals, runs the one goroutine that owns
// state.State, carries out the effects of state.Step and publishes snapshots.
//
// Goroutines and what they own:
//
//	reducer   state.State; the only caller of Step and of fleet.Holder.Store
//	indexer   index.Writer
//	sentinels what the hosts of silent nodes answer (sentinel.Keeper); events too
//	poller    one goroutine for all nodes whose addresses are numbers, three for each of
//	          the others (engine.Poller); results come as events, metrics' with the next tick
//	sources   one goroutine a source of nodes; each emits its full set
//	admin     net/http; reads copies, sends events
//
// Nothing here is on the path of a request. When the reducer stands still the
// data plane goes on with the last snapshot.
//
// Another process can take over (package takeover): Giver hands out what is known
// of each rank, at one moment each and with where its events or reports stand;
// Inherit takes it up, before the data plane is started and attached.
package controlplane
