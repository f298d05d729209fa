package llmdkv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// What is compared: prompts of 8,192 tokens in blocks of 16. Each is held by so
// many of 16 nodes, the k-th of which has the first share of (k+1)/holders.
const (
	nodes       = 16
	prompts     = 64
	tokens      = 8192
	blockTokens = 16
	blocks      = tokens / blockTokens
	model       = "model"
	rounds      = 5
)

// result is one line of the output: medians of the rounds.
type result struct {
	Subject     string  `json:"subject"`
	Tokens      int     `json:"tokens"`
	Nodes       int     `json:"nodes"`
	Holders     int     `json:"holders"`
	NsPerOp     float64 `json:"ns_per_op"`
	NsMin       float64 `json:"ns_min"`
	NsMax       float64 `json:"ns_max"`
	BytesPerOp  int64   `json:"bytes_per_op"`
	AllocsPerOp int64   `json:"allocs_per_op"`
	TimesOurs   float64 `json:"times_ours,omitempty"` // the peer's median over ours
}

// TestAgainstPeer prints its results on standard output, among what go test
// prints.
func TestAgainstPeer(t *testing.T) {
	log.SetLogger(logr.Discard()) // else the peer looks for one at every call
	for _, holders := range []int{2, nodes} {
		mine, theirs, err := compare(t.Context(), holders)
		if err != nil {
			t.Fatal(err)
		}
		if mine.AllocsPerOp != 0 {
			t.Errorf("ours allocates %d times", mine.AllocsPerOp)
		}
		out := json.NewEncoder(os.Stdout)
		if err := errors.Join(out.Encode(mine), out.Encode(theirs)); err != nil {
			t.Fatal(err)
		}
	}
}

// compare measures both in turns.
func compare(ctx context.Context, holders int) (a, b result, err error) {
	all := makePrompts()
	ours := newOurs(all, holders)
	peer, err := newPeer(ctx, all, holders)
	if err != nil {
		return a, b, err
	}
	for _, p := range all {
		if err := agree(ctx, ours, peer, p); err != nil {
			return a, b, err
		}
	}
	var mine, theirs []testing.BenchmarkResult
	for range rounds {
		mine = append(mine, testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ours.score(all[i%prompts])
			}
		}))
		theirs = append(theirs, testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := peer.score(ctx, all[i%prompts]); err != nil {
					b.Fatal(err)
				}
			}
		}))
	}
	a, b = summary("warmpath: hash chain and Match", mine), summary("llm-d-kv-cache v0.9.0: ScoreTokens", theirs)
	a.Holders, b.Holders = holders, holders
	b.TimesOurs = b.NsPerOp / a.NsPerOp
	return a, b, nil
}

// holding calls hold for each node that holds the first part of a prompt.
func holding(prompt, holders int, hold func(node, blocks int)) {
	for k := range holders {
		hold((prompt+k)%nodes, blocks*(k+1)/holders)
	}
}

func summary(subject string, all []testing.BenchmarkResult) result {
	var ns []float64
	for _, r := range all {
		ns = append(ns, float64(r.T.Nanoseconds())/float64(r.N))
	}
	slices.Sort(ns)
	last := all[len(all)-1]
	return result{
		Subject: subject, Tokens: tokens, Nodes: nodes, NsPerOp: ns[len(ns)/2], NsMin: ns[0], NsMax: ns[len(ns)-1],
		BytesPerOp: last.AllocedBytesPerOp(), AllocsPerOp: last.AllocsPerOp(),
	}
}

func makePrompts() [][]uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([][]uint32, prompts)
	for i := range all {
		all[i] = make([]uint32, tokens)
		for k := range all[i] {
			all[i][k] = r.Uint32N(128_000)
		}
	}
	return all
}

// ours is the router's way: hash the chain, match it.
type ours struct {
	index *index.Index
	live  index.SlotSet
	chain []prefix.Hash
	units [nodes]uint32
}

func newOurs(all [][]uint32, holders int) *ours {
	o := &ours{index: index.New(index.Options{})}
	w := o.index.Writer()
	for node := range nodes {
		o.live.Add(node)
	}
	for i, p := range all {
		o.hash(p)
		holding(i, holders, func(node, blocks int) {
			for k, h := range o.chain[:blocks] {
				w.Stored(node, index.Device, uint64(h)+uint64(node), o.chain[k:k+1])
			}
		})
	}
	return o
}

func (o *ours) hash(ids []uint32) {
	o.chain = o.chain[:0]
	parent := prefix.ChainStart(7, []byte(model), nil, nil)
	for i := 0; i+blockTokens <= len(ids); i += blockTokens {
		parent = prefix.NextUnit(parent, ids[i:i+blockTokens], nil)
		o.chain = append(o.chain, parent)
	}
}

func (o *ours) score(ids []uint32) {
	o.hash(ids)
	o.index.Match(o.chain, &o.live, o.units[:])
}

// peer is llm-d's indexer with its in-memory index.
type peer struct {
	indexer *kvcache.Indexer
	pods    []string
}

func newPeer(ctx context.Context, all [][]uint32, holders int) (*peer, error) {
	processor, err := kvblock.NewChunkedTokenDatabase(kvblock.DefaultTokenProcessorConfig())
	if err != nil {
		return nil, fmt.Errorf("token processor: %w", err)
	}
	config, err := kvcache.NewDefaultConfig()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	config.KVBlockIndexConfig.InMemoryConfig.PodCacheSize = nodes // its default, 10, would forget holders
	p := &peer{}
	if p.indexer, err = kvcache.NewKVCacheIndexer(ctx, config, processor); err != nil {
		return nil, fmt.Errorf("indexer: %w", err)
	}
	for node := range nodes {
		p.pods = append(p.pods, fmt.Sprintf("10.0.0.%d", node))
	}
	for i, ids := range all {
		holding(i, holders, func(node, blocks int) {
			keys, keysErr := p.indexer.ComputeBlockKeysFromTokens(ctx, ids[:blocks*blockTokens], model, nil)
			entry := []kvblock.PodEntry{{PodIdentifier: p.pods[node], DeviceTier: "gpu"}}
			err = errors.Join(err, keysErr, p.indexer.KVBlockIndex().Add(ctx, keys, keys, entry))
		})
	}
	if err != nil {
		return nil, fmt.Errorf("fill: %w", err)
	}
	return p, nil
}

func (p *peer) score(ctx context.Context, ids []uint32) (map[string]float64, error) {
	return p.indexer.ScoreTokens(ctx, ids, model, p.pods, nil)
}

// agree fails unless both say the same of a prompt: else they would not do the
// same work.
func agree(ctx context.Context, o *ours, p *peer, ids []uint32) error {
	scores, err := p.score(ctx, ids)
	if err != nil {
		return fmt.Errorf("score: %w", err)
	}
	o.score(ids)
	for node, pod := range p.pods {
		if scores[pod] != float64(o.units[node]) {
			return fmt.Errorf("node %d: the peer counts %v blocks, we count %d", node, scores[pod], o.units[node])
		}
	}
	return nil
}
