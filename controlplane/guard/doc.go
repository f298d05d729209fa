// Package guard owns the life of the XDP guard (package bpf) on the interface
// where clients come in: it attaches it, gives it lists, limits and the share to
// shed, follows reloads of the configuration, and says how it stands.
//
// A router does not depend on it. Where it cannot be had (no privilege, another
// XDP program, no such interface) the Keeper says so once, with the remedy, and
// tries again where time may cure it.
//
// The guard drops SYNs alone. It may be pinned and then outlives this process:
// the next one takes it over and the former one, if it still drains, stands down.
// What it sheds is renewed each second and lapses within five, so that a router
// that died cannot keep clients out; lists and rates stay.
//
// It knows nothing of requests. The fleet's state reaches it as two figures
// (Signals).
package guard
