package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// PolicyCheck checks a policy's name and parameters. It may join several
// errors; those of type *policy.ParamError are shown at their key.
type PolicyCheck func(name string, params map[string]any) error

// Option changes how a configuration is read.
type Option func(*options)

type options struct {
	env   []string
	flags map[string]string
	check PolicyCheck
}

// WithEnvironment overrides keys by the WARMPATH_* variables in env, which
// has the form of Environ.
func WithEnvironment(env []string) Option { return func(o *options) { o.env = env } }

// WithFlags overrides keys by flags: dotted key → value. Flags win over
// variables.
func WithFlags(flags map[string]string) Option { return func(o *options) { o.flags = flags } }

// WithPolicyCheck replaces the check of the key policy, which else is that of
// package dataplane/policy.
func WithPolicyCheck(check PolicyCheck) Option { return func(o *options) { o.check = check } }

// Environ is the process's environment, for Load.
func Environ() []string { return os.Environ() }

// EnvironOfNodes is the environment of programs that are not this one: without what
// overrides keys, for there are secrets among them.
func EnvironOfNodes() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, envPrefix) })
}

// RuntimeDir is the folder for what lives as long as its user's session or the
// host, "" if nobody names one (XDG Base Directory Specification).
func RuntimeDir() string { return os.Getenv("XDG_RUNTIME_DIR") }

// NotifySocket is where a service manager wants to be told of the service's
// state (sd_notify(3)), "" without one.
func NotifySocket() string { return os.Getenv("NOTIFY_SOCKET") }

// Load reads and checks the file at path. Variables of env and flags override
// single keys, flags last. The error is Errors with every problem found, or
// says why the file cannot be read.
func Load(path string, env []string, flags map[string]string, opts ...Option) (*Config, error) {
	file, err := os.Open(path)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("open configuration file %q: %w; name a readable file with --config", path, err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration file %q: %w", path, err)
	}
	return Parse(path, data, append([]Option{WithEnvironment(env), WithFlags(flags)}, opts...)...)
}

// Parse reads and checks a configuration; name stands for the file in errors.
// The error is Errors with every problem found. Parse keeps nothing of data.
func Parse(name string, data []byte, opts ...Option) (*Config, error) {
	o := options{check: checkPolicy}
	for _, opt := range opts {
		opt(&o)
	}
	d := newDecoder()
	tree, errs := parseTree(name, data)
	d.problems = errs
	if tree.kind == kindRefused {
		tree = item{kind: kindMap, place: tree.place}
	}
	if tree.kind != kindMap {
		d.refuse("", tree.place, tree.shown(), complaint{kindNames[tree.kind] + " where keys are wanted", "write key: value lines"})
		tree = item{kind: kindMap, place: place{name, 1, 1}}
	}
	readable := len(errs) == 0
	d.mapping("", schema(d.config), nil, tree)
	d.environment(o.env)
	d.flags(o.flags)
	if readable { // a broken file would only give problems that follow from it
		if _, given := d.places["nodes"]; !given {
			d.refuse("nodes", place{name, 1, 1}, "", complaint{"the key is missing", "add nodes: and one engine a line, or nodes: [] if they are added at run time"})
		}
		d.together(o.check)
	}
	d.config.Limits.ConnectionsGiven = d.places["limits.connections"].known()
	if problems := d.sorted(); len(problems) > 0 {
		return nil, problems
	}
	return d.config, nil
}

// Default is the configuration of a file that says nodes: [] and nothing else.
func Default() *Config {
	c, err := Parse("default", []byte("nodes: []\n"))
	if err != nil {
		panic("BUG: the defaults contradict each other: " + err.Error())
	}
	return c
}
