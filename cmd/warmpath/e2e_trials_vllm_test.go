package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var trialsVLLM = flag.Int("e2e.trials.vllm", 0, "trials of dead against hung with a real vLLM (scripts/vllm-cpu.sh installs it)")

// TestTrialsVLLM: the same of a real engine on the CPU, whose API server lives on,
// says that it is healthy and acknowledges all, while its EngineCore is stopped.
func TestTrialsVLLM(t *testing.T) {
	if *trialsVLLM == 0 {
		t.Skip("runs with -e2e.trials.vllm: make dead-trials")
	}
	cells := makeCells(t, 2)
	url, core := startVLLM(t, cells[0])
	sim := startEnginesAt(t, cells[1].by(), cells[1].address, 1, "--time-scale", "0.001")
	r := serve(t, fmt.Sprintf(trialSettings, "3s", "auto"), nodeList(url, sim.urls[0]))
	signal := func(s syscall.Signal) func() {
		return func() {
			if err := syscall.Kill(core, s); err != nil {
				t.Fatalf("signal EngineCore: %v", err)
			}
		}
	}
	// The engine has room for eight: the stream that has begun and seven whole
	// answers. Two streams wait behind them.
	waits := slices.Repeat([]waiting{{more: `,"max_tokens":2000,"ignore_eos":true`}}, 7)
	waits = append(waits, slices.Repeat([]waiting{{more: `,"max_tokens":4` + streaming}}, 2)...)
	fmt.Printf("vLLM on the CPU; %d trials; first_event 3s; requests: one stream that has begun, seven whole answers that take minutes, two streams in the queue, 10 new ones a second\n", *trialsVLLM)
	r.trials(t, &patient{
		every: 100 * time.Millisecond, within: 40 * time.Second, // of which 30 are for tokens that stand still
		ailments: append(deadly(t, cells[0]), ailment{"EngineCore stop", false, signal(syscall.SIGSTOP), signal(syscall.SIGCONT)}),
		waiting:  waits,
		clear:    func() {},
		settle:   func() { idleVLLM(t, url) },
	}, "a real vLLM, kernel and sentinels", *trialsVLLM).judge(t)
}

// startVLLM starts one engine in a cell, which takes minutes, and returns where
// it is and the process of its EngineCore.
func startVLLM(t *testing.T, c *cell) (url string, core int) {
	t.Helper()
	const port = "8000"
	run := t.TempDir()
	script := func(what string) *exec.Cmd {
		line := append(c.by(), "bash", "../../scripts/vllm-cpu.sh", what)
		cmd := exec.Command(line[0], line[1:]...)
		cmd.Env = append(cmd.Environ(), "HOST="+c.address, "PORT="+port, "N=1", "SERVED=sim", "RUN="+run)
		return cmd
	}
	t.Cleanup(func() {
		if out, err := script("stop").CombinedOutput(); err != nil {
			t.Errorf("stop vLLM: %v\n%s", err, out)
		}
	})
	if out, err := script("start").CombinedOutput(); err != nil {
		t.Fatalf("start vLLM: %v\n%s", err, tail(string(out)))
	}
	text, err := os.ReadFile(filepath.Join(run, "vllm-1.pid"))
	if err != nil {
		t.Fatal(err)
	}
	session := strings.TrimSpace(string(text))
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range processes {
		if name, err := os.ReadFile(p); err != nil || !strings.HasPrefix(string(name), "VLLM::EngineCore") {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "stat")) // proc_pid_stat(5): after the name, the fourth field is the session
		_, behind, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(behind); len(fields) > 3 && fields[3] == session {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			return "http://" + c.address + ":" + port, pid
		}
	}
	t.Fatal("vLLM has no process of the name VLLM::EngineCore")
	return "", 0
}

// idleVLLM waits until the engine has given up all requests whose clients left.
func idleVLLM(t *testing.T, url string) {
	t.Helper()
	eventually(t, 60*time.Second, "vLLM has no requests", func() bool {
		idle := 0
		for line := range strings.Lines(engineText(t, url)) {
			if (strings.HasPrefix(line, "vllm:num_requests_running{") || strings.HasPrefix(line, "vllm:num_requests_waiting{")) && strings.HasSuffix(strings.TrimSpace(line), " 0.0") {
				idle++
			}
		}
		return idle == 2
	})
}
