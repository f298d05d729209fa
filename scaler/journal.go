package scaler

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// ErrLocked is what OpenJournal fails with while another process has the journal.
var ErrLocked = errors.New("another scaler has this journal")

const (
	journalName  = "scaler.journal"
	lockName     = "scaler.lock"
	mostLineSize = 1 << 20
	mostLines    = 4096 // that a journal grows by before it is rewritten without what is past
)

// Journal is the Book on disk: a line of JSON for each change, written before it is
// carried out, so that a process that is killed at any moment leaves no node that
// its successor does not know. It is locked against a second process until Close,
// or the end of the process. Append is for one goroutine.
type Journal struct {
	Epoch   string   // part of every key: made once
	Records []Record // that count, in order: what NewBook goes on from

	folder string
	lock   *os.File
	file   *os.File
	size   int64 // of the file, up to the end of its last whole line
	most   int   // Records before the next rewriting
	moved  bool  // the file was renamed, and that may not last
}

// epochLine is the first line of a journal.
type epochLine struct {
	Epoch string `json:"epoch"`
}

// OpenJournal opens the journal of a folder, or makes one, and rewrites it without
// what is past. A last line that was cut by a crash is dropped: what it told of was
// not begun. Any other damage is an error, for what is lost there may run and cost.
func OpenJournal(folder string) (*Journal, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("open scaler's journal: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(folder, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open scaler's journal: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("open scaler's journal in %q: %w", folder, ErrLocked)
		}
		return nil, fmt.Errorf("lock scaler's journal in %q: %w", folder, err)
	}
	j := &Journal{folder: folder, lock: lock}
	if err := j.read(); err == nil {
		err = j.rewrite()
		if err == nil {
			return j, nil
		}
	} else {
		_ = lock.Close()
		return nil, fmt.Errorf("read scaler's journal %q: %w; mend the line, or move the file away and look for nodes that nobody owns", filepath.Join(folder, journalName), err)
	}
	_ = lock.Close()
	return nil, fmt.Errorf("write scaler's journal in %q: %w", folder, err)
}

// read fills Epoch and Records from the file, if there is one.
func (j *Journal) read() error {
	file, err := os.Open(filepath.Join(j.folder, journalName))
	if errors.Is(err, os.ErrNotExist) {
		random := make([]byte, 3)
		_, _ = rand.Read(random) // it does not fail: see its documentation
		j.Epoch = hex.EncodeToString(random)
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, 1<<16)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			if j.Epoch == "" {
				return errors.New("line 1 is cut: there is nothing to go on from")
			}
			return nil // what stands behind the last line end was being written
		}
		if err != nil || len(line) > mostLineSize {
			return fmt.Errorf("line %d: %w", number, errors.Join(err, errors.New("cannot be read, or is too long")))
		}
		if err := j.take(number, line); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

func (j *Journal) take(number int, line []byte) error {
	if number == 1 {
		var e epochLine
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if e.Epoch == "" {
			return errors.New("it has no epoch")
		}
		j.Epoch = e.Epoch
		return nil
	}
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}
	j.Records = append(j.Records, r)
	return nil
}

// rewrite replaces the file by one with what still counts. After an error it is the one
// before, or as good.
func (j *Journal) rewrite() error {
	j.Records = compact(j.Records)
	j.most = 2*len(j.Records) + mostLines
	temporary := filepath.Join(j.folder, journalName+".new")
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	out := json.NewEncoder(file)
	err = out.Encode(epochLine{j.Epoch})
	for _, r := range j.Records {
		err = errors.Join(err, out.Encode(r))
	}
	if err = errors.Join(err, file.Sync()); err == nil {
		err = os.Rename(temporary, filepath.Join(j.folder, journalName))
	}
	if err != nil {
		_ = file.Close()
		return err
	}
	if j.file != nil {
		_ = j.file.Close() // nothing leads to it any more
	}
	j.file, j.moved = file, true
	if j.size, err = file.Seek(0, io.SeekCurrent); err != nil {
		return err
	}
	return j.settle()
}

// settle makes a rename last.
func (j *Journal) settle() error {
	if !j.moved {
		return nil
	}
	if err := syncFolder(j.folder); err != nil {
		return err
	}
	j.moved = false
	return nil
}

// syncFolder puts the names in a folder on disk.
func syncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// compact keeps the latest record of every node that is owned, the latest nodes
// that are gone, and the latest number of a key.
func compact(records []Record) []Record {
	latest := map[string]int{}
	number := int64(0)
	for i, r := range records {
		number = max(number, r.Number)
		if r.Key != "" {
			latest[r.Key] = i
		}
	}
	gone := 0
	for _, i := range latest {
		if records[i].Stage == "" {
			gone++
		}
	}
	var kept []Record
	for i, r := range records {
		if r.Key == "" || latest[r.Key] != i {
			continue
		}
		if r.Stage == "" {
			if gone--; gone >= mostTombs {
				continue
			}
		}
		kept = append(kept, r)
	}
	return append(kept, Record{Number: number})
}

// Append writes a record, and returns once it is on disk. After an error the journal is
// as it was before: the next record must not stand behind half of this one.
func (j *Journal) Append(r Record) error {
	if err := j.append(r); err != nil {
		return fmt.Errorf("write scaler's journal in %q: %w", j.folder, err)
	}
	j.Records = append(j.Records, r)
	if len(j.Records) >= j.most {
		// That it fails is no harm: the record is on disk. It is tried again later.
		_ = j.rewrite()
	}
	return nil
}

func (j *Journal) append(r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := j.settle(); err != nil {
		return err
	}
	line = append(line, '\n')
	// Whatever a failure left behind the last whole line goes first.
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	if _, err := j.file.WriteAt(line, j.size); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.size += int64(len(line))
	return nil
}

// Close closes the file and lets another process have it.
func (j *Journal) Close() error { return errors.Join(j.file.Close(), j.lock.Close()) }
