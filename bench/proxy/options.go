package proxy

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Load is what is sent.
type Load string

// The kinds of load.
const (
	LoadPost   Load = "post"   // wrk, closed loop: chat bodies
	LoadGet    Load = "get"    // wrk, closed loop: no bodies
	LoadStream Load = "stream" // closed loop: each connection has one event stream after the other
	LoadOpen   Load = "open"   // chat bodies at a share of the rate that the subject can carry, whatever it answers
)

// Options say what to measure and how.
type Options struct {
	Load        Load
	SizeBytes   int           // of one request body; at least 400, and 0 with LoadGet
	Concurrency int           // connections; of an open loop those that find out what the subject can carry
	Interval    time.Duration // between two chunks of a stream
	Share       float64       // of what the subject can carry, for LoadOpen
	Runs        int           // measured runs of each subject
	Duration    time.Duration // of a measured run, whole seconds
	Warmup      time.Duration // discarded before it, whole seconds; 0 = none
	Subjects    []string      // names of what is measured, in the order of their turns
	OneCore     bool          // everything on ProxyCore, a closed loop with one connection: what a proxy adds to latency

	ProxyCore int // core of the proxy
	LoadCore  int // core of the load and of the nodes
	Nodes     int // fixed-answer nodes

	// Self is the program that serves nodes with "backend --listen ADDRESSES
	// --loops 1 …" and Go's reverse proxy with "proxy httputil --listen ADDRESS
	// --nodes ADDRESSES".
	Self     string
	Warmpath string // path of the router's executable
	Peers    string // folder of the Python environment that scripts/peers.sh fills
	ModelDir string // folder of a model's tokenizer, for the subjects that know tokens
	Commit   string // of the measured tree

	// MaxForeignShare is the CPU time of other processes, as a share of the
	// run's time, beyond which a run is measured again, up to Tries times.
	// MaxStealPercent is the same for what the machine's host took, in percent
	// of all processors' time.
	MaxForeignShare float64
	MaxStealPercent float64
	Tries           int
}

// minSizeBytes leaves room for the frame of a chat body.
const minSizeBytes = 400

// maxStreams keeps two connections a stream within the peers' limits.
const maxStreams = 3500

// OptionsError says which options cannot be used; nothing was started.
type OptionsError struct{ error }

// Unwrap gives the joined problems.
func (e *OptionsError) Unwrap() error { return e.error }

// tokenizer is the path of the model's tokenizer.
func (o *Options) tokenizer() string { return filepath.Join(o.ModelDir, "tokenizer.json") }

// check joins everything that is wrong with the options.
func (o *Options) check() error {
	var problems []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	loads := []Load{LoadPost, LoadGet, LoadStream, LoadOpen}
	bad(slices.Contains(loads, o.Load), "check load %q: use one of %v", o.Load, loads)
	bad(o.SizeBytes >= minSizeBytes || o.Load == LoadGet, "check size %d: use at least %d bytes", o.SizeBytes, minSizeBytes)
	bad(o.Concurrency >= 1, "check concurrency %d: use at least 1", o.Concurrency)
	if o.Load == LoadStream {
		bad(o.Concurrency <= maxStreams, "check streams %d: use at most %d, two connections each", o.Concurrency, maxStreams)
		bad(o.Interval >= time.Millisecond, "check interval %s: use at least 1ms", o.Interval)
	}
	bad(o.Load != LoadOpen || o.Share > 0 && o.Share < 1, "check share %v: use more than 0 and less than 1", o.Share)
	bad(o.Runs >= 1, "check runs %d: use at least 1", o.Runs)
	bad(o.Tries >= 1, "check tries %d: use at least 1", o.Tries)
	bad(o.Nodes >= 1 && o.Nodes <= 64, "check nodes %d: use 1 to 64", o.Nodes)
	bad(o.Duration >= time.Second && o.Duration%time.Second == 0, "check duration %s: use whole seconds, at least 1s", o.Duration)
	bad(o.Warmup >= 0 && o.Warmup%time.Second == 0, "check warm-up %s: use whole seconds or 0s", o.Warmup)
	bad(len(o.Subjects) > 0, "check peers: name at least one of %s", strings.Join(subjectNames(), ", "))
	o.checkCores(bad)
	for i, name := range o.Subjects {
		bad(findSubject(name) != nil, "find peer %q: use one of %s", name, strings.Join(subjectNames(), ", "))
		bad(!slices.Contains(o.Subjects[:i], name), "check peer %q: it is named twice", name)
	}
	for _, tool := range []string{"taskset", "stdbuf", "wrk"} {
		_, err := exec.LookPath(tool)
		bad(err == nil, "find %q: install it (Debian: util-linux, coreutils, wrk)", tool)
	}
	return errors.Join(problems...)
}

func (o *Options) checkCores(bad func(ok bool, format string, args ...any)) {
	bad(o.OneCore || runtime.NumCPU() >= 2, "check cores: this machine has one; use --one-core")
	for _, core := range []int{o.ProxyCore, o.LoadCore} {
		bad(core >= 0, "check core %d: use a core's number", core)
	}
	bad(o.OneCore || o.ProxyCore != o.LoadCore, "check cores: proxy and load both have core %d; use two", o.ProxyCore)
}
