package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	markFleet    = "WARMPATH_FLEET"
	markNode     = "WARMPATH_NODE"
	markPort     = "WARMPATH_PORT"
	markInstance = "WARMPATH_INSTANCE"
	// keepsEnviron keeps Python's setproctitle from writing over the environment that the
	// kernel shows (its README, "Environment variables").
	keepsEnviron = "SPT_NOENV"

	maxEnvironBytes = 16 << 20 // above what the kernel lets a program be given, 3/4 of 8 MiB of stack
	kernelThread    = 0x00200000
	// Inside execve a process shows neither arguments nor environment, for well below a
	// millisecond, unless it has to wait for a processor.
	execTries = 20
	execPause = time.Millisecond
	// mostLists bounds the listings of one scan on a host where processes never stop coming.
	mostLists = 8
	// ticks are those of start times in /proc/PID/stat: USER_HZ, 100 a second on every
	// architecture that this runs on (proc(5), time(7)).
	ticks = time.Second / 100
)

var markNames = []string{markFleet, markNode, markPort, markInstance}

// marks are what the environment of a node says.
type marks struct {
	fleet, key, instance string
	port                 int
}

// identity tells a process from all that ever had its number.
type identity struct {
	pid   int
	start uint64 // ticks since the host started
}

// member is one process of a node, alive.
type member struct {
	identity
	session int
	marks
	ours  bool // it is a node's, of whatever fleet
	shown bool // … as the kernel shows it to everybody
}

// node is what a scan found of one run of one key.
type node struct {
	marks
	members []member // oldest first
}

// leader is the process that was started as the node: the oldest that leads a session.
func (n *node) leader() (m member, there bool) {
	for _, m := range n.members {
		if m.pid == m.session {
			return m, true
		}
	}
	return n.members[0], false
}

// scan reads every process of this user. It returns the nodes of this fleet and the
// ports of all fleets. It is called by who holds the gate.
func (a *Actuator) scan(ctx context.Context) ([]*node, map[int]bool, error) {
	var found []member
	alive := map[int]known{}
	seen := map[int]bool{}
	// A process may start another and end between the listing and its turn to be read. So
	// all that came meanwhile are read too, until a listing has nobody new.
	for range mostLists {
		pids, err := a.pids(seen)
		if err != nil {
			return nil, nil, fmt.Errorf("look for nodes: %w", err)
		}
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			if ctx.Err() != nil {
				return nil, nil, ctx.Err()
			}
			m, ok, err := a.read(ctx, pid)
			if err != nil {
				return nil, nil, fmt.Errorf("look for nodes: process %d: %w", pid, err)
			}
			if ok {
				found = append(found, m)
			}
			if ok && m.ours {
				alive[pid] = known{m.start, m.marks, a.known[pid].warned && a.known[pid].start == m.start}
			}
		}
	}
	a.known = alive
	ports := map[int]bool{}
	for _, m := range found {
		if m.ours {
			ports[m.port] = true
		}
	}
	nodes := a.group(found)
	a.warnHidden(nodes)
	return nodes, ports, nil
}

// pids lists the processes that are not in seen, and adds them to it.
func (a *Actuator) pids(seen map[int]bool) (more []int, err error) {
	names, err := os.ReadDir(a.o.Proc)
	for _, name := range names {
		if pid, err := strconv.Atoi(name.Name()); err == nil && pid != os.Getpid() && !seen[pid] {
			seen[pid] = true
			more = append(more, pid)
		}
	}
	return more, err
}

// group makes nodes of this fleet of processes.
func (a *Actuator) group(found []member) []*node {
	led := map[int]marks{} // session → marks of its leader
	for _, m := range found {
		if m.ours && m.pid == m.session {
			led[m.session] = m.marks
		}
	}
	slices.SortFunc(found, func(a, b member) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.pid, b.pid)) })
	byInstance := map[string]*node{}
	var nodes []*node
	for _, m := range found {
		if leader, ok := led[m.session]; ok && !m.ours {
			m.marks, m.ours = leader, true
		}
		if !m.ours || m.fleet != a.o.Fleet {
			continue
		}
		n := byInstance[m.instance]
		if n == nil {
			n = &node{marks: m.marks}
			byInstance[m.instance] = n
			nodes = append(nodes, n)
		}
		n.members = append(n.members, m)
	}
	return nodes
}

// warnHidden tells, once, of nodes that only this process knows by now.
func (a *Actuator) warnHidden(nodes []*node) {
	for _, n := range nodes {
		first, _ := n.leader()
		k := a.known[first.pid]
		if k.warned || slices.ContainsFunc(n.members, func(m member) bool { return m.shown }) {
			continue
		}
		if a.hides(first.pid) {
			k.warned = true
			a.known[first.pid] = k
			a.o.Log.Warn("a node does not show its marks any more: after a restart it will not be found. Its command must not write over its environment, nor become another user's",
				"node", n.key, "pid", first.pid)
		}
	}
}

// read reads one process. It is not ok if that is gone, dead but not yet buried, or
// another user's.
func (a *Actuator) read(ctx context.Context, pid int) (m member, ok bool, err error) {
	dir, err := os.OpenRoot(filepath.Join(a.o.Proc, strconv.Itoa(pid))) // all that is read through it is of one process
	if err != nil {
		return member{}, false, unlessGone(err)
	}
	defer dir.Close()
	info, err := dir.Stat(".")
	if err != nil {
		return member{}, false, unlessGone(err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	mine := ok && int(stat.Uid) == a.uid
	k, isKnown := a.known[pid]
	if !mine && !isKnown {
		return member{}, false, nil
	}
	m, flags, dead, err := readStat(dir)
	if err != nil {
		return member{}, false, unlessGone(err)
	}
	m.pid = pid
	if dead {
		return member{}, false, nil
	}
	if mine && flags&kernelThread == 0 {
		// The kernel shows the environment of those only that may do no more than we
		// (ptrace(2), access mode checking): what we start can do no more.
		if err := m.readMarks(ctx, dir); err != nil && !errors.Is(err, fs.ErrPermission) {
			return member{}, false, unlessGone(err)
		}
	}
	if isKnown && k.start == m.start && !m.ours {
		m.marks, m.ours = k.marks, true
	}
	return m, mine || m.ours, nil
}

// hides reports whether a process that must be a node's and shows no marks is there to
// stay: one that is about to end shows no arguments either.
func (a *Actuator) hides(pid int) bool {
	args, err := os.ReadFile(filepath.Join(a.o.Proc, strconv.Itoa(pid), "cmdline"))
	return err == nil && len(args) > 0
}

// unlessGone is err, unless it says that the process has ended.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// readStat reads session, start time and flags. dead says that the process has ended
// and waits for its parent to ask how.
func readStat(dir *os.Root) (m member, flags uint64, dead bool, err error) {
	text, err := dir.ReadFile("stat")
	if err != nil {
		return member{}, 0, false, err
	}
	return parseStat(text)
}

// parseStat reads /proc/PID/stat: the second field is a name in brackets, of whatever
// bytes, and fields count from 1 (proc(5)).
func parseStat(text []byte) (m member, flags uint64, dead bool, err error) {
	const state, session, flag, start = 3, 6, 9, 22
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= start-state {
		return member{}, 0, false, fmt.Errorf("stat has %d fields after the name: want %d", len(fields), start-state+1)
	}
	field := func(n int) string { return string(fields[n-state]) }
	m.session, err = strconv.Atoi(field(session))
	if err == nil {
		flags, err = strconv.ParseUint(field(flag), 10, 64)
	}
	if err == nil {
		m.start, err = strconv.ParseUint(field(start), 10, 64)
	}
	if err != nil {
		return member{}, 0, false, fmt.Errorf("stat: %w", err)
	}
	return m, flags, strings.ContainsAny(field(state), "ZXx"), nil
}

// readMarks reads the environment.
func (m *member) readMarks(ctx context.Context, dir *os.Root) error {
	settled := false
	for range execTries {
		env, err := readBounded(dir, "environ")
		if err != nil {
			return err
		}
		if len(env) > 0 {
			m.marks, m.ours = parseMarks(env)
			m.shown = m.ours
			return nil
		}
		args, err := readBounded(dir, "cmdline")
		if err != nil || settled {
			return err // it was given no environment
		}
		settled = len(args) > 0 // perhaps just now: then the environment comes
		if err := pause(ctx, execPause); err != nil {
			return err
		}
	}
	return nil
}

func readBounded(dir *os.Root, name string) ([]byte, error) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEnvironBytes+1))
	if err == nil && len(text) > maxEnvironBytes {
		err = fmt.Errorf("%s has more than %d bytes", name, maxEnvironBytes)
	}
	return text, err
}

// parseMarks finds the marks in an environment; all of them, or it is no node.
func parseMarks(env []byte) (m marks, ok bool) {
	for line := range bytes.SplitSeq(env, []byte{0}) {
		name, value, _ := bytes.Cut(line, []byte{'='})
		switch string(name) {
		case markFleet:
			m.fleet = string(value)
		case markNode:
			m.key = string(value)
		case markPort:
			m.port, _ = strconv.Atoi(string(value))
		case markInstance:
			m.instance = string(value)
		}
	}
	return m, m.fleet != "" && m.key != "" && m.port > 0 && m.instance != ""
}

// since is when a process was started, by the host's clock.
func (a *Actuator) since(start uint64) time.Time {
	text, err := os.ReadFile(filepath.Join(a.o.Proc, "stat"))
	if err != nil {
		return time.Time{}
	}
	for line := range bytes.Lines(text) {
		if seconds, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			booted, err := strconv.ParseInt(string(bytes.TrimSpace(seconds)), 10, 64)
			if err != nil {
				return time.Time{}
			}
			return time.Unix(booted, 0).Add(time.Duration(start) * ticks)
		}
	}
	return time.Time{}
}

// pause waits, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
