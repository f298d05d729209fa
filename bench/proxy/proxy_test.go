package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"warmpath/bench/backend"
)

// TestMain lets the test executable serve as the backend of its own tests, as
// warmbench does.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "backend" {
		o := backend.Options{Addresses: strings.Split(os.Args[3], ","), Loops: 1, Model: "bench"}
		if err := backend.Run(context.Background(), o, nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// options measure direct and, where it is installed, nginx, for a second each.
func options(t *testing.T) Options {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("needs two cores")
	}
	for _, tool := range []string{"wrk", "taskset"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		SizeBytes: 600, Concurrency: 4, Runs: 1, Duration: time.Second, Subjects: []string{Direct, "nginx"},
		ProxyCore: 1, LoadCore: 0, Nodes: 2, Backend: []string{self, "backend"}, Commit: "test", MaxForeignShare: 10, Tries: 1,
	}
}

func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for two seconds")
	}
	o := options(t)
	var out, log bytes.Buffer
	if err := Measure(t.Context(), o, &out, &log); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	records := map[string]int{}
	for line := range bytes.Lines(out.Bytes()) {
		var head struct{ Record, Proxy string }
		if err := json.Unmarshal(line, &head); err != nil {
			t.Fatalf("%v in line %s", err, line)
		}
		records[head.Record]++
		if head.Record != "summary" || head.Proxy != "nginx" {
			continue
		}
		var s Summary
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatalf("%v in line %s", err, line)
		}
		if s.RequestsPerCPUS == nil || s.RequestsPerCPUS.Median < 100 || s.AddedP50Us == nil {
			t.Errorf("nginx without figures: %s", line)
		}
	}
	if records["environment"] != 1 || records["run"] == 0 || records["run"] != records["summary"] {
		t.Errorf("got records %v in\n%s", records, &out)
	}
	if !strings.Contains(log.String(), "requests per CPU-s") {
		t.Errorf("no table in %q", &log)
	}
}

func TestMeasureStopsWithItsContext(t *testing.T) {
	o := options(t)
	o.Subjects = []string{Direct}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Measure(ctx, o, io.Discard, io.Discard); err == nil {
		t.Error("measured under an ended context")
	}
}

func TestMissingRouterSaysWhatToDo(t *testing.T) {
	o := options(t)
	o.Subjects, o.Warmpath = []string{Warmpath}, "no-such-file"
	err := Measure(t.Context(), o, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v", err)
	}
}

func TestOptionsNameEverythingWrong(t *testing.T) {
	o := Options{SizeBytes: 10, Duration: 1500 * time.Millisecond, Subjects: []string{"squid", Direct, Direct}, ProxyCore: 1, LoadCore: 1}
	err := o.check()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"size 10", "concurrency 0", "runs 0", "duration 1.5s", `"squid"`, "twice", "core 1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
}

func TestParseStat(t *testing.T) {
	got, err := parseStat("42 (a (b) c) S 7 42 42 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 1 0 100 1 2")
	if err != nil || got != (stat{pid: 42, parent: 7, cpuTicks: 200}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []string{"", "42 S 7", "42 (a) S 7", "x (a) S 7 42 42 0 -1 1 1 2 3 4 1 1"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

func TestParseBusyLeavesIdleAndGuestOut(t *testing.T) {
	got, err := parseBusy("cpu  100 200 300 9999 8888 10 20 30 5 6\ncpu0 1 2\n")
	if err != nil || got != 6.6 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "cpu a b c d e f g h"} {
		if _, err := parseBusy(bad); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

func TestPeakKiB(t *testing.T) {
	got, err := peakKiB("Name:\ta\nVmPeak:\t 999 kB\nVmHWM:\t    1536 kB\n")
	if err != nil || got != 1536 {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := peakKiB("Name:\ta\n"); err == nil {
		t.Error("found a peak where there is none")
	}
}

func TestTreeUsageOfOwnProcess(t *testing.T) {
	u, err := treeUsage(os.Getpid())
	if err != nil || u.peakMiB <= 0 {
		t.Errorf("got %+v, %v", u, err)
	}
	if _, err := treeUsage(1 << 30); err == nil {
		t.Error("found a process that does not exist")
	}
}

func TestParseWrk(t *testing.T) {
	r, err := parseWrk([]byte("Running 1s test\n{\"wrk\":{\"requests\":10,\"duration_us\":1000000,\"p50_us\":5.5,\"errors_read\":1,\"errors_status\":2}}\n"))
	if err != nil || r.Requests != 10 || r.P50Us != 5.5 || r.errors() != 3 {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, bad := range []string{"", "{\"wrk\":{}}\n", "{\"wrk\":\n"} {
		if _, err := parseWrk([]byte(bad)); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

func TestSummaries(t *testing.T) {
	o := Options{Subjects: []string{Warmpath, Direct, "nginx"}, MaxForeignShare: 0.1}
	runs := []Run{
		{Proxy: Direct, P50Us: 10, RequestsPerS: 100},
		{Proxy: Warmpath, P50Us: 50, RequestsPerS: 90, RequestsPerCPUS: new(300.0)},
		{Proxy: Warmpath, P50Us: 70, RequestsPerS: 70, RequestsPerCPUS: new(500.0), ForeignShare: 0.5, Errors: 2},
		{Proxy: "nginx", P50Us: 30, RequestsPerS: 80, RequestsPerCPUS: new(200.0)},
	}
	got := summarise(&o, runs)
	if len(got) != 3 {
		t.Fatalf("got %d summaries", len(got))
	}
	own, direct, nginx := got[0], got[1], got[2]
	if own.RequestsPerS != (Spread{70, 80, 90}) || own.RequestsPerCPUS.Median != 400 || own.NoisyRuns != 1 || *own.AddedP50Us != 50 {
		t.Errorf("warmpath: %+v", own)
	}
	if direct.RequestsPerCPUS != nil || direct.AddedP50Us != nil {
		t.Errorf("direct has figures of a proxy: %+v", direct)
	}
	if nginx.WarmpathRatio == nil || *nginx.WarmpathRatio != 2 {
		t.Errorf("nginx: %+v", nginx)
	}
	if err := failures(got); err == nil || !strings.Contains(err.Error(), Warmpath) {
		t.Errorf("failed requests were not reported: %v", err)
	}
	if spread(nil) != nil || spread([]float64{3, 1, 2, 10}).Median != 2.5 {
		t.Error("spread is wrong")
	}
}
