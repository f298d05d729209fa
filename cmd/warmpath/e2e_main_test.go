package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"warmpath/controlplane/config"
)

// The tests of this package run the real programs: warmpath and enginesim are
// built once, started on free ports of loopback, and ended by their own pid.

var (
	raceBuild = flag.Bool("e2e.race", false, "build the programs under test with the race detector (needs cgo)")
	programs  string // folder of the built programs
)

const testVersion = "e2e-test"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "warmpath-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make folder for the programs:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := buildPrograms(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	programs = dir
	return m.Run()
}

// simTag is a build tag for enginesim that needs cgo; warmpath is always built
// without.
var simTag string

func buildPrograms(dir string) error {
	args := []string{"build", "-o", dir + string(filepath.Separator), "-ldflags", "-X main.version=" + testVersion}
	cgo := "CGO_ENABLED=0" // as `make build`
	if *raceBuild {
		args, cgo = append(args, "-race"), "CGO_ENABLED=1"
	}
	builds := []*exec.Cmd{exec.Command("go", append(args, ".", "../enginesim")...)}
	if simTag != "" {
		builds = []*exec.Cmd{exec.Command("go", append(args, ".")...), exec.Command("go", append(args, "-tags", simTag, "../enginesim")...)}
	}
	for i, cmd := range builds {
		cmd.Env = append(cmd.Environ(), cgo)
		if i > 0 {
			cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build warmpath and enginesim: %w\n%s", err, out)
		}
	}
	return nil
}

func program(name string) string { return filepath.Join(programs, name) }

// need skips the test when something of the host is missing, in one line; in
// continuous integration, where everything is set up, that is a failure.
func need(t *testing.T, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case slices.Contains(config.Environ(), "CI=true"):
		t.Fatalf("missing on this host: %s", what)
	default:
		t.Skipf("missing on this host: %s", what)
	}
}
