package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"warmpath/scaler/actuate"
)

const (
	lockRetry = 2 * time.Millisecond
	logsKept  = 50 // of nodes that are gone
)

// lock waits until no other router of this user, in this network namespace, starts
// nodes. The name is gone with the process that holds it.
func (a *Actuator) lock(ctx context.Context) (unlock func(), err error) {
	name := "@warmpath-scaler-process-" + strconv.Itoa(a.uid)
	var config net.ListenConfig
	for {
		if a.ctx.Err() != nil {
			return nil, errClosed
		}
		l, err := config.Listen(ctx, "unix", name)
		if err == nil {
			return func() { _ = l.Close() }, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("take the lock of those who start nodes: %w", err)
		}
		if err := pause(ctx, lockRetry); err != nil {
			return nil, fmt.Errorf("wait for another router, which holds the socket %s while it starts nodes: %w", name, err)
		}
	}
}

// freePort finds a port that no node has and nothing listens on. A node has its port from its
// start, long before it listens.
func (a *Actuator) freePort(ctx context.Context, taken map[int]bool) (int, error) {
	var config net.ListenConfig
	var last error
	for port := a.o.FirstPort; port <= a.o.LastPort; port++ {
		if taken[port] {
			continue
		}
		// On all addresses: that fails if there is a listener on any.
		l, err := config.Listen(ctx, "tcp", ":"+strconv.Itoa(port))
		if err == nil {
			return port, l.Close()
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		last = err
	}
	err := fmt.Errorf("no port from %d to %d is free: nodes have %d of all fleets' ports", a.o.FirstPort, a.o.LastPort, len(taken))
	if last != nil {
		err = fmt.Errorf("%w, and others cannot be had: %w", err, last)
	}
	return 0, actuate.Refused(actuate.Quota, err)
}

// start starts one node. It returns when its program runs; any error says that it does
// not.
func (a *Actuator) start(w actuate.Wanted, port int) (*node, error) {
	m := marks{a.o.Fleet, w.Key, strings.ToLower(rand.Text()), port}
	words, err := a.o.command(w, port)
	if err != nil {
		return nil, actuate.Refused(actuate.Settings, err)
	}
	program, err := actuate.FindProgram(words[0], a.o.Environ)
	if err != nil {
		return nil, actuate.Refused(actuate.Settings, err)
	}
	out, err := a.openLog(w.Key)
	if err != nil {
		return nil, actuate.RefusedStart(err)
	}
	if out != nil {
		defer out.Close()
	}
	cmd := &exec.Cmd{
		Path: program, Args: words, Env: a.o.environ(m),
		// A session of its own: nothing that is sent to the router's group or terminal
		// reaches it.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if out != nil { // a file itself: a pipe would end with the router
		cmd.Stdout, cmd.Stderr = out, out
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, actuate.RefusedStart(err)
	}
	id := identity{pid: cmd.Process.Pid}
	if dir, err := os.OpenRoot(filepath.Join(a.o.Proc, strconv.Itoa(id.pid))); err == nil {
		if stat, _, _, err := readStat(dir); err == nil { // it is not buried before Wait, so that this is it
			id.start = stat.start
		}
		_ = dir.Close()
	}
	a.known[id.pid] = known{start: id.start, marks: m}
	a.o.Log.Info("node started", "node", w.Key, "pid", id.pid, "port", port)
	go a.bury(cmd, m, begun)
	return &node{marks: m, members: []member{{identity: id, session: id.pid, marks: m, ours: true, shown: true}}}, nil
}

// logPath is where a node's output goes; "" = nowhere.
func (a *Actuator) logPath(key string) string {
	if a.o.LogDir == "" {
		return ""
	}
	return filepath.Join(a.o.LogDir, a.o.Fleet+"."+key+".log")
}

func (a *Actuator) openLog(key string) (*os.File, error) {
	if a.o.LogDir == "" {
		return nil, nil
	}
	return os.OpenFile(a.logPath(key), os.O_WRONLY|os.O_CREATE|os.O_APPEND|os.O_TRUNC|syscall.O_NOFOLLOW, 0o640)
}

// pruneLogs removes the oldest logs of this fleet's nodes that are gone.
func (a *Actuator) pruneLogs(nodes []*node) {
	if a.o.LogDir == "" {
		return
	}
	entries, err := os.ReadDir(a.o.LogDir)
	if err != nil {
		a.o.Log.Warn("old logs of nodes stay", "err", err)
		return
	}
	var gone []fs.FileInfo
	for _, entry := range entries {
		key, ok := strings.CutPrefix(entry.Name(), a.o.Fleet+".")
		key, isLog := strings.CutSuffix(key, ".log")
		if !ok || !isLog || actuate.CheckKey(key) != nil || slices.ContainsFunc(nodes, func(n *node) bool { return n.key == key }) {
			continue
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			gone = append(gone, info)
		}
	}
	slices.SortFunc(gone, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, info := range gone[min(logsKept, len(gone)):] {
		if err := os.Remove(filepath.Join(a.o.LogDir, info.Name())); err != nil {
			a.o.Log.Warn("an old log of a node stays", "err", err)
		}
	}
}

// tail returns the end of a file, whole lines if it has them.
func tail(path string, most int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from := max(0, info.Size()-most)
	text, _ := io.ReadAll(io.NewSectionReader(f, from, most))
	s := strings.ToValidUTF8(string(text), "�")
	if from > 0 {
		if _, rest, ok := strings.Cut(s, "\n"); ok {
			s = rest
		}
	}
	return strings.TrimSpace(s)
}
