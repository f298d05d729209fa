package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmpath/controlplane/admin"
)

// demoRun is a running `warmpath demo`, in a process group of its own as a
// shell makes one.
type demoRun struct {
	*process
	engines []int // pids of its children
	ports   []int
}

var portsOfURLs = regexp.MustCompile(`http://127\.0\.0\.1:([0-9]+)`)

func startDemo(t *testing.T, nodes int) *demoRun {
	t.Helper()
	cmd := exec.Command(program("warmpath"), "demo", "--nodes", strconv.Itoa(nodes))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	d := &demoRun{process: launch(t, "warmpath demo", cmd)}
	eventually(t, startWithin, "the demo says what to try", func() bool {
		if !d.running() {
			t.Fatalf("demo ended with code %d: %s", d.code, d.err.String())
		}
		return strings.Contains(d.out.String(), "Ctrl-C ends all of it.")
	})
	d.engines = children(t, d.pid())
	seen := map[int]bool{}
	for _, m := range portsOfURLs.FindAllStringSubmatch(d.out.String(), -1) {
		if port, err := strconv.Atoi(m[1]); err == nil && !seen[port] {
			seen[port] = true
			d.ports = append(d.ports, port)
		}
	}
	if len(d.engines) != 1 || len(d.ports) != nodes+2 {
		t.Fatalf("children %v, ports %v, want 1 and %d", d.engines, d.ports, nodes+2)
	}
	return d
}

// children returns the pids of a process's children.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// gone waits until nothing of the demo is left.
func (d *demoRun) gone(t *testing.T) {
	t.Helper()
	eventually(t, 10*time.Second, "the engines are gone", func() bool {
		return syscall.Kill(d.engines[0], 0) == syscall.ESRCH || zombie(d.engines[0])
	})
	for _, port := range d.ports {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Errorf("port %d is still taken: %v", port, err)
			continue
		}
		_ = l.Close()
	}
}

// zombie reports whether a process has ended and only waits for its parent;
// where the parent is dead too, whoever inherits it may take its time.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, ok := strings.Cut(string(stat), ") ")
	return err == nil && ok && strings.HasPrefix(after, "Z")
}

// TestDemo does what the demo's screen says, in a shell, and ends it by Ctrl-C.
func TestDemo(t *testing.T) {
	curl, _ := exec.LookPath("curl")
	need(t, curl != "", "curl")
	l, err := net.Listen("tcp", "127.0.0.1:8080")
	if err == nil {
		defer l.Close() // else it is taken already, which is as good
	}
	d := startDemo(t, 4)
	screen := d.out.String()
	if !strings.Contains(screen, "port 8080 is taken; using ") {
		t.Errorf("the demo does not say that port 8080 is taken: %s", screen)
	}
	var lines []string
	for line := range strings.Lines(screen) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 3 {
		t.Fatalf("the screen has %d curl lines, want 3: %s", len(lines), screen)
	}
	first, second := shell(t, lines[0]), shell(t, lines[1])
	if headerOf(first, "X-Routed-To") == "" || headerOf(second, "X-Routed-To") != headerOf(first, "X-Routed-To") {
		t.Errorf("turn 1: %s\nturn 2: %s", first, second)
	}
	if m := regexp.MustCompile(`"cached_tokens":([0-9]+)`).FindStringSubmatch(second); m == nil || m[1] == "0" {
		t.Errorf("turn 2 says nothing was cached: %s", second)
	}
	var records []admin.DecisionView
	if err := json.Unmarshal([]byte(shell(t, lines[2])), &records); err != nil || len(records) != 1 {
		t.Errorf("%s: %v", lines[2], err)
	} else if id := headerOf(second, "X-Request-Id"); records[0].RequestID != id || records[0].Reason != "prefix" {
		t.Errorf("the latest decision is %+v, want that of %s", records[0], id)
	}
	explain := regexp.MustCompile(`(?m)^ +(\S+ explain --admin \S+) REQUEST-ID$`).FindStringSubmatch(screen)
	if explain == nil {
		t.Errorf("the screen shows no explain: %s", screen)
	} else if said := shell(t, explain[1]+" "+headerOf(second, "X-Request-Id")); !strings.Contains(said, "prefix: ") {
		t.Errorf("explain says %s", said)
	}
	// Ctrl-C: the terminal signals the whole foreground group.
	if err := syscall.Kill(-d.pid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := d.wait(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d after Ctrl-C", code)
	}
	d.gone(t)
	if !strings.Contains(d.out.String(), "ended: ") {
		t.Errorf("the demo does not say that it ended: %s", tail(d.out.String()))
	}
}

// TestDemoKilled ends the demo without giving it a chance to clean up.
func TestDemoKilled(t *testing.T) {
	d := startDemo(t, 1)
	d.kill(t)
	d.gone(t)
}

func shell(t *testing.T, line string) string {
	t.Helper()
	out, errs, code := command(t, "", "sh", "-c", line)
	if code != 0 {
		t.Fatalf("%s: code %d: %s", line, code, errs)
	}
	return out
}

// headerOf finds a field in what curl -i printed.
func headerOf(text, name string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(k, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
