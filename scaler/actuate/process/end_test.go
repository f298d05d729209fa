package process

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmpath/scaler/actuate"
)

func TestAllOfANodeEnds(t *testing.T) {
	f := newFleet(t)
	f.Command[1] = "family"
	a := f.open()
	i := f.create(a, "n1")
	serves(t, i.URL)
	stays := f.create(a, "n2")
	serves(t, stays.URL)
	family := children(t, leaderOf(t, i))
	if len(family) != 4 {
		t.Fatalf("children %v", family)
	}
	if all := f.list(a); len(all) != 2 {
		t.Errorf("children count as nodes: %+v", all)
	}
	f.remove(f.open(), i)
	for _, pid := range append(family, leaderOf(t, i)) {
		eventually(t, fmt.Sprintf("process %d ended", pid), func() bool { ended, _ := gone(pid); return ended })
	}
	if left := children(t, leaderOf(t, stays)); len(left) != 4 {
		t.Errorf("of the other node %v are left", left)
	}
	f.remove(a, stays) // one of its children has no marks
	eventually(t, "all ended", func() bool { return f.list(a)["n2"].Phase == actuate.Ended })
}

// children are the processes that one started and that live.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	out, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range out {
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil || !strings.Contains(string(text), ") ") {
			continue
		}
		var state string
		var ppid, pid int
		_, _ = fmt.Sscan(string(text), &pid)
		if _, err := fmt.Sscan(string(text)[strings.LastIndex(string(text), ")")+1:], &state, &ppid); err == nil && ppid == parent && state != "Z" {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestOneThatDoesNotEndIsKilled(t *testing.T) {
	f := newFleet(t)
	f.Command[1] = "deaf"
	f.StopAfter = 400 * time.Millisecond
	var log safeBuffer
	f.Log = logTo(&log)
	a := f.open()
	i := f.create(a, "n1")
	serves(t, i.URL)
	begun := time.Now()
	f.remove(a, i)
	f.remove(a, i)
	if took := time.Since(begun); took > f.StopAfter/2 {
		t.Errorf("Delete took %v", took)
	}
	if is := f.list(a)["n1"]; is.Phase != actuate.Ending {
		t.Errorf("meanwhile it is %+v", is)
	}
	if again := f.create(a, "n1"); again.ID != i.ID || again.Phase != actuate.Ending {
		t.Errorf("asked for again meanwhile: %+v", again)
	}
	eventually(t, "it is gone", func() bool { return f.list(a)["n1"].Phase == actuate.Ended })
	if took := time.Since(begun); took < f.StopAfter {
		t.Errorf("it was killed after %v", took)
	}
	if !strings.Contains(log.String(), "killed") || !strings.Contains(f.list(a)["n1"].Detail, "signal: killed") {
		t.Errorf("detail %q, log %s", f.list(a)["n1"].Detail, log.String())
	}
}

func TestCloseKillsNobody(t *testing.T) {
	f := newFleet(t)
	f.Command[1] = "deaf"
	f.StopAfter = 50 * time.Millisecond
	ids, kill := f.startRouter("n1") // as another's child, it is not a zombie of ours
	kill()
	f.startRouter("n2")
	a := f.open()
	i := f.create(a, "n3")
	serves(t, i.URL)
	f.StopAfter = time.Hour
	slow := f.open()
	f.remove(slow, i)
	if err := slow.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b := f.open()
	if all := f.list(b); len(all) != 3 || all["n1"].ID != ids[0] || all["n3"].Phase != actuate.Running {
		t.Errorf("left: %+v", all)
	}
}

func TestWhatIsLeftOfANode(t *testing.T) {
	f := newFleet(t)
	f.Command = []string{os.Args[0], "orphans"}
	a := f.open()
	was := f.create(a, "n1")
	var is actuate.Instance
	eventually(t, "its first process is gone", func() bool {
		is = f.list(a)["n1"]
		return strings.Contains(is.Detail, "exit status 4")
	})
	if is.ID != was.ID || is.Phase != actuate.Running || !strings.Contains(is.Detail, "1 of its processes") {
		t.Errorf("listed as %+v", is)
	}
	if again := f.create(a, "n1"); again.ID != was.ID {
		t.Errorf("made twice: %+v", again)
	}
	if seen := f.list(f.open())["n1"]; seen.ID != was.ID {
		t.Errorf("another sees %+v", seen)
	}
	f.remove(a, was)
	eventually(t, "all of it is gone", func() bool { return len(f.pids()) == 0 })
}

// A number that another process has by now is not the process that had it.
func TestSignalsReachOnlyWhoWasFound(t *testing.T) {
	f := newFleet(t)
	a := f.open()
	bystander := exec.Command(os.Args[0], "wait")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = bystander.Process.Kill()
		_ = bystander.Wait()
	})
	pid := bystander.Process.Pid
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	m, _, _, err := parseStat(text)
	if err != nil {
		t.Fatal(err)
	}
	stale := &node{marks: marks{key: "n1"}, members: []member{{identity: identity{pid, m.start - 1}}}}
	if err := a.signal(stale, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	a.known[pid] = known{start: m.start - 1, marks: marks{f.Fleet, "n1", "x", 1}}
	if all := f.list(a); len(all) != 0 {
		t.Errorf("a process with the number of one that is gone is listed: %+v", all)
	}
	if ended, _ := gone(pid); ended {
		t.Fatal("a bystander was killed")
	}
	stale.members[0].start++
	if err := a.signal(stale, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	eventually(t, "the right one is killed", func() bool { ended, _ := gone(pid); return ended })
	_ = bystander.Wait()
	if err := a.signal(stale, syscall.SIGKILL); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

func TestARunThatIsOverIsNotTheNext(t *testing.T) {
	f := newFleet(t)
	a := f.open()
	was := f.create(a, "n1")
	f.remove(a, was)
	eventually(t, "it ended", func() bool { return len(f.pids()) == 0 })
	is := f.create(a, "n1")
	f.remove(a, was)
	if now := f.list(a)["n1"]; now.ID != is.ID || now.Phase != actuate.Running {
		t.Errorf("the end of an earlier run: %+v", now)
	}
	f.remove(a, actuate.Instance{ID: is.ID})
	eventually(t, "it ended", func() bool { return len(f.pids()) == 0 })
	if err := a.Delete(t.Context(), actuate.Instance{}); err == nil {
		t.Error("nothing was named, and it was no error")
	}
}
