package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// wrkResult is the line that the scripts of bench/wrk print at the end.
type wrkResult struct {
	Requests      int64   `json:"requests"`
	DurationUs    int64   `json:"duration_us"`
	P50Us         float64 `json:"p50_us"`
	P99Us         float64 `json:"p99_us"`
	ErrorsConnect int64   `json:"errors_connect"`
	ErrorsRead    int64   `json:"errors_read"`
	ErrorsWrite   int64   `json:"errors_write"`
	ErrorsStatus  int64   `json:"errors_status"`
	ErrorsTimeout int64   `json:"errors_timeout"`

	cpuSeconds float64 // of wrk itself, from its start to its end
}

func (r *wrkResult) errors() int64 {
	return r.ErrorsConnect + r.ErrorsRead + r.ErrorsWrite + r.ErrorsStatus + r.ErrorsTimeout
}

// wrkLoad is one call of wrk.
type wrkLoad struct {
	core, concurrency, sizeBytes int
	script, address, model       string
	first                        string // number of the first body when no two are to be alike; "" = they come again
	duration                     time.Duration
}

// beforeEnd is when the counters are read for the second time.
const beforeEnd = 50 * time.Millisecond

// run pins wrk to its core and waits for its end. mark, when not nil, is called
// with true when wrk begins to send and with false shortly before it stops: after
// its end it has left requests behind that the proxy goes on with and nobody
// counts.
func (l wrkLoad) run(ctx context.Context, mark func(open bool, pid int) error) (*wrkResult, error) {
	ctx, cancel := context.WithTimeout(ctx, l.duration+60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "taskset", l.arguments()...)
	out := &wrkOutput{begun: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start wrk: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err, markErr error
	select {
	case err = <-ended: // too early; its output says why
	case <-out.begun:
		end := time.NewTimer(l.duration - beforeEnd)
		if mark != nil {
			markErr = mark(true, cmd.Process.Pid)
			<-end.C
			markErr = errors.Join(markErr, mark(false, cmd.Process.Pid))
		}
		err = <-ended
	}
	if err != nil {
		return nil, fmt.Errorf("run wrk against %s: %w: %s", l.address, err, bytes.TrimSpace(out.text()))
	}
	if markErr != nil {
		return nil, markErr
	}
	r, err := parseWrk(out.text())
	if err != nil {
		return nil, fmt.Errorf("read output of wrk: %w: %s", err, bytes.TrimSpace(out.text()))
	}
	r.cpuSeconds = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return r, nil
}

// arguments are those of taskset. A line must come when it is printed: into a
// pipe wrk would keep it to its end.
func (l wrkLoad) arguments() []string {
	arguments := []string{
		"-c", strconv.Itoa(l.core), "stdbuf", "-oL",
		"wrk", "-t1", "-c" + strconv.Itoa(l.concurrency),
		fmt.Sprintf("-d%ds", l.duration/time.Second), "--timeout", "10s",
		"-s", l.script, "http://" + l.address, "--", strconv.Itoa(l.sizeBytes), l.model,
	}
	if l.first != "" {
		arguments = append(arguments, l.first)
	}
	return arguments
}

// wrkOutput keeps what wrk prints, and tells when it begins.
type wrkOutput struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	begun chan struct{} // closed when wrk says that it runs
	told  bool
}

// Write is called by the goroutine that reads the pipe.
func (w *wrkOutput) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if !w.told && bytes.HasPrefix(w.buf.Bytes(), []byte("Running ")) {
		w.told = true
		close(w.begun)
	}
	return len(p), nil
}

func (w *wrkOutput) text() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.buf.Bytes())
}

// parseWrk finds the JSON line among what wrk prints.
func parseWrk(out []byte) (*wrkResult, error) {
	for line := range bytes.Lines(out) {
		if !bytes.HasPrefix(line, []byte(`{"wrk":`)) {
			continue
		}
		var found struct {
			Wrk wrkResult `json:"wrk"`
		}
		if err := json.Unmarshal(line, &found); err != nil {
			return nil, err
		}
		if found.Wrk.DurationUs <= 0 {
			return nil, errors.New("a run without duration")
		}
		return &found.Wrk, nil
	}
	return nil, errors.New("no line of figures")
}
