package process

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/actuatetest"
)

type safeBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestConforms(t *testing.T) {
	ours, theirs := newFleet(t), newFleet(t)
	theirs.FirstPort, theirs.LastPort = ours.FirstPort, ours.LastPort // they share them
	opens := func(f *fleet, change func(*Options)) actuatetest.New {
		return func(t *testing.T) actuate.Actuator {
			o := f.Options
			change(&o)
			a, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	actuatetest.Conforms(t, opens(ours, func(*Options) {}),
		actuatetest.OtherFleet(opens(theirs, func(*Options) {})),
		actuatetest.Refuses("no such file", actuate.Settings, opens(ours, func(o *Options) { o.Command = []string{none} }), none, "no such file or directory"),
		actuatetest.Refuses("not executable", actuate.Settings, opens(ours, func(o *Options) { o.Command = []string{text} }), text, "permission denied"),
		actuatetest.Refuses("not in PATH", actuate.Settings, opens(ours, func(o *Options) { o.Command = []string{"no-such-engine"} }), "no-such-engine", "not found", "/usr/bin:/bin"),
		actuatetest.Refuses("no model", actuate.Settings, opens(ours, func(o *Options) { o.Command = []string{os.Args[0], "{model}"} }), "{model}", "no model was named"),
		actuatetest.Refuses("no port", actuate.Quota, opens(ours, func(o *Options) { o.FirstPort, o.LastPort = taken, taken }), strconv.Itoa(taken), "address already in use"),
	)
}

func TestNodesServeWithWhatTheyWereGiven(t *testing.T) {
	f := newFleet(t)
	f.Command = []string{os.Args[0], "engine", "{port}", "{key}", "{model}", "{\"a\": {port}}", "{}"}
	f.Environ = append(f.Environ, "WARMPATH_NODE=of-another", "SPT_NOENV=")
	a := f.open()
	i, err := a.Create(t.Context(), actuate.Wanted{Key: "n1", Model: "qwen3 8b; $(x)"})
	if err != nil {
		t.Fatal(err)
	}
	if since := time.Since(i.Since); since < -2*time.Second || since > 20*time.Second {
		t.Errorf("since %v", i.Since)
	}
	serves(t, i.URL)
	resp, err := http.Get(i.URL)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	port := strings.TrimPrefix(i.URL, "http://127.0.0.1:")
	if want := `n1 qwen3 8b; $(x) {"a": ` + port + `} {}`; string(body) != want {
		t.Errorf("was run with %q, want %q", body, want)
	}
	pid := leaderOf(t, i)
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(env), "\x00"), "\x00")
	slices.Sort(lines)
	want := []string{"LANG=C", "PATH=/usr/bin:/bin", "SPT_NOENV=1", "WARMPATH_FLEET=" + f.Fleet, "WARMPATH_INSTANCE=" + i.ID, "WARMPATH_NODE=n1", "WARMPATH_PORT=" + port}
	if !slices.Equal(lines, want) {
		t.Errorf("environment %q, want %q", lines, want)
	}
	for fd := range 3 {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err != nil || to != "/dev/null" {
			t.Errorf("descriptor %d is %q, %v", fd, to, err)
		}
	}
	if sid, err := syscall.Getpgid(pid); err != nil || sid != pid {
		t.Errorf("group %d of %d, %v", sid, pid, err)
	}
}

func TestNodesOutliveTheirRouter(t *testing.T) {
	f := newFleet(t)
	ids, kill := f.startRouter("a", "b")
	a := f.open()
	kill()
	got := f.list(a)
	if len(got) != 2 || got["a"].ID != ids[0] || got["b"].ID != ids[1] || got["a"].Phase != actuate.Running {
		t.Fatalf("after kill -9 of their router: %+v, want the nodes %q", got, ids)
	}
	serves(t, got["a"].URL)
	if again := f.create(a, "a"); again.ID != ids[0] {
		t.Errorf("asked again: %+v, want %q", again, ids[0])
	}
	f.create(a, "c")
	f.remove(a, got["a"])
	f.remove(a, actuate.Instance{Key: "b"})
	eventually(t, "they ended", func() bool { return len(f.list(a)) == 1 })
	serves(t, f.list(a)["c"].URL)
}

func TestARouterThatIsKilledAtAnyMomentLeavesNoNodeTwice(t *testing.T) {
	f := newFleet(t)
	for round := range 8 {
		// It is killed after the first of its nodes, while it makes others.
		_, kill := f.startRouter(fmt.Sprint("r", round))
		cmd := exec.Command(os.Args[0], "router", f.Fleet, strconv.Itoa(f.FirstPort), "a", "b", "c", "d", "e", "f")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(round) * 6 * time.Millisecond) // so that it is killed anywhere
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		kill()
		a := f.open()
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			f.create(a, key)
		}
		all, err := a.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != 7 {
			t.Fatalf("round %d: %d nodes, want 7: %+v", round, len(all), all)
		}
		if pids := f.pids(); len(pids) != 7 {
			t.Fatalf("round %d: processes %v", round, pids)
		}
		for _, i := range all {
			f.remove(a, i)
		}
		eventually(t, "they ended", func() bool { return len(f.pids()) == 0 })
	}
}

func TestPortsOfOthersAreLeftAlone(t *testing.T) {
	f := newFleet(t)
	for i, address := range []string{"127.0.0.1:", "0.0.0.0:", "[::]:"} {
		l, err := net.Listen("tcp", address+strconv.Itoa(f.FirstPort+i))
		if err != nil {
			t.Logf("%s: %v", address, err)
			continue
		}
		defer l.Close()
	}
	f.Command = []string{os.Args[0], "wait"} // its port is its own before it listens, and when it never does
	f.LastPort = f.FirstPort + 4
	a := f.open()
	for i := range 2 {
		n := f.create(a, fmt.Sprint("n", i))
		if want := fmt.Sprintf("http://127.0.0.1:%d", f.FirstPort+3+i); n.URL != want {
			t.Errorf("node %d is at %s, want %s", i, n.URL, want)
		}
	}
	_, err := a.Create(t.Context(), actuate.Wanted{Key: "n2"})
	if refused := actuate.AsRefusal(err); refused == nil || refused.Reason != actuate.Quota {
		t.Errorf("no port is left: %v", err)
	}
	f.remove(a, actuate.Instance{Key: "n0"})
	eventually(t, "its port is free", func() bool {
		n, err := a.Create(t.Context(), actuate.Wanted{Key: "n2"})
		return err == nil && n.URL == fmt.Sprintf("http://127.0.0.1:%d", f.FirstPort+3)
	})
}

func TestMaxNodes(t *testing.T) {
	f := newFleet(t)
	f.MaxNodes = 2
	f.Command[1] = "deaf"
	f.StopAfter = 300 * time.Millisecond
	a := f.open()
	serves(t, f.create(a, "n1").URL)
	f.create(a, "n2")
	f.remove(a, actuate.Instance{Key: "n1"})
	_, err := a.Create(t.Context(), actuate.Wanted{Key: "n3"})
	if refused := actuate.AsRefusal(err); refused == nil || refused.Reason != actuate.Quota || !strings.Contains(err.Error(), "has 2 nodes") {
		t.Errorf("one that still ends counts: %v", err)
	}
	f.create(a, "n2") // it is there
	eventually(t, "there is room again", func() bool {
		_, err := a.Create(t.Context(), actuate.Wanted{Key: "n3"})
		return err == nil
	})
}

func TestWhyANodeEnded(t *testing.T) {
	f := newFleet(t)
	f.Command = []string{os.Args[0], "fails"}
	f.LogDir = filepath.Join(t.TempDir(), "logs", "nodes")
	a := f.open()
	was := f.create(a, "n1")
	var is actuate.Instance
	eventually(t, "it says why", func() bool { is = f.list(a)["n1"]; return is.Phase == actuate.Ended })
	if is.ID != was.ID || !strings.Contains(is.Detail, "exit status 3") || !strings.Contains(is.Detail, "loading\nout of memory on card 0") {
		t.Errorf("ended as %+v", is)
	}
	pid := leaderOf(t, was)
	if ended, zombie := gone(pid); !ended || zombie {
		t.Errorf("process %d: ended %v, zombie %v", pid, ended, zombie)
	}
	if others := f.list(f.open()); len(others) != 0 {
		t.Errorf("another, which did not start it, lists %+v", others)
	}
	if again := f.create(a, "n1"); again.ID == was.ID {
		t.Error("it was not started again")
	}
	for i := range endsKept + 20 {
		a.ended.add(end{marks: marks{key: fmt.Sprint("k", i), instance: fmt.Sprint(i)}})
	}
	eventually(t, "only the last are kept", func() bool { return len(f.list(a)) == endsKept })
}

func TestLogsAreBoundedInNumber(t *testing.T) {
	f := newFleet(t)
	f.LogDir = t.TempDir()
	old := time.Now().Add(-time.Hour)
	names := []string{"notes.txt", "other." + "k.log", f.Fleet + ".Not-A-Key.log", f.Fleet + ".running.log"}
	for i := range logsKept + 5 {
		names = append(names, fmt.Sprintf("%s.k%03d.log", f.Fleet, i))
	}
	a := f.open()
	f.create(a, "running")
	for i, name := range names {
		path := filepath.Join(f.LogDir, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, old, old.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	f.create(a, "another")
	left, err := filepath.Glob(f.LogDir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 4+1+logsKept {
		t.Errorf("%d files are left: %q", len(left), left)
	}
	for _, name := range append(names[:4:4], names[9:]...) {
		if !slices.Contains(left, filepath.Join(f.LogDir, name)) {
			t.Errorf("%s was removed", name)
		}
	}
}

func TestAHungLookEndsWithItsCaller(t *testing.T) {
	f := newFleet(t)
	a := f.open()
	a.gate <- struct{}{} // a look that does not come back
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := a.List(ctx); err == nil || !strings.Contains(err.Error(), "last look") {
		t.Errorf("List: %v", err)
	}
	if _, err := a.Create(ctx, actuate.Wanted{Key: "n1"}); err == nil {
		t.Error("Create succeeded")
	}
	<-a.gate
	f.create(a, "n1") // nobody holds the lock
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.List(t.Context()); err == nil {
		t.Error("List after Close succeeded")
	}
	if _, err := a.Create(t.Context(), actuate.Wanted{Key: "n2"}); err == nil {
		t.Error("Create after Close succeeded")
	}
}
