// Package stormbench measures how much a storm of KV-cache events disturbs
// routing: all nodes of a fleet restart again and again and report all that
// they hold, at full speed, while requests come at a steady rate.
//
// Data plane and indexer are real and run in this process, as they do in the
// router; frames are those that a real engine has sent, decoded anew each time,
// with other tokens for each node and restart, and delivered as
// controlplane/streams.go does it. The nodes' side is one other process, which
// answers at once. Client and events share this process with the loops, so that
// the figures are on the safe side.
//
// It owns the made-up fleet, the storm and the measuring. It may assume a
// machine with two cores that nobody else uses. It never asserts anything: it
// prints figures, one JSON object a line.
package stormbench
