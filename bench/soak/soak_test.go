package soak

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSoak runs a real router for a few seconds.
func TestSoak(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "warmpath")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "warmpath/cmd/warmpath")
	build.Env = append(build.Environ(), "CGO_ENABLED=0") // as `make build`
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the router: %v\n%s", err, out)
	}
	var out, log bytes.Buffer
	err := Run(t.Context(), Options{
		Warmpath: program, Duration: 2 * time.Second, Rate: 300, Clients: 48, Seed: 1,
		OperateEvery: 500 * time.Millisecond, DisturbEvery: time.Second,
	}, &out, &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	var report Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if report.Verdict != "ok" || report.Requests < 300 || report.Outcomes[classOK] < 200 || report.Outcomes["reload"]+report.Outcomes["drain"] == 0 {
		t.Errorf("%s", out.Bytes())
	}
}

func TestOptions(t *testing.T) {
	good := Options{Warmpath: "w"}
	good.complete()
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Options){
		"warmpath": func(o *Options) { o.Warmpath = "" }, "duration": func(o *Options) { o.Duration = 1 }, "requests": func(o *Options) { o.Requests = -1 },
		"rate": func(o *Options) { o.Rate = -1 }, "clients": func(o *Options) { o.Clients = 2001 }, "nodes": func(o *Options) { o.Nodes = 2 },
		"restart": func(o *Options) { o.RestartEvery = -1 }, "violations": func(o *Options) { o.Violations = -1 },
	} {
		o := good
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
