package state

import "log/slog"

// Effect is something that the caller of Step has to do. Effects are carried
// out in their order; none of them may block.
type Effect interface{ effect() }

type (
	// Publish asks for a new snapshot of the State that came with it: at most
	// one a Step, the last of its effects.
	Publish struct{}
	// Probe asks for one exchange with the node's health route; it is answered
	// by ProbeResult.
	Probe struct {
		Node        string
		Incarnation uint64
		URL         string // of the node, without a trailing slash
		Path        string // of the health route
		TimeoutNs   int64
	}
	// AskModels asks for the engine's list of models; it is answered by
	// ModelsSeen.
	AskModels struct {
		Node        string
		Incarnation uint64
		URL         string
	}
	// DropSlot tells the indexer that the slot's tenant is gone: sweep it, then
	// answer with SlotSwept. The slot rests until then.
	DropSlot struct {
		Slot       int
		Generation uint32
	}
	// ClearSlot tells the indexer that the tenant's engine has restarted with
	// an empty cache: what is known of it is void, the slot stays in use.
	ClearSlot struct {
		Slot       int
		Generation uint32
	}
	// Drained says that a draining node is idle, or with TimedOut that it was
	// not within the drain time-out.
	Drained struct {
		Node     string
		TimedOut bool
	}
	// Log is one line for the log.
	Log struct {
		Level   slog.Level
		Message string
		Attrs   []slog.Attr
	}
)

func (Publish) effect()   {}
func (Probe) effect()     {}
func (AskModels) effect() {}
func (DropSlot) effect()  {}
func (ClearSlot) effect() {}
func (Drained) effect()   {}
func (Log) effect()       {}
