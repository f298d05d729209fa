package report

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"warmpath/controlplane/state"
)

// Bounds of a file of tokens.
const (
	tokenBytesMin   = 16 // what can be guessed is shorter
	tokenBytesMax   = 256
	tokensFileBytes = 1 << 20
	tokensEvery     = 5 * time.Second // between two looks at the file
)

// Tokens says which worker a bearer token speaks for. It is read from a file of
// lines "worker_id: token"; empty lines and lines that begin with # do not
// count. A worker may have two tokens, so that one can be replaced without a
// gap; a token has one worker. Any goroutine may ask.
type Tokens struct {
	path string
	log  *slog.Logger
	now  atomic.Pointer[tokenTable] // last good one
}

// tokenTable is immutable.
type tokenTable struct {
	workers map[[sha256.Size]byte]string // by the token's SHA-256
	file    fs.FileInfo                  // as it was read
	fault   string                       // of the file as it is now, "" if it is in force
}

// OpenTokens reads a file of tokens. Only its owner may be able to write to it,
// and others must not be able to read it; the error names file, line and remedy,
// and no token.
func OpenTokens(path string, log *slog.Logger) (*Tokens, error) {
	t := &Tokens{path: path, log: log}
	table, err := readTokens(path)
	if err != nil {
		return nil, err
	}
	t.now.Store(table)
	return t, nil
}

// Reload reads the file again. On an error the tokens in force stay.
func (t *Tokens) Reload() error {
	table, err := readTokens(t.path)
	if err != nil {
		return err
	}
	t.now.Store(table)
	t.log.Info("tokens of node reports read", "file", t.path, "tokens", len(table.workers))
	return nil
}

// Watch reads the file again whenever it has changed, until ctx ends.
func (t *Tokens) Watch(ctx context.Context) {
	look := time.NewTicker(tokensEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
			t.look()
		}
	}
}

// look reloads if need be, and says once what is wrong.
func (t *Tokens) look() {
	was := t.now.Load()
	is, err := os.Stat(t.path)
	if err == nil && was.fault == "" && os.SameFile(is, was.file) && is.ModTime().Equal(was.file.ModTime()) && is.Size() == was.file.Size() && is.Mode() == was.file.Mode() {
		return
	}
	if err == nil {
		err = t.Reload()
	}
	if err == nil || err.Error() == was.fault {
		return
	}
	t.log.Error("tokens of node reports not read; the last good ones stay in force", "err", err)
	t.now.Store(&tokenTable{workers: was.workers, file: was.file, fault: err.Error()})
}

// Worker returns whom the value of an Authorization field speaks for. It takes
// as long for one wrong token as for another: what is looked up is its hash.
func (t *Tokens) Worker(authorization string) (string, bool) {
	const scheme = "bearer "
	if len(authorization) < len(scheme) || !strings.EqualFold(authorization[:len(scheme)], scheme) {
		return "", false
	}
	digest := sha256.Sum256([]byte(strings.Trim(authorization[len(scheme):], " ")))
	worker, ok := t.now.Load().workers[digest]
	return worker, ok
}

// Workers are the workers that have a token, ascending.
func (t *Tokens) Workers() []string {
	return slices.Compact(slices.Sorted(maps.Values(t.now.Load().workers)))
}

func readTokens(path string) (*tokenTable, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open reports.tokens_file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("look at reports.tokens_file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read reports.tokens_file %q: it is no regular file", path)
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return nil, fmt.Errorf("read reports.tokens_file %q: its mode is %04o, so others can read or change it; use 0600, or 0640 for a group that may read it", path, mode)
	}
	text, err := io.ReadAll(io.LimitReader(f, tokensFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read reports.tokens_file: %w", err)
	}
	if len(text) > tokensFileBytes {
		return nil, fmt.Errorf("read reports.tokens_file %q: more than %d bytes", path, tokensFileBytes)
	}
	workers, err := parseTokens(text)
	if err != nil {
		return nil, fmt.Errorf("read reports.tokens_file %q: %w", path, err)
	}
	return &tokenTable{workers: workers, file: info}, nil
}

// parseTokens reads the lines of a file. The error joins all faults found.
func parseTokens(text []byte) (map[[sha256.Size]byte]string, error) {
	workers := map[[sha256.Size]byte]string{}
	lines := map[[sha256.Size]byte]int{}
	var faults []error
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		worker, token, err := parseToken(string(line))
		digest := sha256.Sum256([]byte(token))
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("line %d: %w", number, err))
		case lines[digest] != 0:
			faults = append(faults, fmt.Errorf("line %d: the token of line %d stands again; give every worker its own", number, lines[digest]))
		default:
			workers[digest], lines[digest] = worker, number
		}
	}
	return workers, errors.Join(faults...)
}

func parseToken(line string) (worker, token string, err error) {
	const remedy = `write "worker_id: token"`
	worker, token, found := strings.Cut(line, ":")
	if !found {
		return "", "", errors.New("there is no colon; " + remedy)
	}
	if err := state.CheckName(worker); err != nil {
		return "", "", fmt.Errorf("worker_id: %w", err)
	}
	if token == "" || token[0] != ' ' {
		return "", "", errors.New("there is no blank behind the colon; " + remedy)
	}
	token = strings.TrimLeft(token, " ")
	if len(token) < tokenBytesMin || len(token) > tokenBytesMax {
		return "", "", fmt.Errorf("the token has %d characters; use %d to %d, made by chance", len(token), tokenBytesMin, tokenBytesMax)
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return "", "", fmt.Errorf("character %d of the token is a blank or no ASCII; use letters and digits", i+1)
		}
	}
	return worker, token, nil
}

// sameWorker compares without saying by its time how much agrees.
func sameWorker(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
