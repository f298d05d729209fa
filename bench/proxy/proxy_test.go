package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"warmpath/bench/backend"
	"warmpath/bench/peer/httputilproxy"
)

// TestMain lets the test executable serve as the backend of its own tests and
// as Go's reverse proxy, as warmbench does.
func TestMain(m *testing.M) {
	var err error
	switch {
	case len(os.Args) > 3 && os.Args[1] == "backend":
		err = backend.Run(context.Background(), backend.Options{Addresses: strings.Split(os.Args[3], ","), Loops: 1, Model: "bench"}, nil)
	case len(os.Args) > 6 && os.Args[2] == "httputil":
		err = httputilproxy.Run(context.Background(), os.Args[4], strings.Split(os.Args[6], ","))
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// options measure direct and, where it is installed, nginx, for a second each.
func options(t *testing.T) Options {
	t.Helper()
	if runtime.NumCPU() < 2 {
		t.Skip("needs two cores")
	}
	for _, tool := range []string{"wrk", "taskset", "stdbuf"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: %v", tool, err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Load: LoadPost, SizeBytes: 600, Concurrency: 4, Runs: 1, Duration: time.Second, Subjects: []string{Direct, "nginx"},
		ProxyCore: 1, LoadCore: 0, Nodes: 2, Self: self, Peers: "../../.cache/venv-peers", Commit: "test",
		MaxForeignShare: 10, MaxStealPercent: 100, Tries: 1,
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
		if s.RequestsPerCPUS == nil || s.RequestsPerCPUS.Median < 100 || s.AddedP50Us == nil || s.CPUUsPerRequest == nil {
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
	for _, c := range []struct {
		o     Options
		wants []string
	}{
		{
			Options{SizeBytes: 10, Duration: 1500 * time.Millisecond, Subjects: []string{"squid", Direct, Direct}, ProxyCore: 1, LoadCore: 1},
			[]string{"size 10", "concurrency 0", "runs 0", "duration 1.5s", `"squid"`, "twice", "core 1", `load ""`},
		},
		{Options{Load: LoadStream, Concurrency: maxStreams + 1}, []string{"streams 3501", "interval 0s"}},
		{Options{Load: LoadOpen, Share: 1}, []string{"share 1"}},
	} {
		err := c.o.check()
		if err == nil {
			t.Fatal("accepted")
		}
		for _, want := range c.wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nlacks %q", err, want)
			}
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
	o := Options{Subjects: []string{Warmpath, Direct, "nginx"}, MaxForeignShare: 0.1, MaxStealPercent: 1}
	run := func(name string, p50, perS, cpuUs float64) Run {
		r := Run{Parameters: Parameters{Proxy: name}, Figures: Figures[float64]{P50Us: &p50, RequestsPerS: &perS}}
		if cpuUs > 0 {
			r.CPUUsPerRequest = &cpuUs
		}
		return r
	}
	runs := []Run{
		run(Direct, 10, 100, 0), run(Warmpath, 50, 90, 3), run(Warmpath, 70, 70, 5), run(Warmpath, 60, 80, 4), run("nginx", 30, 80, 8),
	}
	runs[2].ForeignShare, runs[2].Errors, runs[3].StealPercent = 0.5, 2, 1.5
	got := summarise(&o, runs)
	if len(got) != 3 {
		t.Fatalf("got %d summaries", len(got))
	}
	own, direct, nginx := got[0], got[1], got[2]
	if *own.RequestsPerS != (Spread{70, 80, 90}) || own.CPUUsPerRequest.Median != 4 || own.NoisyRuns != 2 || *own.AddedP50Us != 50 {
		t.Errorf("warmpath: %+v", own)
	}
	if direct.CPUUsPerRequest != nil || direct.AddedP50Us != nil || own.ChunkP50Us != nil {
		t.Errorf("direct has figures of a proxy: %+v", direct)
	}
	if nginx.WarmpathRatio == nil || *nginx.WarmpathRatio != 2 || nginx.AddedP99Us != nil {
		t.Errorf("nginx: %+v", nginx)
	}
	if err := failures(got); err == nil || !strings.Contains(err.Error(), Warmpath) {
		t.Errorf("failed requests were not reported: %v", err)
	}
	if spread(nil) != nil || spread([]float64{3, 1, 2, 10}).Median != 2.5 {
		t.Error("spread is wrong")
	}
}

// TestLoads measures each kind of load for a second with one peer.
func TestLoads(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for seconds")
	}
	for load, wants := range map[Load][]string{
		LoadGet:    {"CPU µs/request", "GET, 4 connections"},
		LoadStream: {"CPU µs/chunk", "4 streams, a chunk every 10ms"},
		LoadOpen:   {"requests/s asked", "open loop at 10 %"},
	} {
		o := options(t)
		o.Load, o.SizeBytes, o.Interval, o.Share, o.Subjects = load, 1024, 10*time.Millisecond, 0.1, []string{Direct, "httputil"}
		var out, log bytes.Buffer
		err := errors.New("not measured")
		for tries := 3; tries > 0 && err != nil; tries-- { // a peer on a busy machine may fail a request
			out.Reset()
			log.Reset()
			err = Measure(t.Context(), o, &out, &log)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", load, err, &log)
		}
		var s Summary
		last := bytes.TrimSpace(out.Bytes())
		if err := json.Unmarshal(last[bytes.LastIndexByte(last, '\n')+1:], &s); err != nil {
			t.Fatal(err)
		}
		switch {
		case s.Proxy != "httputil" || s.Load != load || s.Errors != 0 || s.RSSMiB == nil:
			t.Errorf("%s: %+v", load, s)
		case load == LoadStream && (s.CPUUsPerChunk == nil || s.AddedChunkP50Us == nil || s.ReadsPerChunk == nil || s.IntervalMs != 10):
			t.Errorf("no figures of chunks: %s", last)
		case load == LoadOpen && (s.RatePerS == nil || s.AddedP99Us == nil || s.Share != 0.1):
			t.Errorf("no figures of an open loop: %s", last)
		case load == LoadGet && (s.CPUUsPerRequest == nil || s.SizeBytes != 0):
			t.Errorf("no figures of requests: %s", last)
		}
		for _, want := range wants {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no %q in\n%s", want, &log)
			}
		}
	}
}

// TestBrokenPeerIsLeftOut: a peer that does not start spoils nobody else's
// figures, and the end says so.
func TestBrokenPeerIsLeftOut(t *testing.T) {
	o := options(t)
	o.Peers = t.TempDir()
	if err := os.MkdirAll(filepath.Join(o.Peers, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"envoy", "python"} {
		if err := os.WriteFile(filepath.Join(o.Peers, "bin", name), []byte("#!/bin/sh\necho no such extension\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	o.Subjects, o.Runs = []string{"envoy", Direct, "smg", "nginx-buffered"}, 2
	o.Load = LoadGet
	var out, log bytes.Buffer
	err := Measure(t.Context(), o, &out, &log)
	if err == nil || !strings.Contains(err.Error(), "no such extension") {
		t.Errorf("got %v", err)
	}
	for want, times := range map[string]int{
		`"record":"failure","proxy":"envoy"`: 1, `"record":"run","proxy":"direct"`: 2, `"record":"summary","proxy":"direct"`: 1,
		`"nginx-buffered":"it differs`: 1, `"smg":"it passes`: 1,
	} {
		if n := strings.Count(out.String(), want); n != times {
			t.Errorf("%d times %s in\n%s", n, want, &out)
		}
	}
}
