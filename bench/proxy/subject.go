package proxy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"warmpath/bench/peers"
)

// Direct is the subject without any proxy: wrk against the first node.
const Direct = "direct"

// Warmpath is the subject this project is about.
const Warmpath = "warmpath"

// subject is one thing to measure.
type subject struct {
	name     string
	template string // configuration under bench/peers; "" = none, for Direct
	file     string // name of the configuration in the proxy's folder
	version  []string
	// command returns the arguments after the executable.
	command func(folder, config string) []string
}

var subjects = []subject{
	{
		name: Warmpath, template: "warmpath.yaml.tmpl", file: "warmpath.yaml", version: []string{"version"},
		command: func(_, config string) []string { return []string{"serve", "--config", config} },
	},
	{name: Direct},
	{
		name: "nginx", template: "nginx.conf.tmpl", file: "nginx.conf", version: []string{"-v"},
		command: func(folder, config string) []string { return []string{"-e", "stderr", "-p", folder, "-c", config} },
	},
	{
		name: "haproxy", template: "haproxy.cfg.tmpl", file: "haproxy.cfg", version: []string{"-v"},
		command: func(_, config string) []string { return []string{"-db", "-f", config} },
	},
}

func subjectNames() []string {
	names := make([]string, len(subjects))
	for i := range subjects {
		names[i] = subjects[i].name
	}
	return names
}

func findSubject(name string) *subject {
	i := slices.IndexFunc(subjects, func(s subject) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return &subjects[i]
}

// executable finds the subject's program; Debian keeps servers in sbin, which
// is not on every user's path.
func (s *subject) executable(o *Options) (string, error) {
	if s.name == Warmpath {
		if _, err := os.Stat(o.Warmpath); err != nil {
			return "", fmt.Errorf("find router: %w; build it with `make build`, or measure the peers alone with --no-warmpath", err)
		}
		return o.Warmpath, nil
	}
	path, err := exec.LookPath(s.name)
	if err == nil {
		return path, nil
	}
	path = filepath.Join("/usr/sbin", s.name)
	if _, statErr := os.Stat(path); statErr != nil {
		return "", fmt.Errorf("find peer %q: %w; install it (Debian: nginx-light, haproxy)", s.name, err)
	}
	return path, nil
}

// versionLine asks the program for its version: the first line it prints.
func (s *subject) versionLine(ctx context.Context, o *Options) (string, error) {
	path, err := s.executable(o)
	if err != nil {
		return "", err
	}
	return firstLine(ctx, path, s.version...)
}

// firstLine runs a program and returns the first line of what it prints. Its
// exit status does not matter: wrk -v ends with 1.
func firstLine(ctx context.Context, path string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if line == "" && err != nil {
		return "", fmt.Errorf("ask %q for its version: %w", path, err)
	}
	return line, nil
}

// start runs the subject in folder, pinned to a core, until ctx ends.
func (s *subject) start(ctx context.Context, o *Options, core int, v peers.Values) (*process, error) {
	path, err := s.executable(o)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(v.Folder, s.file)
	file, err := os.Create(config)
	if err != nil {
		return nil, fmt.Errorf("create configuration of %q: %w", s.name, err)
	}
	err = peers.Render(file, s.template, v)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("write configuration of %q: %w", s.name, err)
	}
	return startPinned(ctx, core, v.Folder, s.name, append([]string{path}, s.command(v.Folder, config)...))
}
