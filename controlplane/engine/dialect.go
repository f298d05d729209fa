package engine

import (
	"slices"
	"strings"
)

// field is a value of Sample that a table can name.
type field uint8

const (
	fQueued field = iota
	fRunning
	fKVUse
	fHit
	fQuery
	fPrompt
	fGenerated
	fPreempted
	fConfig      // an info metric whose labels carry block size and capacity
	fBlockTokens // a gauge: tokens of one block
	fBlocks      // a gauge: blocks of the cache
	fCacheTokens // a gauge: tokens of the cache
	fieldCount
)

// dialect says how one engine names what a Sample holds. For each field the
// names stand newest first; the first one that the text carries is used.
// Counters stand without the suffix _total and are found with and without it.
type dialect struct {
	name        string
	metricsPath string
	narrowPath  string // of the same text, where the engine takes name[]=…; "" = it does not
	prefix      string // of every name of names
	names       [fieldCount][]string
	numbers     [fieldCount][]int // of the full names, as wanted has them, in the order in which they are looked for

	rankLabel    string // tells data-parallel ranks apart; "" = the engine has none
	blockLabel   string // of fConfig: tokens of one block
	blocksLabel  string // of fConfig: blocks of the cache
	perRankLabel string // of fConfig: tokens of one rank's cache; "" = not said
	perRank      bool   // blocksLabel is one rank's, not the engine's
}

const defaultMetricsPath = "/metrics"

// narrowPath leads to the application of Python's Prometheus client, which both
// engines mount there. vLLM has another one in front of it at the path without the
// slash (0.32), which gives all there is whatever it is asked for.
const narrowPath = "/metrics/"

// startName is the same for every engine that uses a Prometheus client
// library.
const startName = "process_start_time_seconds"

// shadowLabels tell apart processes that report the same thing: the shards of
// one rank. The largest value counts once; adding them up would count one
// request several times.
var shadowLabels = []string{"tp_rank", "pp_rank", "moe_ep_rank", "pid"}

var dialects = []*dialect{
	{
		name: VLLM, metricsPath: defaultMetricsPath, narrowPath: narrowPath, prefix: "vllm:",
		names: [fieldCount][]string{
			fQueued:  {"num_requests_waiting"},
			fRunning: {"num_requests_running"},
			fKVUse:   {"kv_cache_usage_perc", "gpu_cache_usage_perc"}, // 0 … 1 in spite of the name; the second up to 0.11
			// Both count tokens, not look-ups.
			fHit:       {"prefix_cache_hits", "gpu_prefix_cache_hits"},
			fQuery:     {"prefix_cache_queries", "gpu_prefix_cache_queries"},
			fPrompt:    {"prompt_tokens"}, // cached ones included
			fGenerated: {"generation_tokens"},
			fPreempted: {"num_preemptions"},
			fConfig:    {"cache_config_info"},
		},
		// With two ranks every series of cache_config_info carries the blocks of
		// both in num_gpu_blocks, but the tokens of one in kv_cache_size_tokens
		// (seen in a text of 0.32.0). The second is newer and also right for
		// models with several kinds of blocks.
		rankLabel: "engine", blockLabel: "block_size", blocksLabel: "num_gpu_blocks", perRankLabel: "kv_cache_size_tokens",
	},
	{
		name: SGLang, metricsPath: defaultMetricsPath, narrowPath: narrowPath, prefix: "sglang:",
		names: [fieldCount][]string{
			fQueued:      {"num_queue_reqs"},
			fRunning:     {"num_running_reqs"},
			fKVUse:       {"token_usage"},
			fHit:         {"cached_tokens"}, // one series a source: device, host, storage
			fQuery:       {"prompt_tokens"}, // every prompt token is looked up
			fPrompt:      {"prompt_tokens"},
			fGenerated:   {"generation_tokens"},
			fPreempted:   {"num_retracted_requests"},
			fConfig:      {"cache_config_info"},
			fCacheTokens: {"max_total_num_tokens"},
		},
		rankLabel: "dp_rank", blockLabel: "page_size", blocksLabel: "num_pages", perRank: true,
	},
	{
		name: TGI, metricsPath: defaultMetricsPath, prefix: "tgi_",
		names: [fieldCount][]string{
			fQueued:    {"queue_size"},
			fRunning:   {"batch_current_size"},
			fPrompt:    {"request_input_length_sum"}, // histograms: their sums are counters
			fGenerated: {"request_generated_tokens_sum"},
		},
	},
	{
		name: LlamaCPP, metricsPath: defaultMetricsPath, prefix: "llamacpp:",
		names: [fieldCount][]string{
			fQueued:    {"requests_deferred"},
			fRunning:   {"requests_processing"},
			fKVUse:     {"kv_cache_usage_ratio"}, // missing in newer builds
			fPrompt:    {"prompt_tokens"},        // processed ones only, without those taken from the cache
			fGenerated: {"tokens_predicted"},
		},
	},
	{
		name: TRTLLM, metricsPath: "/prometheus/metrics", prefix: "trtllm_",
		names: [fieldCount][]string{
			fQueued:      {"num_requests_waiting"},
			fRunning:     {"num_requests_running"},
			fKVUse:       {"kv_cache_utilization"},
			fBlockTokens: {"kv_cache_tokens_per_block"},
			fBlocks:      {"kv_cache_max_blocks"},
		},
	},
}

// counters are the fields whose names are looked for with _total too.
var counters = [fieldCount]bool{fHit: true, fQuery: true, fPrompt: true, fGenerated: true, fPreempted: true}

// wanted has a number for every full metric name of every table, so that the lines of
// a text can be chosen before anything of them is parsed, and tables need not be
// looked up by name. Written once, at start, as the tables' own numbers are.
var wanted = func() map[string]int {
	all := map[string]int{startName: 0}
	number := func(name string) int {
		if _, ok := all[name]; !ok {
			all[name] = len(all)
		}
		return all[name]
	}
	for _, d := range dialects {
		for f, names := range d.names {
			for _, name := range names {
				if counters[f] {
					d.numbers[f] = append(d.numbers[f], number(d.prefix+name+"_total"))
				}
				d.numbers[f] = append(d.numbers[f], number(d.prefix+name))
			}
		}
	}
	return all
}()

// byName finds a dialect; nil if there is no table for it.
func byName(name string) *dialect {
	for _, d := range dialects {
		if d.name == name {
			return d
		}
	}
	return nil
}

// Names lists what a configuration may ask for.
func Names() []string { return []string{Auto, VLLM, SGLang, TGI, LlamaCPP, TRTLLM, OpenAI} }

// Known reports whether name is one of Names, or "", which means Auto.
func Known(name string) bool { return name == "" || slices.Contains(Names(), name) }

// byOwner finds the dialect that a model list's owned_by (or a Server header)
// names; "" if it names none.
func byOwner(owner string) string {
	switch o := strings.ToLower(owner); {
	case o == "vllm":
		return VLLM
	case o == "sglang":
		return SGLang
	case o == "llamacpp" || strings.HasPrefix(o, "llama.cpp"):
		return LlamaCPP
	case o == "tensorrt_llm":
		return TRTLLM
	}
	return ""
}
