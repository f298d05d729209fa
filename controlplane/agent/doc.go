// Package agent is the reporter on a GPU node: it listens to the engine's
// KV-cache events on the spot and tells every configured router what the cache
// holds, by the push protocol (package report is the other end).
//
// It owns the node's view of its engine's live blocks and, for each router, what
// that router still has to be told. All of that is Core, which is pure: events,
// answers and times come in by calls, the next report goes out by a call. Agent
// puts Core behind an engine's event port and HTTP clients.
//
// Beside that, and without it, Registration keeps the node registered with routers
// for as long as the agent runs, and SayLoad has the kernel put the engine's queue and KV
// use into segments of its answers (package bpf), where package kernel reads them on
// the routers' side. Nothing of it reaches Core.
//
// It may assume that events of one rank come in the engine's order, and that
// whoever brings them says when some are missing. It claims too little rather
// than too much: what it is not sure of, it takes back. It keeps no files, and a
// router that is away costs it a bounded amount of memory.
package agent
