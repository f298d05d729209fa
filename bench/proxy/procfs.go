package proxy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ticksPerSecond is the kernel's USER_HZ, 100 on every Linux architecture Go
// runs on (proc_pid_stat(5), sysconf(_SC_CLK_TCK)).
const ticksPerSecond = 100

// stat is what this package reads from /proc/PID/stat.
type stat struct {
	pid, parent int
	cpuTicks    int64 // user and system time
}

// parseStat reads one line of /proc/PID/stat. The second field is a name in
// parentheses that may hold anything, so counting starts after the last ')'.
func parseStat(line string) (stat, error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("read process state %q: no name in parentheses", line)
	}
	fields := strings.Fields(line[end+1:]) // fields[0] is the third field of the line
	if len(fields) < 13 {
		return stat{}, fmt.Errorf("read process state %q: too few fields", line)
	}
	var s stat
	var user, system int64
	for _, f := range []struct {
		text string
		to   func(int64)
	}{
		{strings.TrimSpace(line[:open]), func(n int64) { s.pid = int(n) }},
		{fields[1], func(n int64) { s.parent = int(n) }},
		{fields[11], func(n int64) { user = n }},
		{fields[12], func(n int64) { system = n }},
	} {
		n, err := strconv.ParseInt(f.text, 10, 64)
		if err != nil {
			return stat{}, fmt.Errorf("read process state %q: %w", line, err)
		}
		f.to(n)
	}
	s.cpuTicks = user + system
	return s, nil
}

// usage is what a process and all its descendants have used so far.
type usage struct {
	cpuSeconds float64
	peakMiB    float64 // sum of the peaks of resident memory; pages shared between processes count in each
}

// treeUsage adds up the process pid and its descendants that still live.
func treeUsage(pid int) (usage, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return usage{}, fmt.Errorf("list processes: %w", err)
	}
	byPID := make(map[int]stat, len(paths))
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // it ended in between
		}
		s, err := parseStat(string(line))
		if err != nil {
			return usage{}, err
		}
		byPID[s.pid] = s
	}
	if _, ok := byPID[pid]; !ok {
		return usage{}, fmt.Errorf("find process %d: it has ended", pid)
	}
	var u usage
	for _, s := range byPID {
		if !descends(byPID, s.pid, pid) {
			continue
		}
		u.cpuSeconds += float64(s.cpuTicks) / ticksPerSecond
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
		if errors.Is(err, os.ErrNotExist) && s.pid != pid {
			continue // it ended in between
		}
		if err != nil {
			return usage{}, fmt.Errorf("read memory of process %d: %w", s.pid, err)
		}
		kib, err := peakKiB(string(status))
		if err != nil {
			return usage{}, fmt.Errorf("read memory of process %d: %w", s.pid, err)
		}
		u.peakMiB += kib / 1024
	}
	return u, nil
}

// descends reports whether pid is root or one of its descendants. The chain
// of parents is bounded by the number of processes, since the table was not
// read in one instant.
func descends(byPID map[int]stat, pid, root int) bool {
	for range byPID {
		if pid == root {
			return true
		}
		s, ok := byPID[pid]
		if !ok {
			return false
		}
		pid = s.parent
	}
	return false
}

// peakKiB finds VmHWM in the text of /proc/PID/status.
func peakKiB(status string) (float64, error) {
	for line := range strings.Lines(status) {
		value, ok := strings.CutPrefix(line, "VmHWM:")
		if !ok {
			continue
		}
		return strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
	}
	return 0, fmt.Errorf("find VmHWM: not in the status text")
}

// busySeconds is the CPU time that the whole machine has spent so far on
// anything, time stolen by the host included.
func busySeconds() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read machine's CPU time: %w", err)
	}
	return parseBusy(string(text))
}

// parseBusy reads the first line of /proc/stat: user nice system idle iowait
// irq softirq steal guest guest_nice; guest time is in user already.
func parseBusy(text string) (float64, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("read machine's CPU time: line %q", line)
	}
	ticks := int64(0)
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read machine's CPU time: %w", err)
		}
		ticks += n
	}
	return float64(ticks) / ticksPerSecond, nil
}
