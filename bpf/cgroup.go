package bpf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoCgroup2 says that no cgroup v2 hierarchy is mounted where this process
// can see it.
var ErrNoCgroup2 = errors.New("no cgroup2 file system is mounted; mount one (mount -t cgroup2 none /sys/fs/cgroup/unified), or start through systemd")

// OwnCgroup returns the folder of the cgroup v2 that this process is in. It works
// in hybrid layouts too, where v1 lies around the one of v2.
func OwnCgroup() (string, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find cgroup: %w", err)
	}
	defer mounts.Close()
	own, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find cgroup: %w", err)
	}
	defer own.Close()
	return findCgroup(mounts, own)
}

// RootCgroup returns the folder of the cgroup v2 that all processes are in which
// this one can see: in a container, that of the container.
func RootCgroup() (string, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("find cgroup: %w", err)
	}
	defer mounts.Close()
	return findCgroup(mounts, strings.NewReader("0::/"))
}

// findCgroup joins the mount of cgroup2 (proc_pid_mountinfo(5)) and the process's
// path in it (cgroups(7), the line of hierarchy 0).
func findCgroup(mountinfo, cgroup io.Reader) (string, error) {
	path := ""
	for s := bufio.NewScanner(cgroup); s.Scan(); {
		if p, ok := strings.CutPrefix(s.Text(), "0::"); ok {
			path = p
		}
	}
	if path == "" {
		return "", ErrNoCgroup2
	}
	for s := bufio.NewScanner(mountinfo); s.Scan(); {
		// 36 35 98:0 /root /mount rw,noatime shared:1 - type source options
		before, after, ok := strings.Cut(s.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		// What is mounted may be a part of the hierarchy, as in a container.
		within, err := filepath.Rel(unescape(fields[3]), path)
		if err != nil || within == ".." || strings.HasPrefix(within, "../") {
			continue
		}
		return filepath.Join(unescape(fields[4]), within), nil
	}
	return "", ErrNoCgroup2
}

// unescape undoes how mountinfo writes blanks, tabs, newlines and backslashes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
