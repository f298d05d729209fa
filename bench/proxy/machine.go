package proxy

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
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
		Missing: []string{}, ProxyCore: o.ProxyCore, LoadCore: o.LoadCore, Nodes: o.Nodes,
	}
	wrkVersion, err := firstLine(ctx, "wrk", "-v")
	if err != nil {
		return nil, err
	}
	env.Versions["wrk"] = wrkVersion
	for _, name := range o.Subjects {
		if name == Direct {
			continue
		}
		version, err := findSubject(name).versionLine(ctx, o)
		if err == nil {
			env.Versions[name] = version
			continue
		}
		if name == Warmpath {
			return nil, err
		}
		env.Missing = append(env.Missing, name)
		fmt.Fprintf(log, "left out: %v\n", err)
	}
	o.Subjects = slices.DeleteFunc(slices.Clone(o.Subjects), func(name string) bool { return slices.Contains(env.Missing, name) })
	if len(o.Subjects) == 0 {
		return nil, fmt.Errorf("measure proxies: none of %s is installed", strings.Join(env.Missing, ", "))
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
