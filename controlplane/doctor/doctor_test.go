package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"warmpath/controlplane/config"
	"warmpath/controlplane/kernel"
)

// well is a host that allows everything.
func well() Host {
	return Host{
		Tier: kernel.Full, Release: "6.18.2", BTF: true, Cgroup: "/sys/fs/cgroup/system.slice/warmpath.service", Capabilities: 1<<12 | 1<<38 | 1<<39,
		Descriptors: 1 << 20, CPUs: 8, SynCookies: 1, Backlog: 4096, RTOMin: 200 * time.Millisecond, Memory: 32 << 30, Budget: 16 << 30,
		ClockSynced: true, ClockSource: "tsc",
	}
}

// poor is one that allows next to nothing.
func poor() Host {
	h := well()
	h.Tier = kernel.Passive
	h.Reasons = []kernel.Reason{{Part: "flow", Why: "this process may not load it", Remedy: "give it capabilities"}}
	h.Release, h.BTF, h.Cgroup, h.NoCgroup, h.Capabilities = "5.4.0-216-generic", false, "", "none", 0
	h.Descriptors, h.Quota, h.SynCookies, h.Backlog, h.RTOMin = 1024, 1.5, 0, 128, 0
	h.Memory, h.Budget, h.ClockSynced, h.ClockSource = 2<<30, 1<<30, false, "hpet"
	return h
}

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("warmpath.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Host)
		config string
		check  string
		state  string // ok, note or FAIL
		words  string // in detail or remedy
	}{
		"all of it":           {nil, "", "kernel plane", "ok", "full: "},
		"off":                 {nil, "kernel: {mode: off}", "kernel plane", "ok", "allows the tier full"},
		"lite":                {func(h *Host) { h.Tier = kernel.Lite }, "", "kernel plane", "note", "timed by the loops"},
		"required":            {func(h *Host) { h.Tier = kernel.Lite }, "kernel: {mode: require}", "kernel plane", "FAIL", "require"},
		"required, and there": {nil, "kernel: {mode: require}", "kernel plane", "ok", "full"},
		"said once": {func(h *Host) {
			h.Tier, h.Reasons = kernel.Lite, []kernel.Reason{{Part: "a", Why: "x", Remedy: "do it"}, {Part: "b", Why: "x", Remedy: "do it"}}
		}, "", "kernel plane", "note", "(a, b: x) do it"},
		"hears":                    {nil, "kernel: {node_load: true}", "node load", "ok", "is read"},
		"hears nothing":            {func(h *Host) { h.Deaf = &kernel.Reason{Why: "too old", Remedy: "renew it"} }, "kernel: {node_load: true}", "node load", "note", "renew it"},
		"must hear":                {func(h *Host) { h.Deaf = &kernel.Reason{Why: "too old"} }, "kernel: {mode: require, node_load: true}", "node load", "FAIL", "too old"},
		"hears without a plane":    {func(h *Host) { *h = poor(); h.Deaf = &kernel.Reason{Why: "no plane"} }, "kernel: {node_load: true}", "node load", "note", "may not load"},
		"hears nothing, as wanted": {nil, "kernel: {mode: off, node_load: true}", "node load", "note", "mode is off"},
		"old kernel":               {func(h *Host) { h.Release = "5.14.0-70.el9" }, "", "kernel release", "note", "5.15"},
		"older kernel":             {func(h *Host) { h.Release = "4.19" }, "", "kernel release", "note", "5.15"},
		"kernel of another style":  {func(h *Host) { h.Release = "linux" }, "", "kernel release", "ok", "linux"},
		"administrator":            {func(h *Host) { h.Capabilities = 1<<21 | 1<<12 }, "", "capabilities", "ok", "CAP_BPF"},
		"administrator, no net":    {func(h *Host) { h.Capabilities = 1 << 21 }, "", "capabilities", "note", "missing: CAP_NET_ADMIN"},
		"one missing":              {func(h *Host) { h.Capabilities = 1<<12 | 1<<39 }, "", "capabilities", "note", "missing: CAP_PERFMON"},
		"default is lowered":       {func(h *Host) { h.Descriptors = 1024 }, "", "open descriptors", "note", "room for 256"},
		"given and too many":       {func(h *Host) { h.Descriptors = 1024 }, "limits: {connections: 2000}", "open descriptors", "FAIL", "at most 256"},
		"given and fits":           {func(h *Host) { h.Descriptors = 1024 }, "limits: {connections: 200}", "open descriptors", "ok", "may need 912"},
		"no room at all":           {func(h *Host) { h.Descriptors = 256 }, "", "open descriptors", "FAIL", "LimitNOFILE"},
		"too many loops":           {nil, "loops: 9", "event loops", "note", "leave loops at 0"},
		"fewer loops":              {nil, "loops: 2", "event loops", "ok", "2 on 8"},
		"quota":                    {func(h *Host) { h.Quota = 2.5 }, "", "event loops", "note", "set loops to 3"},
		"quota that suffices":      {func(h *Host) { h.Quota = 2.5 }, "loops: 3", "event loops", "ok", "3 on 8"},
		"cookies not known":        {func(h *Host) { h.SynCookies = -1 }, "", "SYN cookies", "ok", "not known"},
		"queue not known":          {func(h *Host) { h.Backlog = -1 }, "", "accept queue", "ok", "not known"},
		"tuned":                    {nil, "", "RTO_min", "ok", "50ms for connections to near nodes"},
		"tuned as asked":           {nil, "kernel: {rto_min: 80ms}", "RTO_min", "ok", "80ms for connections to near nodes"},
		"not tuned, off":           {nil, "kernel: {mode: off}", "RTO_min", "ok", "200ms for all"},
		"the administrator's":      {func(h *Host) { h.RTOMin = 100 * time.Millisecond }, "", "RTO_min", "ok", "100ms, which is left alone"},
		"the administrator's, low": {func(h *Host) { h.RTOMin = 5 * time.Millisecond }, "", "RTO_min", "note", "50000"},
		"memory":                   {nil, "", "memory", "ok", "bodies and answers 16.0 GiB, index 1.0 GiB, memos 256 MiB, of 32.0 GiB"},
		"more than there is":       {func(h *Host) { h.Memory, h.Budget = 2<<30, 1<<30 }, "", "memory", "note", "more than there is"},
		"memory not known":         {func(h *Host) { h.Memory, h.Budget = 0, 0 }, "", "memory", "note", "limits.memory"},
		"memory as configured":     {func(h *Host) { h.Memory, h.Budget = 0, 1<<30 }, "", "memory", "ok", "of unknown"},
		"clock not known":          {func(h *Host) { h.ClockSource = "" }, "", "clock source", "ok", "not known"},
		"clock of a virtual host":  {func(h *Host) { h.ClockSource = "kvm-clock" }, "", "clock source", "ok", "kvm-clock"},
	} {
		h := well()
		if c.change != nil {
			c.change(&h)
		}
		found := false
		for _, check := range judge(&h, parse(t, "nodes: []\n"+c.config+"\n")) {
			if check.Name != c.check {
				continue
			}
			found = true
			if got := stateOf(check); got != c.state || !strings.Contains(check.Detail+" "+check.Remedy, c.words) {
				t.Errorf("%s: %s: %+v; want %s with %q", name, got, check, c.state, c.words)
			}
		}
		if !found {
			t.Errorf("%s: no check %q", name, c.check)
		}
	}
}

// stateOf is how Print marks a check.
func stateOf(c Check) string {
	var b bytes.Buffer
	_ = (&Report{Checks: []Check{c}}).Print(&b)
	return strings.Fields(b.String())[0]
}

// TestRemedies wants one for everything that is not ok, and none for what is.
func TestRemedies(t *testing.T) {
	rich, bad := well(), poor()
	c := config.Default()
	checks := append(judge(&rich, c), judge(&bad, c)...)
	checks = append(checks, configuration(errors.New("x"))...)
	checks = append(checks, configuration(config.Errors{{File: "f", What: "x"}})...)
	checks = append(checks, files(nil, nil)...)
	checks = append(checks, files([]string{"x"}, nil)...)
	checks = append(checks, files(nil, errors.New("x"))...)
	for _, check := range checks {
		if check.OK != (check.Remedy == "") || check.Detail == "" || strings.ContainsAny(check.Name+check.Detail+check.Remedy, "\n\t") {
			t.Errorf("%+v", check)
		}
	}
	for i, check := range judge(&bad, c) {
		if check.OK != (check.Name == "RTO_min") {
			t.Errorf("%d: %+v on a host that allows nothing", i, check)
		}
	}
}

func TestPrint(t *testing.T) {
	h := poor()
	c := parse(t, "nodes: [{name: gpu-a, url: \"http://10.0.0.11:8000\"}, {name: gpu-b, url: \"http://10.0.0.12:8000\"}]\nlimits: {connections: 200}\n")
	r := &Report{Kernel: Kernel{h.Tier, h.Reasons}, Checks: judge(&h, c)}
	r.Checks = append(r.Checks, nodes(c, []answer{{took: 3 * time.Millisecond}, {err: errors.New("ask health: no route to host")}})...)
	var text bytes.Buffer
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/report.txt")
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("printed\n%s\nwant\n%s", text.String(), want)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "1 check") {
		t.Errorf("error %v", err)
	}
	b, err := json.Marshal(r)
	if err != nil || !bytes.HasPrefix(b, []byte(`{"kernel":{"tier":"passive","reasons":[{"part":"flow","why":"this process may not load it","remedy":"give it capabilities"}]},"checks":[{"name":"kernel plane","ok":false,"needed":false,"detail":"passive: `)) {
		t.Errorf("%v: %s", err, b)
	}
}

// TestEndings are what the last line says, and with it the exit code.
func TestEndings(t *testing.T) {
	for _, c := range []struct {
		checks []Check
		want   string
		fails  bool
	}{
		{[]Check{good("a", "b")}, "everything works", false},
		{[]Check{good("a", "b"), lacking("a", "b", "c")}, "could be better", false},
		{[]Check{broken("a", "b", "c"), lacking("a", "b", "c")}, "1 check of", true},
		{[]Check{broken("a", "b", "c"), broken("a", "b", "c")}, "2 checks of", true},
	} {
		r, text := &Report{Checks: c.checks}, bytes.Buffer{}
		if err := r.Print(&text); err != nil || !strings.Contains(text.String(), c.want) || (r.Err() != nil) != c.fails {
			t.Errorf("%v, %v: %s; want %q", err, r.Err(), text.String(), c.want)
		}
	}
}

func TestRead(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	root := fstest.MapFS{
		"proc/self/status":                                                file("Name:\twarmpath\nCapPrm:\t0\nCapEff:\t000000c000001000\n"),
		"proc/sys/net/ipv4/tcp_syncookies":                                file("2\n"),
		"proc/sys/net/core/somaxconn":                                     file("many\n"),
		"sys/kernel/btf/vmlinux":                                          file("\x9f\xeb"),
		"sys/fs/cgroup/a/cpu.max":                                         file("300000 100000\n"),
		"sys/fs/cgroup/a/b/cpu.max":                                       file("max 100000\n"),
		"sys/fs/cgroup/a/b/c/cpu.max":                                     file("400000 100000\n"),
		"sys/fs/cgroup/broken/cpu.max":                                    file("1 0\n"),
		"sys/fs/cgroup/broken/more/cpu.max":                               file("nonsense\n"),
		"sys/devices/system/clocksource/clocksource0/current_clocksource": file("tsc\n"),
	}
	h := Host{Cgroup: "/sys/fs/cgroup/a/b/c"}
	h.read(root)
	if h.Capabilities != 1<<12|1<<38|1<<39 || h.SynCookies != 2 || h.Backlog != -1 || !h.BTF || h.Quota != 3 || h.ClockSource != "tsc" {
		t.Errorf("%+v", h)
	}
	h = Host{Cgroup: "/sys/fs/cgroup/broken/more"}
	h.read(root)
	if h.Quota != 0 {
		t.Errorf("a quota of %v", h.Quota)
	}
	h.read(fstest.MapFS{})
	if h.Capabilities != 0 || h.SynCookies != -1 || h.Backlog != -1 || h.ClockSource != "" {
		t.Errorf("of nothing: %+v", h)
	}
}

// TestNodes asks nodes that are well, broken, wrong, gone, silent and unknown.
func TestNodes(t *testing.T) {
	status := func(code int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	release := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(func() { close(release); silent.Close() })
	gone := httptest.NewServer(nil)
	gone.Close()
	text, want := "nodes:\n", []string{"", "loads its model", "health.path", "without a key", "start the engine", "drops packets", "correct the name"}
	for i, url := range []string{status(200), status(503), status(404), status(401), gone.URL, silent.URL, "http://no-such-host.invalid:8000"} {
		text += fmt.Sprintf("  - {name: n%d, url: %q}\n", i, url)
	}
	c := parse(t, text)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for i, check := range nodes(c, askNodes(ctx, c)) {
		if i == len(want)-1 && strings.Contains(check.Remedy, "packets") {
			continue // a resolver that does not answer within the time is silent as well
		}
		if check.Name != fmt.Sprint("node n", i) || check.OK != (want[i] == "") || !check.Needed || !strings.Contains(check.Remedy, want[i]) {
			t.Errorf("%+v, want %q", check, want[i])
		}
	}
}

// TestExamine looks at the host of the test, whatever that allows.
func TestExamine(t *testing.T) {
	r, err := Examine(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Kernel.Tier == "" || r.Kernel.Tier == kernel.Off || r.Kernel.Reasons == nil || (r.Kernel.Tier == kernel.Full) != (len(r.Kernel.Reasons) == 0) || len(r.Checks) < 10 {
		t.Errorf("%+v", r)
	}
	r, err = Examine(t.Context(), func() (*config.Config, error) {
		return config.Parse("f.yaml", []byte("nodes: []\nloops: many\nlog: {level: loud}\n"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if last := r.Checks[len(r.Checks)-2:]; last[0].OK || !strings.Contains(last[0].Detail, "f.yaml:2:") || !strings.Contains(last[1].Detail, "log.level") || r.Err() == nil {
		t.Errorf("%+v", last)
	}
}
