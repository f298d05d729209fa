package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgentFlags: what is wrong with a command line is said with the flag's
// name; a good one runs until it is told to stop.
func TestAgentFlags(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token-of-the-agent\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := []string{"--router", "http://127.0.0.1:1", "--worker-id", "gpu-a", "--token-file", token, "--engine-events", "tcp://127.0.0.1:1"}
	for _, c := range []struct {
		args  []string
		words string
		usage bool
	}{
		{good[2:], "missing [router]", false},
		{[]string{}, "[router register load-option]", false}, // nil would be those of the test
		{good[:6], "set either the endpoint to dial", true},
		{append([]string{"--worker-id", "gpu a"}, good[:2]...), "token-file", false},
		{append(good, "--worker-id", "gpu a"), "--worker-id", true},
		{append(good, "--router", "10.0.0.1"), "--router", true},
		{append(good, "--encoding", "xml"), "--encoding", true},
		{append(good, "--log.level", "loud"), "--log.level", true},
		{append(good, "--log.format", "xml"), "--log.format", true},
		{[]string{"--load-option", "--load-port", "0"}, "--load-port", true},
		{[]string{"--load-option", "--load-port", "65536"}, "--load-port", true},
		{[]string{"--load-option", "--load-url", "10.0.0.1"}, "--load-url", true},
		{[]string{"--load-option", "--load-engine", "openai"}, "load engine", true},
		{[]string{"--load-option", "--load-interval", "1s"}, "load interval", true},
		{[]string{"--load-option", "--load-cgroup", "/no-such-folder"}, "say load: ", false},
		{append(good, "--load-option", "--load-cgroup", "/no-such-folder"), "", false},
		{append(good, "--engine-events", "udp://x"), "--engine-events", true},
		{append(good, "--ranks", "0"), "ranks", true},
		{append(good, "--ranks", "65"), "ranks", true},
		{append(good, "--interval", "1ms"), "interval", true},
		{append(good, "--sync", "1m"), "sync", true},
		{append(good, "--token-file", "no-such-file"), "no-such-file", false},
		{good, "", false},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a good one ends at once
		cmd := newAgent()
		cmd.SetArgs(c.args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err := cmd.ExecuteContext(ctx)
		if c.words == "" {
			if err != nil {
				t.Errorf("%q: %v", c.args, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.words) || errors.Is(err, errUsage) != c.usage {
			t.Errorf("%q: %v, want %q", c.args, err, c.words)
		}
	}
}
