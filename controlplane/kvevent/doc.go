// Package kvevent follows the engines' KV-cache events and turns them into
// what the prefix index holds for each node.
//
// A batch takes this way:
//
//	engine ── ZeroMQ ──► Subscriber        zmtp: connections, frames
//	                       Stream          which batches count, replay, trust
//	                       Decoder         MessagePack of three engines → Batch
//	                       deliver         a bounded queue of the control plane
//	indexer ◄─────────────── Delivery
//	   Tracker                             engine's block names → own units
//	   Index                               an *index.Writer
//
// There is one Subscriber for each rank of each node, with goroutines of its
// own that share a lock: they receive, order and decode. What they deliver
// belongs to the receiver until it is released. There is one Tracker for each
// rank, on the goroutine that owns the index.
//
// Decoder, Stream and Tracker are pure: no I/O, no clock, so that captures and
// scenario files (testdata) play them. They trust nothing that they are sent:
// sizes are bounded, what is odd is counted by its Reason and passed over.
//
// A stream can go on in another process (handover.go): it is followed there
// first, what comes is kept, and taken from where the former process was.
//
// The package owns the meaning of sequence numbers and of trust, and the
// mapping from engines' block names to prefix hashes. It may assume that the
// prefix hash of a unit stands for all before it. It never decides what trust
// is worth, never touches the index, and never blocks on whoever receives.
//
// Facts about engines are those of vLLM 0.8 to 0.32 (kv_events.py,
// block_pool.py), SGLang to 0.5.23 (disaggregation/kv_events.py,
// mem_cache/events.py) and the llm-d simulator 0.10.
package kvevent
