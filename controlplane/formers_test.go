package controlplane

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// child starts a process that stays until it is ended.
func child(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// ends ends a process, which then still has its pid: as with one that was given to
// another since, only a pidfd tells that it has ended.
func ends(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
}

// Each process that was taken over from is remembered until that one has ended, whatever
// becomes of the others.
func TestFormers(t *testing.T) {
	c := &ControlPlane{}
	first, second := child(t), child(t)
	a, b := first.Process.Pid, second.Process.Pid
	c.SetFormers([]int{a, 0, -1, os.Getpid(), 1 << 30}) // the last is beyond any pid
	c.SetFormers([]int{a, b})
	if got := c.formers.running(); !slices.Equal(got, []int{a, b}) {
		t.Errorf("running: %v, want %d and %d", got, a, b)
	}
	ends(t, second)
	if got := c.formers.running(); !slices.Equal(got, []int{a}) {
		t.Errorf("the second has ended: %v, want %d", got, a)
	}
	ends(t, first)
	if got := c.formers.running(); len(got) != 0 {
		t.Errorf("both have ended: %v", got)
	}
	c.formers.forget()
}

// Where the kernel gives no pidfd, the pid alone says it.
func TestFormersWithoutPidfd(t *testing.T) {
	cmd := child(t)
	f := formers{held: []former{{cmd.Process.Pid, -1}}}
	if got := f.running(); len(got) != 1 {
		t.Errorf("running: %v", got)
	}
	ends(t, cmd)
	_ = cmd.Wait()
	if got := f.running(); len(got) != 0 {
		t.Errorf("it has ended: %v", got)
	}
}
