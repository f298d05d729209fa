package engine

import (
	"errors"
	"fmt"
	"strings"
)

// Bounds of what a simulated engine keeps.
const (
	// maxServedIDs is how many identifiers of accepted requests State shows.
	maxServedIDs = 10_000
	// maxBodyBytes is the largest request body that an engine reads.
	maxBodyBytes = 256 << 20
)

// Physics are the figures from which the duration of a step is computed.
// The defaults are those of a mid-size model on one GPU.
type Physics struct {
	PrefillTokensPerSecond float64 // prompt tokens computed in a second, alone and without context; default 8000
	DecodeBaseMs           float64 // fixed cost of a step, milliseconds; default 6
	DecodePerRequestMs     float64 // cost of each request in a step, milliseconds; default 0.35
	ContextTokens          float64 // context at which attention doubles the cost of a prompt token; default 32768, negative: no such cost
	ChunkTokens            int     // tokens of one step, prefill and decode together; default 2048
	MaxRunning             int     // requests in one step; default 64
}

// Config describes one simulated engine. The zero value of a field means its
// default, so that Config{} is usable. Immutable after New.
type Config struct {
	Name        string   // the node name in the default event topic; default "engine"
	Model       string   // the name clients use; default "sim"
	Adapters    []string // LoRA adapters: further model names with their own cache
	MaxModelLen int      // tokens of prompt and answer together; default 131072

	// Real gives prompts the token ids of a real model; nil: a token is four
	// bytes. The engine does not close it.
	Real *Model

	BlockTokens int    // tokens of a block; default 16
	Blocks      int    // blocks of the cache; one is the null block and never holds tokens; default 16384
	Seed        uint64 // start of the chain hashes and of generated identifiers

	Ranks int // data-parallel ranks, each with a cache of Blocks blocks; default 1

	Physics Physics
	// TimeScale is real seconds for one simulated second: 1 is real time, 0.1
	// ten times faster. AsFastAsPossible wins over it.
	TimeScale        float64
	AsFastAsPossible bool

	MaxWaiting    int // requests that may wait; more are answered 503; default 10000
	DefaultTokens int // length of a chat answer without max_tokens; default 64

	EventsEndpoint string // ZeroMQ PUB of rank 0, for instance "tcp://127.0.0.1:5557", rank r on port + r; port 0 takes any; "" publishes nothing
	ReplayEndpoint string // ZeroMQ ROUTER of rank 0, rank r on port + r, that answers from the replay buffer; "" = none
	EventsTopic    string // default "kv@" + Name + "@" + Model
	ReplayBatches  int    // batches kept for replay; default 10000
}

// vocabulary is where the ids of prompts and answers come from.
func (c *Config) vocabulary() vocabulary {
	if c.Real != nil {
		return c.Real
	}
	return fourBytes{}
}

// withDefaults fills what was left zero.
func (c Config) withDefaults() Config {
	str := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	num := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	float := func(p *float64, v float64) {
		if *p == 0 {
			*p = v
		}
	}
	str(&c.Name, "engine")
	str(&c.Model, "sim")
	str(&c.EventsTopic, "kv@"+c.Name+"@"+c.Model)
	num(&c.MaxModelLen, 131_072)
	num(&c.BlockTokens, 16)
	num(&c.Blocks, 16_384)
	num(&c.Ranks, 1)
	num(&c.MaxWaiting, 10_000)
	num(&c.DefaultTokens, 64)
	num(&c.ReplayBatches, 10_000)
	num(&c.Physics.ChunkTokens, 2048)
	num(&c.Physics.MaxRunning, 64)
	float(&c.Physics.PrefillTokensPerSecond, 8000)
	float(&c.Physics.DecodeBaseMs, 6)
	float(&c.Physics.DecodePerRequestMs, 0.35)
	float(&c.Physics.ContextTokens, 32_768)
	float(&c.TimeScale, 1)
	return c
}

// validate reports everything that is wrong with a configuration whose
// defaults are filled in.
func (c Config) validate() error {
	var errs []error
	positive := func(name string, v float64) {
		if !(v > 0) {
			errs = append(errs, fmt.Errorf("check engine config: %s is %v, must be above 0", name, v))
		}
	}
	positive("MaxModelLen", float64(c.MaxModelLen))
	positive("BlockTokens", float64(c.BlockTokens))
	positive("Blocks", float64(c.Blocks))
	positive("Ranks", float64(c.Ranks))
	positive("MaxWaiting", float64(c.MaxWaiting))
	positive("DefaultTokens", float64(c.DefaultTokens))
	positive("ReplayBatches", float64(c.ReplayBatches))
	positive("TimeScale", c.TimeScale)
	positive("Physics.ChunkTokens", float64(c.Physics.ChunkTokens))
	positive("Physics.MaxRunning", float64(c.Physics.MaxRunning))
	positive("Physics.PrefillTokensPerSecond", c.Physics.PrefillTokensPerSecond)
	if c.Physics.DecodeBaseMs < 0 || c.Physics.DecodePerRequestMs < 0 {
		errs = append(errs, errors.New("check engine config: decode times are negative, use 0 or more"))
	}
	if c.BlockTokens > 0 && (c.Blocks-1)*c.BlockTokens < c.MaxModelLen {
		// As vLLM: a request of full length must fit, else it would wait for ever.
		errs = append(errs, fmt.Errorf("check engine config: %d blocks of %d tokens (one is the null block) cannot hold MaxModelLen %d: more blocks or a shorter length",
			c.Blocks, c.BlockTokens, c.MaxModelLen))
	}
	for _, ep := range []string{c.EventsEndpoint, c.ReplayEndpoint} {
		if ep != "" && !strings.HasPrefix(ep, "tcp://") {
			errs = append(errs, fmt.Errorf("check engine config: endpoint %q is not of the form tcp://host:port", ep))
		}
	}
	if c.ReplayEndpoint != "" && c.EventsEndpoint == "" {
		errs = append(errs, errors.New("check engine config: ReplayEndpoint without EventsEndpoint: set both or none"))
	}
	return errors.Join(errs...)
}
