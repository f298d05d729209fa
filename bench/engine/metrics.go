package engine

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Histogram buckets of vLLM, seconds.
var (
	ttftBuckets = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	itlBuckets  = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	e2eBuckets  = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

// metrics are the figures of one engine life under vLLM's names, in a
// registry of its own. Times are real seconds, as a client would measure.
type metrics struct {
	registry *prometheus.Registry
	finished *prometheus.CounterVec
	ttft     prometheus.Histogram
	itl      prometheus.Histogram
	e2e      prometheus.Histogram
}

// newMetrics registers everything; gauges and counters are read from the
// scheduler at each scrape.
func newMetrics(cfg *Config, l *life) *metrics {
	labels := prometheus.Labels{"model_name": cfg.Model, "engine": strconv.Itoa(l.rank)}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: labels, Buckets: buckets})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vllm:request_success_total", Help: "Count of successfully processed requests.", ConstLabels: labels,
		}, []string{"finished_reason"}),
		ttft: histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", ttftBuckets),
		itl:  histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", itlBuckets),
		e2e:  histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", e2eBuckets),
	}
	for _, reason := range []string{"stop", "length", "abort", "error", "repetition"} {
		m.finished.WithLabelValues(reason)
	}
	m.registry.MustRegister(m.finished, m.ttft, m.itl, m.e2e, newLook(cfg, l, labels))
	return m
}

// token accounts for one token of an answer; called by the step loop alone.
func (m *metrics) token(a *answer, now time.Time, last bool) {
	if a.first.IsZero() {
		a.first = now
		m.ttft.Observe(now.Sub(a.arrived).Seconds())
	} else {
		m.itl.Observe(now.Sub(a.latest).Seconds())
	}
	a.latest = now
	if last {
		m.e2e.Observe(now.Sub(a.arrived).Seconds())
		m.finished.WithLabelValues(a.reason).Inc()
	}
}

// look is a collector that reads one moment of an engine life.
type look struct {
	life    *life
	cfg     *Config
	figures []figure
	info    *prometheus.Desc
}

// figure is one gauge or counter and how to read it.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*gauges) float64
}

// newLook describes the gauges and counters, with vLLM's names and units:
// prefix-cache figures count tokens, and kv_cache_usage_perc is a share.
func newLook(cfg *Config, l *life, labels prometheus.Labels) *look {
	c := &look{life: l, cfg: cfg, info: prometheus.NewDesc("vllm:cache_config_info",
		"Information of the LLMEngine CacheConfig", nil, cacheConfigLabels(cfg, l.rank))}
	add := func(kind prometheus.ValueType, name, help string, read func(*gauges) float64) {
		c.figures = append(c.figures, figure{prometheus.NewDesc(name, help, nil, labels), kind, read})
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	add(gauge, "vllm:num_requests_running", "Number of requests in model execution batches.",
		func(g *gauges) float64 { return float64(g.running) })
	add(gauge, "vllm:num_requests_waiting", "Number of requests waiting to be processed.",
		func(g *gauges) float64 { return float64(g.waiting) })
	add(gauge, "vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.",
		func(g *gauges) float64 { return float64(g.total-g.free) / float64(g.total) })
	add(counter, "vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.",
		func(g *gauges) float64 { return float64(g.counters.QueriedTokens) })
	add(counter, "vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.",
		func(g *gauges) float64 { return float64(g.counters.HitTokens) })
	add(counter, "vllm:prompt_tokens_total", "Number of prefill tokens processed.",
		func(g *gauges) float64 { return float64(g.counters.PromptTokens) })
	add(counter, "vllm:prompt_tokens_cached_total", "Number of cached prompt tokens (local + external).",
		func(g *gauges) float64 { return float64(g.counters.HitTokens) })
	add(counter, "vllm:generation_tokens_total", "Number of generation tokens processed.",
		func(g *gauges) float64 { return float64(g.counters.GeneratedTokens) })
	add(counter, "vllm:num_preemptions_total", "Cumulative number of preemption from the engine.",
		func(g *gauges) float64 { return float64(g.counters.Preemptions) })
	return c
}

// cacheConfigLabels are the labels of cache_config_info that a router reads,
// and those beside them that are true of the simulator. As in vLLM 0.32 each
// rank states the blocks of all ranks together, and its own tokens.
func cacheConfigLabels(cfg *Config, rank int) prometheus.Labels {
	blocks := strconv.Itoa(cfg.Blocks * cfg.Ranks)
	return prometheus.Labels{
		"engine": strconv.Itoa(rank), "block_size": strconv.Itoa(cfg.BlockTokens), "num_gpu_blocks": blocks,
		"num_gpu_blocks_override": "None", "num_cpu_blocks": "None", "cache_dtype": "auto",
		"enable_prefix_caching": "True", "gpu_memory_utilization": "0.92", "sliding_window": "None",
		"kv_cache_size_tokens":     strconv.Itoa(cfg.Blocks * cfg.BlockTokens),
		"prefix_caching_hash_algo": "xxhash",
		"kv_cache_max_concurrency": strconv.FormatFloat(float64(cfg.Blocks*cfg.BlockTokens)/float64(cfg.MaxModelLen), 'g', -1, 64),
	}
}

// Describe is part of prometheus.Collector.
func (c *look) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.info
	for _, f := range c.figures {
		ch <- f.desc
	}
}

// Collect is part of prometheus.Collector.
func (c *look) Collect(ch chan<- prometheus.Metric) {
	g := c.life.look()
	ch <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1)
	for _, f := range c.figures {
		ch <- prometheus.MustNewConstMetric(f.desc, f.kind, f.read(&g))
	}
}
