package process

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"warmpath/scaler/actuate"
)

const (
	defaultURL       = "http://127.0.0.1:{port}"
	defaultProc      = "/proc"
	defaultStopAfter = 30 * time.Second
)

// Options say what a node is and where it may be.
type Options struct {
	// Command is the program and its arguments, run by no shell. {port}, {key} and {model}
	// stand for the node's own, {port+1000} for a port that lies so much higher, as the
	// one of its events; other words of small letters in braces are refused, and braces
	// around anything else stay as they are. A program without '/' is looked for in the
	// PATH of Environ.
	Command []string
	// Fleet marks the nodes; as a key in form. Those of other fleets are not seen.
	Fleet string
	// FirstPort to LastPort are for nodes, one each. They should lie outside the range from
	// which the kernel takes ports for connections (net.ipv4.ip_local_port_range).
	FirstPort, LastPort int
	LogDir              string // takes a file for each node; "" = what they write is lost
	MaxNodes            int    // 0 = as many as there are ports
	// URL is where the engine is, with {port} and {key}; "" = http://127.0.0.1:{port}.
	URL     string
	Environ []string // of nodes, as name=value; marks are added, those of others taken out
	// StopAfter is how long after SIGTERM a node is killed; 0 = 30 s.
	StopAfter time.Duration
	Proc      string // where the kernel shows processes; "" = /proc
	Log       *slog.Logger
}

// check fills in defaults and returns what is wrong.
func (o *Options) check() error {
	o.URL = either(o.URL, defaultURL)
	o.Proc = either(o.Proc, defaultProc)
	if o.StopAfter == 0 {
		o.StopAfter = defaultStopAfter
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Command, o.Environ = slices.Clone(o.Command), slices.Clone(o.Environ)
	switch {
	case len(o.Command) == 0 || o.Command[0] == "":
		return errors.New("command is empty: name a program and its arguments")
	case o.FirstPort < 1 || o.LastPort > 65535 || o.FirstPort > o.LastPort:
		return fmt.Errorf("ports %d to %d: use a range within 1 to 65535, first to last", o.FirstPort, o.LastPort)
	case o.MaxNodes < 0:
		return fmt.Errorf("max nodes %d: use 0, which is one a port, or more", o.MaxNodes)
	case o.StopAfter < 0:
		return fmt.Errorf("stop after %v: use a time above 0", o.StopAfter)
	}
	if err := actuate.CheckKey(o.Fleet); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	for i, argument := range o.Command {
		if err := actuate.CheckPlaceholders(argument, "port", "key", "model"); err != nil {
			return fmt.Errorf("command, word %d %q: %w", i+1, argument, err)
		}
	}
	if err := o.checkPorts(); err != nil {
		return err
	}
	if err := actuate.CheckEnviron(o.Environ); err != nil {
		return err
	}
	return o.checkPlaces()
}

// checkPorts checks that no node's further ports are another node's.
func (o *Options) checkPorts() error {
	ahead := []int{0}
	for _, word := range o.Command {
		for _, more := range actuate.PortsAhead(word) {
			if !slices.Contains(ahead, more) {
				ahead = append(ahead, more)
			}
		}
	}
	slices.Sort(ahead)
	for i, more := range ahead {
		switch {
		case o.LastPort+more > 65535:
			return fmt.Errorf("command has {port+%d}: with ports to %d that leaves the range up to 65535", more, o.LastPort)
		case i > 0 && more-ahead[i-1] <= o.LastPort-o.FirstPort:
			return fmt.Errorf("command has {port+%d}: nodes have ports %d to %d, so that it would be another node's; add at least %d", more, o.FirstPort, o.LastPort, ahead[i-1]+o.LastPort-o.FirstPort+1)
		}
	}
	return nil
}

// checkPlaces checks where engines and logs are.
func (o *Options) checkPlaces() error {
	if err := actuate.CheckPlaceholders(o.URL, "port", "key"); err != nil {
		return fmt.Errorf("url %q: %w", o.URL, err)
	}
	u, err := url.Parse(o.url("k", o.FirstPort))
	if err != nil {
		return fmt.Errorf("url %q: %w", o.URL, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return fmt.Errorf("url %q: use http://host:{port}", o.URL)
	}
	if o.LogDir != "" {
		if err := os.MkdirAll(o.LogDir, 0o750); err != nil {
			return fmt.Errorf("folder of logs: %w", err)
		}
	}
	if _, err := os.Stat(o.Proc + "/self/stat"); err != nil {
		return fmt.Errorf("nodes are found by what the kernel shows of processes: %w; mount procfs", err)
	}
	return nil
}

func either(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// command is what one node runs.
func (o *Options) command(w actuate.Wanted, port int) ([]string, error) {
	own := map[string]string{"port": strconv.Itoa(port), "key": w.Key, "model": w.Model}
	words := make([]string, len(o.Command))
	for i, word := range o.Command {
		if w.Model == "" && strings.Contains(word, "{model}") {
			return nil, fmt.Errorf("command, word %d %q: no model was named: name one in the offer, or write it into the command", i+1, word)
		}
		words[i] = actuate.Fill(word, own)
	}
	return words, nil
}

// url is where one node's engine is.
func (o *Options) url(key string, port int) string {
	return actuate.Fill(o.URL, map[string]string{"port": strconv.Itoa(port), "key": key})
}

// environ is the environment of one node.
func (o *Options) environ(m marks) []string {
	env := slices.DeleteFunc(slices.Clone(o.Environ), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return slices.Contains(markNames, name) || name == keepsEnviron
	})
	return append(env, keepsEnviron+"=1",
		markFleet+"="+m.fleet, markNode+"="+m.key, markPort+"="+strconv.Itoa(m.port), markInstance+"="+m.instance)
}
