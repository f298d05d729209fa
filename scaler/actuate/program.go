package actuate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// FindProgram returns the file that a program is in: one with '/' as it stands, else the
// first in the PATH of environ (name=value, the last counts). That is not the PATH of
// this process, which nothing but the configuration reads.
func FindProgram(program string, environ []string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	path := ""
	for _, line := range environ {
		if value, ok := strings.CutPrefix(line, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if dir == "" { // "here" to a shell, and no place to look for programs
			continue
		}
		file := filepath.Join(dir, program)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%w, which is %q: write its whole path", &exec.Error{Name: program, Err: exec.ErrNotFound}, path)
}

// CheckEnviron checks the environment that a program shall have.
func CheckEnviron(environ []string) error {
	for i, line := range environ {
		if name, _, ok := strings.Cut(line, "="); !ok || name == "" || strings.ContainsRune(line, 0) {
			return fmt.Errorf("environment, line %d: %q is not name=value", i+1, name)
		}
	}
	return nil
}

// RefusedStart is the refusal that a program's failure to start is: it did nothing. This
// host may have had no room for it; else the fault lies in what it was told to run.
func RefusedStart(err error) error {
	for _, lack := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, lack) {
			return Refused(Capacity, err)
		}
	}
	return Refused(Settings, err)
}
