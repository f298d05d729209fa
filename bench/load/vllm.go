package load

import "time"

// VLLM is a report under the names that the result file of `vllm bench serve`
// uses, so that what reads those can read this.
type VLLM struct {
	Date           string   `json:"date"`
	EndpointType   string   `json:"endpoint_type"`
	Backend        string   `json:"backend"`
	Label          string   `json:"label"`
	ModelID        string   `json:"model_id"`
	NumPrompts     int64    `json:"num_prompts"`
	RequestRate    any      `json:"request_rate"` // requests a second, "inf" of a closed loop
	Burstiness     *float64 `json:"burstiness"`   // 1 is Poisson
	MaxConcurrency *int     `json:"max_concurrency"`

	Duration             float64  `json:"duration"` // seconds
	Completed            int64    `json:"completed"`
	Failed               int64    `json:"failed"`
	TotalInputTokens     int64    `json:"total_input_tokens"`
	TotalOutputTokens    int64    `json:"total_output_tokens"`
	RequestThroughput    float64  `json:"request_throughput"`
	RequestGoodput       *float64 `json:"request_goodput"` // null without bounds
	OutputThroughput     float64  `json:"output_throughput"`
	TotalTokenThroughput float64  `json:"total_token_throughput"`
	MaxOutputTokensPerS  float64  `json:"max_output_tokens_per_s"`
	MaxConcurrent        int      `json:"max_concurrent_requests"`

	MeanTTFT   float64 `json:"mean_ttft_ms"`
	MedianTTFT float64 `json:"median_ttft_ms"`
	StdTTFT    float64 `json:"std_ttft_ms"`
	P90TTFT    float64 `json:"p90_ttft_ms"`
	P99TTFT    float64 `json:"p99_ttft_ms"`
	MeanTPOT   float64 `json:"mean_tpot_ms"`
	MedianTPOT float64 `json:"median_tpot_ms"`
	StdTPOT    float64 `json:"std_tpot_ms"`
	P90TPOT    float64 `json:"p90_tpot_ms"`
	P99TPOT    float64 `json:"p99_tpot_ms"`
	MeanITL    float64 `json:"mean_itl_ms"`
	MedianITL  float64 `json:"median_itl_ms"`
	StdITL     float64 `json:"std_itl_ms"`
	P90ITL     float64 `json:"p90_itl_ms"`
	P99ITL     float64 `json:"p99_itl_ms"`
	MeanE2EL   float64 `json:"mean_e2el_ms"`
	MedianE2EL float64 `json:"median_e2el_ms"`
	StdE2EL    float64 `json:"std_e2el_ms"`
	P90E2EL    float64 `json:"p90_e2el_ms"`
	P99E2EL    float64 `json:"p99_e2el_ms"`
}

// VLLM renames the report's figures. Latencies count from when a request was
// due, where vLLM's count from when it was sent.
func (r *Report) VLLM(model string) *VLLM {
	v := &VLLM{
		Date: time.Now().Format("20060102-150405"), EndpointType: "openai-chat", Backend: "openai-chat", Label: "warmbench", ModelID: model, NumPrompts: r.Requests,
		RequestRate: any(r.Rate), Duration: r.ElapsedS, Completed: r.OK, Failed: r.Errors + r.Cut,
		TotalInputTokens: r.PromptTokens, TotalOutputTokens: r.OutputTokens,
		RequestThroughput: r.RequestsPerS, OutputThroughput: r.OutputTokensPS, TotalTokenThroughput: r.OutputTokensPS,
		MaxOutputTokensPerS: float64(r.MostEventsPerS), MaxConcurrent: r.MostConcurrent,
		MeanTTFT: r.TTFT.Mean, MedianTTFT: r.TTFT.P50, StdTTFT: r.TTFT.Std, P90TTFT: r.TTFT.P90, P99TTFT: r.TTFT.P99,
		MeanTPOT: r.TPOT.Mean, MedianTPOT: r.TPOT.P50, StdTPOT: r.TPOT.Std, P90TPOT: r.TPOT.P90, P99TPOT: r.TPOT.P99,
		MeanITL: r.ITL.Mean, MedianITL: r.ITL.P50, StdITL: r.ITL.Std, P90ITL: r.ITL.P90, P99ITL: r.ITL.P99,
		MeanE2EL: r.E2EL.Mean, MedianE2EL: r.E2EL.P50, StdE2EL: r.E2EL.Std, P90E2EL: r.E2EL.P90, P99E2EL: r.E2EL.P99,
	}
	if r.ElapsedS > 0 {
		v.TotalTokenThroughput = tidy(r.OutputTokensPS + float64(r.PromptTokens)/r.ElapsedS)
	}
	if r.goodput {
		v.RequestGoodput = &r.GoodPerS
	}
	switch {
	case r.Concurrency > 0:
		v.RequestRate, v.MaxConcurrency = "inf", &r.Concurrency
	case r.Arrivals == Poisson:
		v.Burstiness = new(1.0)
	}
	return v
}
