package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/message"
)

const (
	stderrTail = 2048
	// readsAfter is how long output is read after the program's end. All that it wrote
	// is there by then; without a bound, what it left running would keep us.
	readsAfter = time.Second
)

// run is one run of a program.
type run struct {
	program string
	argv    []string
	environ []string
	stdin   []byte

	stdout []byte
	stderr []byte // its end
}

// lastWords is the end of what the program said on standard error.
func (r *run) lastWords() string {
	if text := strings.TrimSpace(string(r.stderr)); text != "" {
		return "; it said: " + message.Cut(text, 2*stderrTail)
	}
	return ""
}

// errTooMuch says that an answer has no end.
var errTooMuch = fmt.Errorf("it wrote more than %d bytes, and was killed", message.MaxBytes)

// do runs the program. An error that is no refusal says that what it did is unknown.
func (r *run) do(ctx context.Context) error {
	pipes, err := newPipes()
	if err != nil {
		return actuate.Refused(actuate.Capacity, err)
	}
	defer pipes.close()
	cmd := &exec.Cmd{
		Path: r.program, Args: r.argv, Env: append([]string{}, r.environ...),
		Stdin: pipes.in.read, Stdout: pipes.out.write, Stderr: pipes.err.write,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := cmd.Start(); err != nil {
		return actuate.RefusedStart(err)
	}
	pipes.started()
	return r.follow(ctx, cmd, pipes)
}

// follow talks with the program until its end, which is brought about if it says too much
// or takes too long.
func (r *run) follow(ctx context.Context, cmd *exec.Cmd, pipes *pipes) error {
	go func() { // it ends when the pipe is closed, or read, or nobody is left to read it
		_, _ = pipes.in.write.Write(r.stdin)
		_ = pipes.in.write.Close()
	}()
	tooMuch := make(chan struct{})
	outDone, errDone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(outDone)
		r.stdout, _ = io.ReadAll(io.LimitReader(pipes.out.read, message.MaxBytes+1))
		if len(r.stdout) > message.MaxBytes {
			close(tooMuch)
		}
	}()
	go func() {
		defer close(errDone)
		r.stderr = readTail(pipes.err.read, stderrTail)
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		waitUnburied(cmd.Process.Pid)
	}()
	var cut error
	select {
	case <-ended:
	case <-tooMuch:
		cut = errTooMuch
	case <-ctx.Done():
		cut = context.Cause(ctx)
	}
	if cut != nil {
		// The program is not buried yet, so that its number, and its group's, are its own.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	stop := time.Now().Add(readsAfter)
	_ = pipes.out.read.SetReadDeadline(stop)
	_ = pipes.err.read.SetReadDeadline(stop)
	<-outDone
	<-errDone
	if cut != nil {
		go bury(cmd, ended) // what hangs in the kernel takes its time
		return cut
	}
	switch err := cmd.Wait(); {
	case len(r.stdout) > message.MaxBytes:
		return errTooMuch
	case err != nil:
		return fmt.Errorf("it ended with %w", err)
	}
	return nil
}

// bury takes a program that was killed out of the table of processes.
func bury(cmd *exec.Cmd, ended <-chan struct{}) {
	<-ended
	_ = cmd.Wait() // it was killed
}

// waitUnburied waits until a child has ended, and leaves it in the table of processes.
func waitUnburied(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// readTail reads to the end and returns the last bytes.
func readTail(from io.Reader, most int) []byte {
	var tail []byte
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		tail = append(tail, buffer[:n]...)
		tail = append(tail[:0], tail[max(0, len(tail)-most):]...)
		if err != nil {
			return tail
		}
	}
}

// pipe is one that the program has one end of.
type pipe struct{ read, write *os.File }

// pipes are those of one program. They are files, so that nothing but the program's end
// is waited for.
type pipes struct{ in, out, err pipe }

func newPipes() (*pipes, error) {
	p := &pipes{}
	for _, one := range []*pipe{&p.in, &p.out, &p.err} {
		var err error
		if one.read, one.write, err = os.Pipe(); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

// started closes the ends that the program has.
func (p *pipes) started() {
	_ = p.in.read.Close()
	_ = p.out.write.Close()
	_ = p.err.write.Close()
}

// close closes what is open; closing twice is harmless.
func (p *pipes) close() {
	for _, f := range []*os.File{p.in.read, p.in.write, p.out.read, p.out.write, p.err.read, p.err.write} {
		_ = f.Close() // a nil file says that it is invalid
	}
}
