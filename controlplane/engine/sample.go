package engine

import "warmpath/dataplane/fleet"

// Names of the dialects, as fleet.Node.Engine has them.
const (
	Auto     = "auto"     // in configuration only: find out
	VLLM     = "vllm"     // vLLM, and simulators that copy its metrics
	SGLang   = "sglang"   // SGLang
	TGI      = "tgi"      // Text Generation Inference
	LlamaCPP = "llamacpp" // llama.cpp's server
	TRTLLM   = "trtllm"   // trtllm-serve
	OpenAI   = "openai"   // anything else that speaks the OpenAI HTTP API
)

// Sample is what one metrics text said of an engine. A value the text did not
// carry is unknown (a Gauge) or 0 (BlockTokens, CacheTokens, Ranks). Counters
// count since the engine process started; a smaller value than before means a
// restart.
type Sample struct {
	AtNs   int64  // when it was read; given by the caller of Decode, who has the clock
	Engine string // the dialect that was found: VLLM, SGLang, …

	Queued  fleet.Gauge // requests waiting, summed over ranks
	Running fleet.Gauge // requests in execution, summed over ranks
	KVUse   fleet.Gauge // share of the KV cache in use, 0 … 1, mean over ranks

	HitTokens       fleet.Gauge // counter: prompt tokens served from the prefix cache
	QueryTokens     fleet.Gauge // counter: prompt tokens looked up in the prefix cache
	PromptTokens    fleet.Gauge // counter: prompt tokens processed
	GeneratedTokens fleet.Gauge // counter: output tokens
	Preemptions     fleet.Gauge // counter: requests put back for want of KV space
	StartSeconds    fleet.Gauge // Unix time at which the process started; a change means a restart

	BlockTokens int   // tokens of one KV block (page)
	CacheTokens int64 // tokens the KV caches of all ranks hold together
	Ranks       int   // data-parallel ranks seen
}

// Model is one entry of an engine's model list.
type Model struct {
	ID          string // what clients name
	MaxModelLen int    // tokens of prompt and answer together; 0 = unknown
	OwnedBy     string // who the engine says owns it; names the dialect
	Root        string // path or base name the engine was started with; "" = not said
	Parent      string // of a LoRA adapter: the ID of its base model; "" = a base model
}

// ModelList is an engine's answer to GET /v1/models.
type ModelList struct {
	Engine string // dialect by owned_by; OpenAI if the list names none we know
	Models []Model
}
