package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	stopWait  = 5 * time.Second // after SIGTERM, before SIGKILL
	readyWait = 2 * time.Minute // a Python program on a busy core
)

// process is a program that this package started and will end.
type process struct {
	name  string
	pid   int
	log   string // path of its output
	stop  context.CancelFunc
	ended chan struct{} // closed when it has ended
}

// startPinned runs argv on one core, as the head of a process group of its own.
// Its output goes to a file in folder. At its end it is asked to go, or with
// asked unset killed at once, for some peers wait for seconds before they end;
// in any case the whole group is gone after close.
func startPinned(ctx context.Context, core int, folder, name string, asked bool, argv []string) (*process, error) {
	log := filepath.Join(folder, name+".log")
	out, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("create log of %q: %w", name, err)
	}
	defer out.Close() // the child has its own descriptor
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", strconv.Itoa(core)}, argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		if asked {
			return cmd.Process.Signal(syscall.SIGTERM)
		}
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	cmd.WaitDelay = stopWait
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start %q: %w", name, err)
	}
	p := &process{name: name, pid: cmd.Process.Pid, log: log, stop: cancel, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()                            // how it ended is in its log
		_ = syscall.Kill(-p.pid, syscall.SIGKILL) // children that it left, mostly none
		close(p.ended)
	}()
	return p, nil
}

// close ends the process and waits for its end.
func (p *process) close() {
	p.stop()
	<-p.ended
}

// logTail returns the end of what the process printed, for error messages.
func (p *process) logTail() string {
	const keep = 1000
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-keep):])
}

// waitReady posts a small chat request until it is answered with 200.
func (p *process) waitReady(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := "no answer yet"
	for {
		status, err := postOnce(ctx, address)
		switch {
		case err == nil && status == http.StatusOK:
			return nil
		case err != nil:
			last = err.Error()
		default:
			last = "status " + strconv.Itoa(status)
		}
		select {
		case <-p.ended:
			return fmt.Errorf("start %q: it ended early: %s", p.name, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("wait for %q at %s: %s; it printed: %s", p.name, address, last, p.logTail())
		case <-tick.C:
		}
	}
}

func postOnce(ctx context.Context, address string) (int, error) {
	const body = `{"model":"bench","messages":[{"role":"user","content":"ready?"}],"max_tokens":1}`
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, err
}

// freeAddresses finds n loopback addresses that nobody listens on. All of
// them are held until the last is found, so that they differ.
func freeAddresses(n int) ([]string, error) {
	addresses := make([]string, n)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find free port: %w", err)
		}
		defer l.Close()
		addresses[i] = l.Addr().String()
	}
	return addresses, nil
}
