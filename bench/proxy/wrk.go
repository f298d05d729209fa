package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
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

	cpuSeconds float64 // of wrk itself
}

func (r *wrkResult) errors() int64 {
	return r.ErrorsConnect + r.ErrorsRead + r.ErrorsWrite + r.ErrorsStatus + r.ErrorsTimeout
}

// load is one call of wrk.
type load struct {
	core, concurrency, sizeBytes int
	script, address              string
	duration                     time.Duration
}

// run pins wrk to its core and waits for its end.
func (l load) run(ctx context.Context) (*wrkResult, error) {
	ctx, cancel := context.WithTimeout(ctx, l.duration+60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(
		ctx, "taskset", "-c", strconv.Itoa(l.core),
		"wrk", "-t1", "-c"+strconv.Itoa(l.concurrency),
		fmt.Sprintf("-d%ds", l.duration/time.Second), "--timeout", "10s",
		"-s", l.script, "http://"+l.address, "--", strconv.Itoa(l.sizeBytes),
	)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("run wrk against %s: %w: %s", l.address, err, bytes.TrimSpace(out))
	}
	r, err := parseWrk(out)
	if err != nil {
		return nil, fmt.Errorf("read output of wrk: %w: %s", err, bytes.TrimSpace(out))
	}
	r.cpuSeconds = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	return r, nil
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
