package stormbench

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"warmpath/controlplane/indexer"
	"warmpath/controlplane/kvevent"
	"warmpath/dataplane"
	"warmpath/dataplane/chat"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/prompt"
	"warmpath/dataplane/tokenize"
	"warmpath/dataplane/wire"
)

const (
	model      = "m"
	generation = 1
	seed       = 1
	unitTokens = 32 // the captures' block
	records    = 1 << 16
)

// template is in the manner of most models'.
const template = `{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}{{ '<|im_start|>assistant\n' }}`

// router is the data plane of a fleet, and the indexer.
type router struct {
	plane    *dataplane.Dataplane
	index    *index.Index
	indexer  *indexer.Indexer
	trackers []*kvevent.Tracker
	stop     context.CancelFunc
	wait     sync.WaitGroup
}

// startRouter runs a router before nodes that are all at one address.
func startRouter(o *Options) (*router, error) {
	models, err := exactModels(o.Tokenizer)
	if err != nil {
		return nil, err
	}
	rule, err := policy.New("cost", nil)
	if err != nil {
		return nil, err
	}
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	r := &router{index: index.New(index.Options{MemoryBytes: o.IndexBytes})}
	holder := fleet.NewHolder()
	holder.Store(snapshot(o))
	r.plane, err = dataplane.Start(dataplane.Options{
		Listener: ln, Loops: o.Loops, Fleet: holder, Index: r.index, Decisions: records * o.Loops,
		Settings: &dataplane.Settings{
			Policy: rule, Head: wire.Limits{HeadBytes: 8 << 10, Fields: 50}, BodyBytes: 8 << 20, RetryBodyBytes: 4 << 20,
			Connections: 10_000, ConnectNs: int64(2 * time.Second), IdleNodeNs: int64(4 * time.Second), SpeculativeNs: int64(2 * time.Second), HoldHead: true,
		},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return nil, fmt.Errorf("start data plane: %w", err)
	}
	r.plane.ApplyExact(models)
	r.startIndexer(o, holder)
	return r, nil
}

func (r *router) startIndexer(o *Options, holder *fleet.Holder) {
	rings, bell := r.plane.Notes()
	notes := make([]indexer.Ring, len(rings))
	for i, ring := range rings {
		notes[i] = ring
	}
	r.indexer = indexer.New(indexer.Options{
		Index: r.index, Fleet: holder, Notes: notes, Bell: bell, NowNs: r.plane.NowNs,
		LearnTTL: func() time.Duration { return time.Hour }, Swept: func(int, uint32) {},
	})
	for slot := range o.Nodes {
		r.trackers = append(r.trackers, kvevent.NewTracker(kvevent.TrackerOptions{Slot: slot, UnitTokens: unitTokens, Seed: seed, Model: model}, r.indexer.Writer()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	r.wait.Go(func() { r.indexer.Run(ctx) })
}

func (r *router) close() error {
	r.stop()
	r.wait.Wait()
	return r.plane.Stop()
}

// snapshot is a fleet of nodes that report and are proved.
func snapshot(o *Options) *fleet.Snapshot {
	s := &fleet.Snapshot{Version: 1, Seed: seed, Asked: true}
	m := fleet.Model{Name: model, UnitTokens: unitTokens}
	for slot := range o.Nodes {
		s.Nodes = append(s.Nodes, &fleet.Node{
			Slot: slot, Ranks: 1, Generation: generation, Name: fmt.Sprint("node", slot), URL: "http://" + o.Node, Address: o.Node, Host: o.Node,
			Engine: "vllm", State: fleet.Ready, CapacityClass: 1, Weight: 1, BlockTokens: unitTokens, UnitTokens: unitTokens,
			Trust: []fleet.Trust{fleet.TrustLive}, Exact: 1<<prompt.Classes - 1, Load: &fleet.Load{},
		})
		m.Slots = append(m.Slots, slot)
	}
	s.Models = []fleet.Model{m}
	return s.Seal()
}

// exactModels has the model with a small tokenizer.
func exactModels(file string) (*dataplane.ExactModels, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer: %w (run this in the root of the repository)", err)
	}
	tok, err := tokenize.Load(data)
	if err != nil {
		return nil, err
	}
	compiled, err := chat.Compile(template, chat.Options{})
	if err != nil {
		return nil, err
	}
	dialect, err := chat.NewDialect(chat.DialectOptions{Template: compiled})
	if err != nil {
		return nil, err
	}
	return dataplane.NewExactModels([]*prompt.Model{prompt.NewModel(prompt.Options{
		Name: model, Tokenizer: tok, Fingerprint: data, Dialect: dialect, UnitTokens: unitTokens, Memo: prompt.NewMemo(64 << 20),
	})}), nil
}
