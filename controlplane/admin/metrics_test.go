package admin_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	ct "warmpath/controlplane/controltest"
	"warmpath/controlplane/state"
)

func (s *surface) metrics() map[string]*dto.MetricFamily {
	s.t.Helper()
	status, text := s.call("GET", "/metrics", "")
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader([]byte(text)))
	if err != nil || status != 200 {
		s.t.Fatalf("%d: %v\n%s", status, err, text)
	}
	return families
}

// everyOfKernel is those of every that come where programs can be loaded.
var everyOfKernel = map[string]string{
	"kernel_rtt_seconds":                   "node",
	"kernel_first_byte_seconds":            "node",
	"kernel_retransmits_total":             "node",
	"kernel_retransmission_timeouts_total": "node",
	"kernel_resets_total":                  "node direction",
	"kernel_idle_closed_total":             "node",
	"kernel_load_readings_total":           "node",
	"kernel_zero_windows_total":            "node",
	"kernel_socket_errors_total":           "node",
	"kernel_unfollowed_total":              "reason",
	"kernel_events_lost_total":             "",
}

// every metric that this build has, with its labels. What design section 12
// names beyond them belongs to parts that are not in this build: the packet filter
// (xdp_packets_total), the scaler (scaler_*), and index_lookup_seconds, which is not measured on the path of
// requests.
var every = map[string]string{
	"requests_total":               "model node code",
	"request_duration_seconds":     "",
	"ttft_seconds":                 "node",
	"inter_token_seconds":          "node",
	"kernel_tier":                  "tier",
	"router_lag_seconds":           "",
	"routing_seconds":              "",
	"decisions_total":              "policy reason exactness prefix",
	"prompt_tokens_total":          "",
	"matched_tokens_total":         "exactness",
	"cached_tokens_total":          "node",
	"match_error_tokens":           "",
	"retries_total":                "reason",
	"in_flight":                    "node",
	"in_flight_tokens":             "node",
	"in_flight_healed_total":       "node",
	"node_state":                   "node state",
	"node_weight":                  "node",
	"node_warmth":                  "node",
	"index_blocks":                 "node",
	"index_bytes":                  "",
	"connections":                  "side",
	"notes_dropped_total":          "",
	"config_reload_success":        "",
	"snapshot_publish_seconds":     "",
	"accept_failures_total":        "",
	"backpressure_paused":          "",
	"discovery_ok":                 "source",
	"discovery_nodes":              "source",
	"backpressure_pauses_total":    "",
	"memory_bytes":                 "",
	"hedges_total":                 "",
	"hedges_won_total":             "",
	"memory_shed_total":            "kind",
	"build_info":                   "version",
	"connections_refused_total":    "",
	"index_evictions_total":        "reason",
	"node_breaker":                 "node state",
	"node_failures_total":          "node kind",
	"node_down":                    "node cause",
	"sentinels_total":              "node outcome",
	"pressure":                     "",
	"retry_budget_exhausted_total": "",
	"node_trust":                   "node state",
	"node_exact":                   "node class",
	"kv_events_total":              "node kind",
	"kv_event_batches_total":       "node",
	"kv_event_gaps_total":          "node",
	"kv_event_gaps_lost_total":     "node",
	"kv_event_restarts_total":      "node",
	"memo_bytes":                   "memo",
	"memo_lookups_total":           "memo result",
	"memo_evictions_total":         "memo",
	"prompt_length_checks_total":   "result",
	"identify_overflows_total":     "",
	"queue_seconds":                "class",
	"held_requests":                "model",
	"held_bytes":                   "",
	"holds_total":                  "model outcome",
	"identified_prompts":           "", "evidence_bytes": "", "identify_queue": "",
}

func TestMetrics(t *testing.T) {
	tokens := ct.TinyTokens(t, "../..", "m")
	good, bad := ct.StartExact(t, "m", tokens), ct.StartEngine(t, "m")
	bad.Status.Store(500)
	// Nobody listens where the events of one node should come from.
	kernelMode, want := "off", maps.Clone(every)
	if os.Geteuid() == 0 {
		kernelMode = "require"
		maps.Copy(want, everyOfKernel)
	}
	s := serve(t, "", fmt.Sprintf("kernel: {mode: %q, node_load: true}\npolicy: {name: round_robin}\nmodels: [{name: m, tokenizer: %q}]\n"+
		"nodes: [{name: good, url: %q, kv_events: {endpoint: \"tcp://127.0.0.1:1\"}}, {name: bad, url: %q}]\n", kernelMode, tokens.Path, good.URL(), bad.URL()))
	s.Control.Send(state.ExpectSeen{NowNs: s.Control.NowNs(), Models: []string{"m"}})
	s.WaitServed(t, "good", "m")
	s.WaitServed(t, "bad", "m")
	ct.Eventually(t, "its prompts are proved", func() bool { return s.Node("good").Exact&1 != 0 })
	const asked = 4 // over two loops: one of them takes turns between the nodes
	for i := range asked {
		if status, node := s.Ask(t, ct.Chat("m", 8000), fmt.Sprint("r", i)); status != 200 || node != "good" {
			t.Fatalf("%d from %s", status, node)
		}
	}
	ct.Eventually(t, "requests are counted", func() bool {
		f := s.metrics()["warmpath_requests_total"]
		return f != nil && f.Metric[0].Counter.GetValue() == asked
	})
	if kernelMode == "require" {
		ct.Eventually(t, "the kernel has seen the nodes", func() bool { return s.metrics()["warmpath_kernel_first_byte_seconds"] != nil })
	}
	ct.Eventually(t, "what nodes hold is counted", func() bool { return s.metrics()["warmpath_node_warmth"] != nil })
	families := s.metrics()
	for name, labels := range want {
		f := families["warmpath_"+name]
		if f == nil {
			t.Errorf("no warmpath_%s", name)
			continue
		}
		var got []string
		for _, l := range f.Metric[0].Label {
			got = append(got, l.GetName())
		}
		expected := strings.Fields(labels)
		slices.Sort(expected)
		if slices.Sort(got); !slices.Equal(got, expected) || f.GetHelp() == "" {
			t.Errorf("warmpath_%s has labels %q, help %q", name, got, f.GetHelp())
		}
	}
	for name := range families {
		if _, known := want[strings.TrimPrefix(name, "warmpath_")]; !known {
			t.Errorf("%s is not in the list", name)
		}
	}
	value := func(name string, labels ...string) float64 {
		t.Helper()
		for _, m := range families["warmpath_"+name].Metric {
			var have []string
			for _, l := range m.Label {
				have = append(have, l.GetValue())
			}
			if !slices.Equal(have, labels) {
				continue
			}
			switch {
			case m.Counter != nil:
				return m.Counter.GetValue()
			case m.Gauge != nil:
				return m.Gauge.GetValue()
			case m.Histogram != nil:
				return float64(m.Histogram.GetSampleCount())
			}
		}
		t.Errorf("no %s%q", name, labels)
		return -1
	}
	failed := value("node_failures_total", "server_error", "bad")
	if failed < 1 {
		t.Errorf("%v failures", failed)
	}
	for _, c := range []struct {
		name   string
		labels []string // in the order of their names
		want   float64
	}{
		{"requests_total", []string{"200", "m", "good"}, asked},
		{"request_duration_seconds", nil, asked},
		{"retries_total", []string{"status"}, failed},
		{"node_state", []string{"good", "ready"}, 1},
		{"node_state", []string{"good", "down"}, 0},
		{"node_breaker", []string{"good", "closed"}, 1},
		{"node_down", []string{"dead", "good"}, 0},
		{"node_failures_total", []string{"dead", "bad"}, 0},
		{"sentinels_total", []string{"good", "unanswered"}, 0},
		{"cached_tokens_total", []string{"good"}, 64 * asked},
		{"match_error_tokens", nil, asked},
		{"in_flight", []string{"good"}, 0},
		{"in_flight_tokens", []string{"bad"}, 0},
		{"in_flight_healed_total", []string{"good"}, 0},
		{"build_info", []string{"v<1>"}, 1},
		{"config_reload_success", nil, 1},
		{"ttft_seconds", []string{"good"}, 0}, // only of streams
		{"node_exact", []string{"plain", "good"}, 1},
		{"node_trust", []string{"good", "cold"}, 1},
		{"node_trust", []string{"good", "live"}, 0},
		{"node_trust", []string{"bad", "none"}, 1},
		{"kv_events_total", []string{"stored", "good"}, 0},
		{"kv_event_batches_total", []string{"good"}, 0},
		{"prompt_length_checks_total", []string{"equal"}, asked},
		{"prompt_length_checks_total", []string{"different"}, 0},
		{"identify_overflows_total", nil, 0},
		{"held_requests", []string{"m"}, 0},
		{"holds_total", []string{"m", "sent"}, 0},
		{"queue_seconds", []string{"default"}, 0},
	} {
		if got := value(c.name, c.labels...); got != c.want {
			t.Errorf("%s%q is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}
