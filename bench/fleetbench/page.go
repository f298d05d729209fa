package fleetbench

import (
	"fmt"
	"strings"
)

// model is what all nodes serve.
const model = "fleet"

// page is a metrics text as vLLM 0.32 writes one: what stands before and behind the
// figures that move is fixed.
type page struct {
	before, behind []byte
	info           []byte // the part of behind that routers read
}

// Histogram buckets of vLLM.
const (
	ttftBuckets  = ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560 +Inf"
	tokenBuckets = ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80 +Inf"
	longBuckets  = ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680 +Inf"
	sizeBuckets  = "1 2 5 10 20 50 100 200 500 1000 2000 5000 10000 20000 50000 +Inf"
)

var histograms = []struct{ name, buckets string }{
	{"vllm:time_to_first_token_seconds", ttftBuckets},
	{"vllm:inter_token_latency_seconds", tokenBuckets},
	{"vllm:request_time_per_output_token_seconds", tokenBuckets},
	{"vllm:e2e_request_latency_seconds", longBuckets},
	{"vllm:request_queue_time_seconds", longBuckets},
	{"vllm:request_inference_time_seconds", longBuckets},
	{"vllm:request_prefill_time_seconds", longBuckets},
	{"vllm:request_decode_time_seconds", longBuckets},
	{"vllm:iteration_tokens_total", sizeBuckets},
	{"vllm:request_prompt_tokens", sizeBuckets},
	{"vllm:request_generation_tokens", sizeBuckets},
	{"vllm:request_max_num_generation_tokens", sizeBuckets},
	{"vllm:request_params_max_tokens", sizeBuckets},
	{"vllm:request_prefill_kv_computed_tokens", sizeBuckets},
}

// newPage makes a text of so many bytes, less what the figures that move take: the
// last histograms are those of its HTTP server, one a route, as many as it takes.
func newPage(bytes int) page {
	var b strings.Builder
	for _, generation := range []int{0, 1, 2} {
		fmt.Fprintf(&b, "python_gc_objects_collected_total{generation=\"%d\"} 29150.0\n", generation)
	}
	b.WriteString("# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.79525234752e+09\n")
	p := page{before: []byte(b.String())}
	b.Reset()
	fmt.Fprintf(&b, "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n# TYPE vllm:cache_config_info gauge\n"+
		"vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\",gpu_memory_utilization=\"0.92\",kv_cache_size_tokens=\"524288\",num_gpu_blocks=\"32768\",sliding_window=\"None\"} 1.0\n")
	p.info = []byte(b.String())
	histogram := func(name, labels, buckets string) {
		fmt.Fprintf(&b, "# HELP %s Histogram of what its name says.\n# TYPE %s histogram\n", name, name)
		for bound := range strings.FieldsSeq(buckets) {
			fmt.Fprintf(&b, "%s_bucket{%s,le=%q,model_name=%q} 1234.0\n", name, labels, bound, model)
		}
		fmt.Fprintf(&b, "%s_count{%s,model_name=%q} 1234.0\n%s_sum{%s,model_name=%q} 567.8901234567\n", name, labels, model, name, labels, model)
	}
	for _, h := range histograms {
		histogram(h.name, `engine="0"`, h.buckets)
	}
	for route := 0; len(p.before)+b.Len() < bytes-2000; route++ {
		histogram("http_request_duration_seconds", fmt.Sprintf(`handler="/v1/route-%d",method="POST"`, route), longBuckets)
	}
	p.behind = []byte(b.String())
	return p
}

// figures writes what moves of node i at a time, in milliseconds of its life.
func figures(dst []byte, i int, ms int64) []byte {
	for _, f := range []struct {
		name, kind string
		value      float64
	}{
		{"vllm:num_requests_running", "gauge", float64((ms/100 + int64(i)) % 32)},
		{"vllm:num_requests_waiting", "gauge", float64((ms/700 + int64(i)) % 3)},
		{"vllm:kv_cache_usage_perc", "gauge", float64((ms+int64(37*i))%1000) / 1000},
		{"vllm:prefix_cache_queries_total", "counter", float64(ms * 10)},
		{"vllm:prefix_cache_hits_total", "counter", float64(ms * 6)},
		{"vllm:num_preemptions_total", "counter", 0},
		{"vllm:prompt_tokens_total", "counter", float64(ms * 10)},
		{"vllm:generation_tokens_total", "counter", float64(ms)},
	} {
		dst = fmt.Appendf(dst, "# HELP %s As its name says.\n# TYPE %s %s\n%s{engine=\"0\",model_name=%q} %.1f\n", f.name, f.name, f.kind, f.name, model, f.value)
	}
	return dst
}
