package load

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// filled is the report of a run without sockets: ten streams of five tokens.
func filled(o Options) *Report {
	o.URL, o.Duration = "http://test", 2*time.Second
	l := &loop{o: o.withDefaults(), t: newTally(), open: 1e9, shut: 3e9, now: 3e9}
	for i := range int64(10) {
		l.t.ok++
		l.t.ttft.add((i + 1) * 1e6)
		l.t.e2el.add((i + 1) * 2e6)
		l.t.service.add((i + 1) * 2e6)
		l.t.tpot.add(3e6)
		for range 4 {
			l.t.itl.add(3e6)
		}
		l.t.answerTokens, l.t.promptTokens = l.t.answerTokens+5, l.t.promptTokens+100
		l.t.contentEvents, l.t.endedContents = l.t.contentEvents+5, l.t.endedContents+5
	}
	l.t.good, l.t.cut, l.t.lastEnd = 7, 1, 5e9
	l.t.failed[failTimeout], l.t.failed[failStatus], l.t.statuses[503] = 2, 3, 3
	l.t.chunk.add(20e3)
	l.t.streamReads = 1
	return l.report()
}

func TestReport(t *testing.T) {
	r := filled(Options{Rate: 5})
	if r.Requests != 16 || r.OK != 10 || r.Errors != 5 || r.Cut != 1 || r.ErrorKinds["timeout"] != 2 || r.ErrorKinds["status_503"] != 3 || len(r.ErrorKinds) != 2 {
		t.Errorf("%d = %d + %d + %d, %v", r.Requests, r.OK, r.Errors, r.Cut, r.ErrorKinds)
	}
	if r.ElapsedS != 4 || r.RequestsPerS != 2.5 || r.OutputTokensPS != 12.5 {
		t.Errorf("%v s, %v requests/s, %v tokens/s; want 4 s to the last answer", r.ElapsedS, r.RequestsPerS, r.OutputTokensPS)
	}
	near := func(got, want float64) bool { return math.Abs(got/want-1) < 0.002 }
	if d := r.TTFT; d.Count != 10 || d.Mean != 5.5 || !near(d.P50, 5) || !near(d.P90, 9) || !near(d.Max, 10) || !near(d.Std, 2.872) || !near(d.At(10), 1) {
		t.Errorf("%+v", d)
	}
	if r := filled(Options{Concurrency: 5}); r.ElapsedS != 2 || r.RequestsPerS != 5 || r.OutputTokensPS != 25 {
		t.Errorf("closed loop: %v s, %v requests/s, %v tokens/s", r.ElapsedS, r.RequestsPerS, r.OutputTokensPS)
	}
}

// members are the names of a JSON object.
func members(t *testing.T, v any) (names []string, values map[string]any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	for name := range values {
		names = append(names, name)
	}
	return names, values
}

func TestReportHasItsFields(t *testing.T) {
	names, values := members(t, filled(Options{Rate: 5}))
	for _, name := range strings.Fields("requests ok errors ttft_ms itl_ms e2el_ms output_tokens_per_s late cut chunk_us rate url duration_s") {
		if !slices.Contains(names, name) {
			t.Errorf("no %s among %v", name, names)
		}
	}
	for _, of := range []string{"ttft_ms", "itl_ms", "e2el_ms", "chunk_us"} {
		for _, name := range []string{"mean", "p50", "p90", "p99"} {
			if v, ok := values[of].(map[string]any)[name].(float64); !ok || v <= 0 {
				t.Errorf("%s has no %s", of, name)
			}
		}
	}
}

func TestVLLMNames(t *testing.T) {
	r := filled(Options{Rate: 5, Goodput: Goodput{TTFT: time.Second}})
	names, values := members(t, r.VLLM("m"))
	wanted := "duration completed failed total_input_tokens total_output_tokens request_throughput request_goodput output_throughput " +
		"total_token_throughput max_output_tokens_per_s max_concurrent_requests request_rate burstiness max_concurrency model_id num_prompts date"
	for _, of := range []string{"ttft", "tpot", "itl", "e2el"} {
		for _, what := range []string{"mean", "median", "std", "p99"} {
			wanted += " " + what + "_" + of + "_ms"
		}
	}
	for _, name := range strings.Fields(wanted) {
		if !slices.Contains(names, name) {
			t.Errorf("no %s", name)
		}
	}
	for name, want := range map[string]any{
		"duration": 4.0, "completed": 10.0, "failed": 6.0, "total_input_tokens": 1000.0, "total_output_tokens": 50.0,
		"request_throughput": 2.5, "request_goodput": 1.75, "output_throughput": 12.5, "total_token_throughput": 262.5,
		"mean_ttft_ms": 5.5, "request_rate": 5.0, "burstiness": 1.0, "max_concurrency": nil, "model_id": "m",
	} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
	_, values = members(t, filled(Options{Concurrency: 5}).VLLM("m"))
	if values["request_rate"] != "inf" || values["request_goodput"] != nil || values["max_concurrency"] != 5.0 || values["burstiness"] != nil {
		t.Errorf("closed loop: %v", values)
	}
}

func TestSummary(t *testing.T) {
	for _, o := range []Options{{Rate: 5}, {Concurrency: 5}} {
		var b strings.Builder
		if err := filled(o).WriteSummary(&b); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"ok 10", "cut 1", "status_503", "ttft ms", "chunk µs", "1 in 1 reads"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in:\n%s", want, &b)
			}
		}
	}
}
