package main

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startWithin bounds how long a program may take to say that it serves, on a
// machine that is busy with other tests.
const startWithin = 20 * time.Second

// output collects what a program prints, in a file that has no name: what it has
// printed is there at once, as it is not with a pipe that someone empties.
type output struct{ file *os.File }

// collect makes an output that is there until the test ends.
func collect(t *testing.T) output {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return output{f}
}

func (o *output) String() string {
	text, err := io.ReadAll(io.NewSectionReader(o.file, 0, math.MaxInt64)) // the program writes at the file's own place
	if err != nil {
		panic(err)
	}
	return string(text)
}

// process is one program that a test runs.
type process struct {
	name     string
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	out, err output
	ended    chan struct{} // closed when it has ended
	code     int           // exit code, valid then; -1 = ended by a signal
}

// launch starts a program. When the test ends it is killed if it still runs, and
// what it printed is shown if the test failed.
func launch(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{name: name, cmd: cmd, out: collect(t), err: collect(t), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out.file, p.err.file
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL         // nothing outlives an aborted test
	cmd.Env = append(cmd.Environ(), "TMPDIR="+programs) // what a killed program leaves goes with the tests
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		_ = cmd.Wait() // its code is all that matters
		p.code = cmd.ProcessState.ExitCode()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill(t)
		for _, sign := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
			if strings.Contains(p.err.String(), sign) {
				t.Errorf("%s printed %q", name, sign)
			}
		}
		if t.Failed() {
			t.Logf("%s (pid %d) printed:\n%s", name, cmd.Process.Pid, tail(p.out.String()+p.err.String()))
		}
	})
	return p
}

// tail keeps the end of a long text.
func tail(s string) string {
	const most = 5_000
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %s with %v: %v", p.name, s, err)
	}
}

// kill ends the process without asking it.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if p.running() {
		_ = p.cmd.Process.Kill() // it may just have ended
	}
	p.wait(t, 10*time.Second)
}

// wait returns the exit code.
func (p *process) wait(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.code
	case <-time.After(limit):
		t.Fatalf("%s still runs after %v", p.name, limit)
		return 0
	}
}

// command runs a program to its end.
func command(t *testing.T, stdin, name string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %s: %v", name, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// warmpath runs a subcommand to its end.
func warmpath(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return command(t, "", program("warmpath"), args...)
}

// eventually waits until ok holds.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	deadline := time.After(limit)
	for !ok() {
		select {
		case <-look.C:
		case <-deadline:
			if !ok() {
				t.Fatalf("waited %v in vain: %s", limit, what)
			}
			return
		}
	}
}
