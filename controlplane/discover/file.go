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
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"warmpath/controlplane/state"
)

const (
	maxFileBytes = 1 << 20
	// fileSettles is how long after a change a file is read: an editor or a copy
	// makes several.
	fileSettles = 50 * time.Millisecond
	// fileStands is how long a file must have said that nodes leave to be believed:
	// one that is being written in place may end anywhere.
	fileStands = time.Second
	// filePoll is between two looks that no change was told for: network file
	// systems tell of none.
	filePoll = 10 * time.Second
)

// File is the source of the nodes that a file names. It is read again when it
// changes, be it written in place or replaced, as a mounted ConfigMap is.
type File struct {
	path  string
	read  func(name string, data []byte) ([]state.Spec, error)
	last  []byte       // what was read last, nil if that failed
	told  []state.Spec // what was emitted last
	doubt []byte       // what would take nodes away, if it still says so at the next look
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
	f.last, f.doubt = nil, nil
	w, err := fsnotify.NewWatcher()
	if err != nil { // it is polled then
		w = &fsnotify.Watcher{}
	} else {
		defer w.Close()
	}
	poll := time.NewTicker(filePoll)
	defer poll.Stop()
	settle := time.NewTimer(0) // the first look is at once
	defer settle.Stop()
	armed := true
	f.watch(w)
	for {
		again := fileSettles
		select {
		case <-ctx.Done():
			return nil
		case <-w.Events:
		case <-w.Errors: // events may have been lost
		case <-poll.C:
			f.watch(w)
		case <-settle.C:
			armed = false
			if f.look(to) {
				continue
			}
			again = fileStands
		}
		if !armed { // else a folder that is written all the time would put it off for ever
			armed = true
			settle.Reset(again)
		}
	}
}

// watch asks to be told of changes in the file's folder, as a file that is replaced is
// another. The folder may be another by now, too.
func (f *File) watch(w *fsnotify.Watcher) {
	if w.Events != nil {
		_ = w.Add(filepath.Dir(f.path)) // without it the file is polled
	}
}

// look reads the file, and tells of it unless it is the same as before. It reports
// false if the file is to be looked at again before it is believed.
func (f *File) look(to Listener) (sure bool) {
	data, err := readFile(f.path)
	if err != nil {
		f.last, f.doubt = nil, nil
		to.Failed(fmt.Errorf("read discovery.file: %w", err))
		return true
	}
	if f.last != nil && bytes.Equal(data, f.last) {
		f.doubt = nil
		return true
	}
	nodes, err := f.read(f.path, data)
	if err == nil {
		nodes, err = checkAll(nodes)
	}
	if err == nil && f.loses(nodes) && !(f.doubt != nil && bytes.Equal(data, f.doubt)) {
		f.doubt = data
		return false
	}
	f.last, f.doubt = data, nil
	if err != nil {
		to.Failed(fmt.Errorf("read discovery.file %q: %w", f.path, err))
		return true
	}
	f.told = nodes
	to.Emit(slices.Clone(nodes))
	return true
}

// loses reports whether a node that was told of is not among nodes, or elsewhere.
func (f *File) loses(nodes []state.Spec) bool {
	return slices.ContainsFunc(f.told, func(was state.Spec) bool {
		return !slices.ContainsFunc(nodes, func(is state.Spec) bool { return is.Name == was.Name && is.URL == was.URL })
	})
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // reading a pipe could take for ever
		return nil, fmt.Errorf("%q is no regular file", path)
	}
	var file *os.File
	if err == nil {
		file, err = os.Open(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: write it, or take the key out", err)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("%q has more than %d bytes", path, maxFileBytes)
	}
	return append([]byte{}, data...), err // never nil: an empty file was read too
}
