package engine

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

//go:embed render.py
var renderScript string

// pythons are tried in order when none is named: that of the tests' own
// environment (make setup), as seen from the checkout, and the machine's.
var pythons = []string{filepath.Join(".cache", "venv", "bin", "python"), "python3"}

// maxRendered bounds a rendered prompt, bytes.
const maxRendered = 2 * maxBodyBytes

// renderer is a process that runs render.py for one model folder. It renders
// one prompt at a time, in some tenths of a millisecond.
type renderer struct {
	version string // of jinja2
	process *exec.Cmd

	mu     sync.Mutex // held while a prompt is rendered
	in     io.WriteCloser
	out    *bufio.Reader
	broken error // why nothing can be asked any more
}

// startRenderer starts the process with the given interpreter, or with the
// first of pythons that has jinja2.
func startRenderer(python, folder string) (*renderer, error) {
	candidates := pythons
	if python != "" {
		candidates = []string{python}
	}
	var failures []error
	for _, candidate := range candidates {
		if _, err := exec.LookPath(candidate); err != nil {
			failures = append(failures, err)
			continue
		}
		r, err := tryRenderer(candidate, folder)
		if err == nil {
			return r, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", candidate, err))
	}
	return nil, fmt.Errorf("%w %q: no Python with jinja2 renders its template; run make setup, or pip install jinja2: %w",
		ErrNoOracle, folder, errors.Join(failures...))
}

func tryRenderer(python, folder string) (*renderer, error) {
	r := &renderer{process: exec.Command(python, "-c", renderScript, folder)}
	var said strings.Builder // what it says before it dies
	r.process.Stderr = &said
	var err error
	if r.in, err = r.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReader(out)
	if err := r.process.Start(); err != nil {
		return nil, err
	}
	var first struct {
		Ready string `json:"ready"`
		Error string `json:"error"`
	}
	if err := r.read(&first); err != nil {
		_ = r.close() // before said is read
		return nil, fmt.Errorf("%w: %s", err, lastLine(said.String()))
	}
	if first.Error != "" {
		_ = r.close()
		return nil, errors.New(first.Error)
	}
	r.version = first.Ready
	return r, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// render gives the prompt of a request's body, or what the engine answers
// instead: a bad request, or an internal error once the process has failed.
func (r *renderer) render(by route, body []byte) (string, *apiError) {
	frame := fmt.Appendf(nil, `{"route":%q,"body":%s}`, by, body)
	var answer struct {
		Text  *string `json:"text"`
		Error string  `json:"error"`
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken != nil {
		return "", internalError(r.broken)
	}
	_, err := fmt.Fprintf(r.in, "%d\n%s", len(frame), frame)
	if err == nil {
		err = r.read(&answer)
	}
	if err != nil {
		r.broken = fmt.Errorf("render a prompt: the Python process has failed: %w", err)
		return "", internalError(r.broken)
	}
	if answer.Text == nil {
		return "", badRequest("", "%s", answer.Error)
	}
	return *answer.Text, nil
}

// read takes one frame.
func (r *renderer) read(v any) error {
	line, err := r.out.ReadString('\n')
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(strings.TrimSuffix(line, "\n"))
	if err != nil || size < 0 || size > maxRendered {
		return fmt.Errorf("render.py sent the length %q, must be 0 to %d", line, maxRendered)
	}
	frame := make([]byte, size)
	if _, err := io.ReadFull(r.out, frame); err != nil {
		return err
	}
	return json.Unmarshal(frame, v)
}

// close ends the process; it ends with its input.
func (r *renderer) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil {
		r.broken = errors.New("render a prompt: the model is closed")
	}
	_ = r.in.Close() // closed already where the process has failed
	return r.process.Wait()
}
