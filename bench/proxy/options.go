package proxy

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Options say what to measure and how.
type Options struct {
	SizeBytes   int           // of one request body; at least 400
	Concurrency int           // connections of wrk
	Runs        int           // measured runs of each subject
	Duration    time.Duration // of a measured run, whole seconds
	Warmup      time.Duration // discarded before it, whole seconds; 0 = none
	Subjects    []string      // names of what is measured, in the order of their turns
	OneCore     bool          // everything on ProxyCore with one connection: what a proxy adds to latency

	ProxyCore int // core of the proxy
	LoadCore  int // core of wrk and of the nodes
	Nodes     int // fixed-answer nodes

	Backend  []string // command that serves nodes; "--listen ADDRESSES --loops 1" is added
	Warmpath string   // path of the router's executable
	Commit   string   // of the measured tree

	// MaxForeignShare is the CPU time of other processes, as a share of the
	// run's time, beyond which a run is measured again, up to Tries times.
	MaxForeignShare float64
	Tries           int
}

// minSizeBytes leaves room for the frame of a chat body.
const minSizeBytes = 400

// OptionsError says which options cannot be used; nothing was started.
type OptionsError struct{ error }

// Unwrap gives the joined problems.
func (e *OptionsError) Unwrap() error { return e.error }

// check joins everything that is wrong with the options.
func (o *Options) check() error {
	var problems []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	bad(o.SizeBytes >= minSizeBytes, "check size %d: use at least %d bytes", o.SizeBytes, minSizeBytes)
	bad(o.Concurrency >= 1, "check concurrency %d: use at least 1", o.Concurrency)
	bad(o.Runs >= 1, "check runs %d: use at least 1", o.Runs)
	bad(o.Tries >= 1, "check tries %d: use at least 1", o.Tries)
	bad(o.Nodes >= 1 && o.Nodes <= 64, "check nodes %d: use 1 to 64", o.Nodes)
	bad(o.Duration >= time.Second && o.Duration%time.Second == 0, "check duration %s: use whole seconds, at least 1s", o.Duration)
	bad(o.Warmup >= 0 && o.Warmup%time.Second == 0, "check warm-up %s: use whole seconds or 0s", o.Warmup)
	bad(len(o.Subjects) > 0, "check peers: name at least one of %s", strings.Join(subjectNames(), ", "))
	cores := runtime.NumCPU()
	bad(o.OneCore || cores >= 2, "check cores: this machine has one; use --one-core")
	for _, core := range []int{o.ProxyCore, o.LoadCore} {
		bad(core >= 0, "check core %d: use a core's number", core)
	}
	bad(o.OneCore || o.ProxyCore != o.LoadCore, "check cores: proxy and load both have core %d; use two", o.ProxyCore)
	for i, name := range o.Subjects {
		bad(findSubject(name) != nil, "find peer %q: use one of %s", name, strings.Join(subjectNames(), ", "))
		bad(!slices.Contains(o.Subjects[:i], name), "check peer %q: it is named twice", name)
	}
	for _, tool := range []string{"taskset", "wrk"} {
		_, err := exec.LookPath(tool)
		bad(err == nil, "find %q: install it (Debian: util-linux, wrk)", tool)
	}
	return errors.Join(problems...)
}
