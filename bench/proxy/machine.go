package proxy

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Environment is the first line of the output: what the figures hold for.
type Environment struct {
	Record    string            `json:"record"` // "environment"
	Started   time.Time         `json:"started"`
	Commit    string            `json:"commit"`
	CPU       string            `json:"cpu"`
	CPUs      int               `json:"cpus"`
	Kernel    string            `json:"kernel"`
	Versions  map[string]string `json:"versions"` // of subjects and tools, as they name themselves
	Missing   []string          `json:"missing"`  // subjects that were asked for and are not installed
	LeftOut   map[string]string `json:"left_out"` // subjects that were asked for and are not meant for this load: why
	ProxyCore int               `json:"proxy_core"`
	LoadCore  int               `json:"load_core"`
	Nodes     int               `json:"nodes"`
}

// readEnvironment asks the machine and the programs. Peers that are not
// installed are taken out of o and named; a missing router is an error.
func readEnvironment(ctx context.Context, o *Options, log io.Writer) (*Environment, error) {
	env := &Environment{
		Record: "environment", Started: time.Now().UTC().Truncate(time.Second), Commit: o.Commit,
		CPU: cpuModel(), CPUs: runtime.NumCPU(), Kernel: kernel(), Versions: map[string]string{"go": runtime.Version()},
		Missing: []string{}, LeftOut: map[string]string{}, ProxyCore: o.ProxyCore, LoadCore: o.LoadCore, Nodes: o.Nodes,
	}
	wrkVersion, err := firstLine(ctx, "wrk", "-v")
	if err != nil {
		return nil, err
	}
	env.Versions["wrk"] = wrkVersion
	subjects := []string{}
	for _, name := range o.Subjects {
		s := findSubject(name)
		if s.unfit != nil && s.unfit(o) != "" {
			env.LeftOut[name] = s.unfit(o)
			continue
		}
		if name != Direct {
			version, err := s.versionLine(ctx, o)
			if err != nil && s.ours {
				return nil, err
			}
			if err != nil {
				env.Missing = append(env.Missing, name)
				fmt.Fprintf(log, "left out: %v\n", err)
				continue
			}
			env.Versions[name] = version
		}
		subjects = append(subjects, name)
	}
	if o.Subjects = subjects; len(subjects) == 0 {
		return nil, fmt.Errorf("measure proxies: nothing is left to measure; not installed: %q, not meant for this load: %v", env.Missing, env.LeftOut)
	}
	return env, nil
}

// cpuModel returns the processor's name, "unknown" where the kernel has none.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return "unknown"
}

func kernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// selfUsage is the CPU time of this process alone; wrk's is counted from its
// exit status.
func selfUsage() (usage, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return usage{}, fmt.Errorf("read own CPU time: %w", err)
	}
	ns := u.Utime.Nano() + u.Stime.Nano()
	return usage{cpuSeconds: float64(ns) / 1e9}, nil
}
