package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"warmpath/controlplane/doctor"
	"warmpath/controlplane/kernel"
)

// nobody is a user that owns nothing and may nothing.
const nobody = 65534

// as runs a program as nobody, with these capabilities and no other, the way a
// systemd unit with User= and AmbientCapabilities= does.
func as(t *testing.T, capabilities []uintptr, args ...string) *exec.Cmd {
	t.Helper()
	need(t, os.Geteuid() == 0, "root, to run a program as another user")
	// The folder was made for this user alone; nothing in it is secret.
	if err := os.Chmod(programs, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := programs; len(dir) > 1; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		need(t, info.Mode().Perm()&1 != 0, "a folder for temporary files that every user can enter: "+dir)
	}
	cmd := exec.Command(program("warmpath"), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: capabilities}
	return cmd
}

// doctorAs runs doctor so and returns its report.
func doctorAs(t *testing.T, capabilities []uintptr, args ...string) (r doctor.Report, code int) {
	t.Helper()
	cmd := as(t, capabilities, append([]string{"doctor", "--output", "json"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	parse(t, out.String(), &r)
	t.Logf("%s%s", out.String(), errs.String())
	return r, cmd.ProcessState.ExitCode()
}

func checkOf(t *testing.T, r *doctor.Report, name string) doctor.Check {
	t.Helper()
	i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %q in %+v", name, r.Checks)
	}
	return r.Checks[i]
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 1)
	path := configure(t, settings, nodeList(sim.urls...))
	out, errs, code := warmpath(t, "doctor", "--config", path)
	for _, want := range []string{"kernel plane", "open descriptors", "configuration", "0 models, 1 nodes, policy cost", "node sim-0", sim.urls[0] + "/health answers", "everything"} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor does not say %q:\n%s", want, out)
		}
	}
	if code != 0 || errs != "" {
		t.Errorf("code %d: %s", code, errs)
	}
	if out, _, code := warmpath(t, "doctor"); code != 0 || strings.Contains(out, "configuration") || !strings.Contains(out, "clock source") {
		t.Errorf("without a configuration: code %d:\n%s", code, out)
	}
	dead := configure(t, settings, nodeList(sim.urls[0], "http://"+freeAddress(t)))
	for _, args := range [][]string{
		{"--config", dead},
		{"--config", path, "--policy.name", "costs"},
		{"--config", filepath.Join(t.TempDir(), "none.yaml")},
		{"--config", configure(t, settings, nodeList(), "models: [{name: m, tokenizer: none.json}]\n")},
		{"--config", path, "--limits.connections", "100000000"},
	} {
		out, errs, code := warmpath(t, append([]string{"doctor", "--output", "json"}, args...)...)
		var r doctor.Report
		parse(t, out, &r)
		failed := 0
		for _, c := range r.Checks {
			if !c.OK && c.Needed {
				failed++
				if c.Remedy == "" {
					t.Errorf("%v: no remedy: %+v", args, c)
				}
			}
		}
		if code != 1 || failed != 1 || !strings.Contains(errs, "1 check of what is needed failed") {
			t.Errorf("%v: code %d, %d failed: %s%s", args, code, failed, out, errs)
		}
	}
}

// TestDoctorOfNobody: a router that may load nothing serves all the same, and is
// told how to do better.
func TestDoctorOfNobody(t *testing.T) {
	t.Parallel()
	r, code := doctorAs(t, nil)
	if code != 0 || r.Kernel.Tier != kernel.Passive || len(r.Kernel.Reasons) == 0 || !strings.Contains(r.Kernel.Reasons[0].Remedy, "CAP_BPF") {
		t.Errorf("code %d, %+v", code, r.Kernel)
	}
	if c := checkOf(t, &r, "capabilities"); c.OK || c.Needed || !strings.Contains(c.Detail, "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN") || !strings.Contains(c.Remedy, "AmbientCapabilities") {
		t.Errorf("%+v", c)
	}
	required := configure(t, settings, nodeList(), "kernel: {mode: require}\n")
	open, err := os.ReadFile(required)
	if err != nil {
		t.Fatal(err)
	}
	readable := filepath.Join(programs, "required.yaml") // its folder can be entered by nobody
	if err := os.WriteFile(readable, open, 0o644); err != nil {
		t.Fatal(err)
	}
	if r, code := doctorAs(t, nil, "--config", readable); code != 1 || !checkOf(t, &r, "kernel plane").Needed {
		t.Errorf("kernel.mode require: code %d, %+v", code, r.Checks)
	}
}

// unit is the systemd unit that packages ship.
const unit = "../../scripts/warmpath.service"

// ofUnit is the value of a key of the unit, of its last line if it has several.
func ofUnit(t *testing.T, key string) (value string) {
	t.Helper()
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, key+"="); ok {
			value = strings.TrimSpace(v)
		}
	}
	return value
}

// ambient are the capabilities that the unit gives.
func ambient(t *testing.T) (bits []uintptr) {
	t.Helper()
	numbers := map[string]uintptr{"CAP_BPF": unix.CAP_BPF, "CAP_NET_ADMIN": unix.CAP_NET_ADMIN, "CAP_PERFMON": unix.CAP_PERFMON}
	for _, name := range strings.Fields(ofUnit(t, "AmbientCapabilities")) {
		bit, ok := numbers[name]
		if !ok {
			t.Fatalf("the unit gives %s, which the router does not need", name)
		}
		bits = append(bits, bit)
	}
	return bits
}

// TestUnitReachesFull starts the router as the unit does: as a user who is nobody,
// with the unit's capabilities and no other. Without one of them it is not full.
func TestUnitReachesFull(t *testing.T) {
	t.Parallel()
	bits := ambient(t)
	if len(bits) != 3 || ofUnit(t, "CapabilityBoundingSet") != ofUnit(t, "AmbientCapabilities") {
		t.Errorf("capabilities %v of %q", bits, ofUnit(t, "CapabilityBoundingSet"))
	}
	if r, code := doctorAs(t, bits); code != 0 || r.Kernel.Tier != kernel.Full || !checkOf(t, &r, "capabilities").OK {
		t.Fatalf("doctor with the unit's capabilities: code %d, %+v", code, r.Kernel)
	}
	for i := range bits {
		less := slices.Delete(slices.Clone(bits), i, i+1)
		if r, _ := doctorAs(t, less); r.Kernel.Tier == kernel.Full || checkOf(t, &r, "capabilities").OK {
			t.Errorf("full with the capabilities %v", less)
		}
	}
	path := filepath.Join(programs, "unit.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, "%snodes: []\nadmin: {listen: \"127.0.0.1:0\"}\nkernel: {mode: require}\n", settings), 0o644); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "warmpath", as(t, bits, "serve", "--config", path))
	eventually(t, startWithin, "the router serves in the tier full", func() bool {
		if !p.running() {
			t.Fatalf("it ended with code %d: %s", p.code, p.err.String())
		}
		return strings.Contains(p.err.String(), `"msg":"serving"`) && strings.Contains(p.err.String(), `"kernel":"full"`)
	})
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(t, startWithin); code != 0 {
		t.Errorf("it ended with code %d", code)
	}
}

// TestUnitIsValid asks systemd itself, with the program of the test in place of the
// one that a package installs.
func TestUnitIsValid(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	need(t, err == nil, "systemd-analyze")
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "warmpath.service")
	if err := os.WriteFile(copied, bytes.ReplaceAll(text, []byte("/usr/bin/warmpath"), []byte(program("warmpath"))), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", copied).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if err != nil || strings.Contains(line, "warmpath") {
			t.Errorf("systemd-analyze verify: %v: %s", err, line)
		}
	}
}
