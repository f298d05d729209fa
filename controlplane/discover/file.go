package discover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"warmpath/controlplane/state"
)

const (
	maxFileBytes = 16 << 20
	// fileSettles is how long after a change a file is read: an editor or a copy
	// makes several.
	fileSettles = 50 * time.Millisecond
	// filePoll is between two looks that no change was told for: network file
	// systems tell of none.
	filePoll = 10 * time.Second
)

// File is the source of the nodes that a file names. It is read again when it
// changes, be it written in place or replaced, as a mounted ConfigMap is.
type File struct {
	path string
	read func(name string, data []byte) ([]state.Spec, error)
	last []byte // what was read last …
	good bool   // … and emitted
}

// NewFile returns the source of the nodes in the file at path, which need not be
// there yet. read turns its contents into nodes; the error says what is wrong and
// where.
func NewFile(path string, read func(name string, data []byte) ([]state.Spec, error)) *File {
	return &File{path: path, read: read}
}

// Name is "file".
func (f *File) Name() string { return "file" }

// Run implements Source.
func (f *File) Run(ctx context.Context, to Listener) error {
	// The folder is watched, not the file: a file that is replaced is another.
	changed := make(chan fsnotify.Event)
	if w, err := fsnotify.NewWatcher(); err == nil {
		defer w.Close()
		if w.Add(filepath.Dir(f.path)) == nil { // else it is polled
			changed = w.Events
			go drop(w.Errors)
		}
	}
	poll := time.NewTicker(filePoll)
	defer poll.Stop()
	settle := time.NewTimer(0) // the first look is at once
	defer settle.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-changed:
			if !open {
				return errors.New("watching the folder of discovery.file ended")
			}
			settle.Reset(fileSettles)
		case <-settle.C:
			f.look(to)
		case <-poll.C:
			f.look(to)
		}
	}
}

// drop reads what a watcher complains of, as events that it has lost: the next poll
// makes good for them.
func drop(errs <-chan error) {
	for range errs {
	}
}

// look reads the file, and tells of it unless it is the same as before.
func (f *File) look(to Listener) {
	data, err := readFile(f.path)
	if err != nil {
		f.last, f.good = nil, false
		to.Failed(fmt.Errorf("read discovery.file: %w", err))
		return
	}
	if f.last != nil && bytes.Equal(data, f.last) {
		return
	}
	f.last = data
	nodes, err := f.read(f.path, data)
	if err == nil {
		nodes, err = checkAll(nodes)
	}
	if f.good = err == nil; !f.good {
		to.Failed(fmt.Errorf("read discovery.file %q: %w", f.path, err))
		return
	}
	to.Emit(nodes)
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: write it, or take the key out", err)
		}
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("%q has more than %d bytes", path, maxFileBytes)
	}
	return append([]byte{}, data...), err // never nil: an empty file was read too
}
