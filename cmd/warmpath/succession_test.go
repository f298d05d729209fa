package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestTellManager: a service manager is told which process is the main one.
func TestTellManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := &succession{log: slog.New(slog.DiscardHandler)}
	s.tellManager() // there is none
	t.Setenv("NOTIFY_SOCKET", path)
	s.tellManager()
	b := make([]byte, 100)
	n, err := c.Read(b)
	if got, want := string(b[:n]), fmt.Sprintf("MAINPID=%d\nREADY=1", os.Getpid()); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
