package dataplane

import (
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/tally"
)

// ModelTally is what requests of one model ask of its nodes, and how soon they are
// answered.
type ModelTally struct {
	Requests       uint64 // that were decided on, sent or not; tries after the first are none
	PromptTokens   uint64 // of those that were sent …
	UncachedTokens uint64 // … and of them, what the chosen node was not known to hold
	Uncached       tally.Histogram
	// TTFT is of streams, by the bucket of Uncached: seconds from the whole request to its
	// first event.
	TTFT         []tally.Histogram
	OutputTokens uint64 // of answers that ended well; an event is one where the engine does not say …
	Answers      uint64 // … of so many
}

// UncachedBounds and TTFTBounds are the upper bounds of ModelTally's histograms, in
// tokens and in seconds. They are not to be changed.
var (
	UncachedBounds = []float64{64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536, 131072}
	TTFTBounds     = []float64{.025, .05, .1, .15, .2, .3, .4, .5, .6, .8, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 15, 20, 30, 45, 60, 120, 300}
)

func newModelTally() *ModelTally {
	t := &ModelTally{Uncached: tally.NewHistogram(UncachedBounds), TTFT: make([]tally.Histogram, len(UncachedBounds)+1)}
	for size := range t.TTFT {
		t.TTFT[size] = tally.NewHistogram(TTFTBounds)
	}
	return t
}

func (t *ModelTally) merge(o *ModelTally) {
	t.Requests += o.Requests
	t.PromptTokens += o.PromptTokens
	t.UncachedTokens += o.UncachedTokens
	t.Uncached.Merge(&o.Uncached)
	for size := range t.TTFT {
		t.TTFT[size].Merge(&o.TTFT[size])
	}
	t.OutputTokens += o.OutputTokens
	t.Answers += o.Answers
}

// maxModelTallies bounds the models that a loop counts apart; beyond it they are
// forgotten, and those in use counted anew.
const maxModelTallies = 4096

// refreshModels makes room for the models of snap.
func (t *loopTally) refreshModels(snap *fleet.Snapshot) {
	if len(t.models)+len(snap.Models) > maxModelTallies || t.models == nil {
		t.models = make(map[string]*ModelTally, len(snap.Models))
	}
	t.byModel = resize(t.byModel, len(snap.Models))
	for i := range snap.Models {
		name := snap.Models[i].Name
		if t.models[name] == nil {
			t.models[name] = newModelTally()
		}
		t.byModel[i] = t.models[name]
	}
}

// modelTally returns the tally of the exchange's model, nil if it names none.
func (l *loop) modelTally(x *exchange) *ModelTally {
	switch {
	case x.snap == nil || x.model < 0 || x.model >= len(x.snap.Models) || !x.class.prompt:
		return nil
	case x.snap == l.view.snap:
		return l.tally.byModel[x.model]
	default: // another was published while it was under way
		return l.tally.models[x.snap.Models[x.model].Name]
	}
}

// countArrival counts a request that was decided on for the first time.
func (l *loop) countArrival(x *exchange) {
	t := l.modelTally(x)
	if t == nil {
		return
	}
	if !x.wait.arrived { // what waits for a node is decided on again
		x.wait.arrived = true
		t.Requests++
	}
	if slot := x.decision.Slot; slot >= 0 && !x.wait.placed {
		x.wait.placed = true
		uncached := x.uncached(slot)
		t.PromptTokens += uint64(x.polReq.PromptTokens)
		t.UncachedTokens += uint64(uncached)
		x.wait.size = t.Uncached.Bucket(float64(uncached))
		t.Uncached.ObserveIn(x.wait.size, float64(uncached))
	}
}

// countTTFT counts the time to the first event of a stream, with all that it waited
// for here.
func (l *loop) countTTFT(x *exchange) {
	if t := l.modelTally(x); t != nil {
		t.TTFT[x.wait.size].Observe(seconds(l.now - x.readNs))
	}
}

// countOutput counts how long an answer was. One that was not streamed and does not
// say is left out.
func (l *loop) countOutput(x *exchange) {
	tokens := x.watch.CompletionTokens
	if tokens < 0 {
		tokens = int64(x.watch.Events)
	}
	if t := l.modelTally(x); t != nil && tokens > 0 {
		t.OutputTokens += uint64(tokens)
		t.Answers++
	}
}
