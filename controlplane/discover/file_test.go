package discover

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/state"
)

// log writes down what a source says, a line each.
type log chan string

func (l log) Emit(set []state.Spec) { l <- strings.TrimSpace("nodes " + names(set)) }
func (l log) Failed(err error)      { l <- "failed: " + err.Error() }

func (l log) want(t *testing.T, what string) {
	t.Helper()
	select {
	case got := <-l:
		if !strings.Contains(got, what) {
			t.Fatalf("the source said %q, want %q", got, what)
		}
	case <-time.After(time.Minute):
		t.Fatalf("the source has not said %q", what)
	}
}

// words reads a file of node names.
func words(_ string, data []byte) (set []state.Spec, err error) {
	for _, w := range strings.Fields(string(data)) {
		if w == "broken" {
			return nil, errors.New("line 1: broken")
		}
		set = append(set, spec(w))
	}
	return set, nil
}

// TestFile: a file that is not there yet, written, replaced, broken, mended, taken
// away and put back, as editors and ConfigMaps do it.
func TestFile(t *testing.T) {
	folder := t.TempDir()
	path, said := filepath.Join(folder, "nodes"), make(log, 10)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- NewFile(path, words).Run(ctx, said) }()
	said.want(t, "write it, or take the key out")
	write("nodes", "a b")
	said.want(t, "nodes a b")
	write("other", "x") // another file of the folder says nothing
	write("new", "b c")
	if err := os.Rename(filepath.Join(folder, "new"), path); err != nil {
		t.Fatal(err)
	}
	said.want(t, "nodes b c")
	write("nodes", "c") // as while it is written
	write("nodes", "c b d")
	said.want(t, "nodes c b d")
	write("nodes", "a a")
	said.want(t, `node "a" stands twice`)
	write("nodes", "broken")
	said.want(t, "line 1: broken")
	write("nodes", "b c d") // as it was before it broke
	said.want(t, "nodes b c d")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	said.want(t, "no such file")
	write("nodes", "b c")
	said.want(t, "nodes b c")
	write("nodes", "")
	said.want(t, "nodes")
	// A ConfigMap is a link to a link that is replaced.
	for _, v := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(folder, v), 0o700); err != nil {
			t.Fatal(err)
		}
		write(v+"/nodes", v)
	}
	swap := func(target, link string) {
		t.Helper()
		if err := errors.Join(os.Symlink(target, link+".new"), os.Rename(link+".new", link)); err != nil {
			t.Fatal(err)
		}
	}
	swap("v1", filepath.Join(folder, "data"))
	swap("data/nodes", path)
	said.want(t, "nodes v1")
	swap("v2", filepath.Join(folder, "data"))
	said.want(t, "nodes v2")
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run ended with %v", err)
	}
}

func TestFileTooLong(t *testing.T) {
	path, said := filepath.Join(t.TempDir(), "nodes"), make(log, 1)
	if err := os.WriteFile(path, make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	NewFile(path, words).look(said)
	said.want(t, "more than 1048576 bytes")
}
