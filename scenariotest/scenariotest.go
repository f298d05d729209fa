package scenariotest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what comes of the scenarios into their files")

// Rewriting reports whether files of expectations are to be written anew: for
// tests whose files are no scenarios.
func Rewriting() bool { return *rewrite }

// Case is one case of a file.
type Case struct {
	At    string   // its first line, as path:line
	Title string   // the first sentence of the prose right before it; may be empty
	Input []string // its lines before the dashes, at least one
}

// Command returns the words of the case's first line.
func (c *Case) Command() []string { return strings.Fields(c.Input[0]) }

// Lines returns the lines that hold something and are no prose, without the space
// around them.
func (c *Case) Lines() (lines []string) {
	for _, line := range c.Input {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// Rest returns the lines behind the first, each with its line end.
func (c *Case) Rest() string { return joined(c.Input[1:]) }

// Play returns what comes of a case. A missing line end is added. It may end t.
type Play func(t *testing.T, c Case) string

// Run runs each file that matches pattern, as a subtest of its own if there are
// several. Its cases run one by one, in order.
func Run(t *testing.T, pattern string, play Play) {
	t.Helper()
	RunWith(t, pattern, func() Play { return play })
}

// RunWith is Run for cases that share something, which begin makes for each file.
func RunWith(t *testing.T, pattern string, begin func() Play) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("find scenario files %s: %v, %d files", pattern, err, len(files))
	}
	for _, path := range files {
		if len(files) == 1 {
			runFile(t, path, begin())
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)), func(t *testing.T) { runFile(t, path, begin()) })
	}
}

// Scene is what the cases of a file are played in, line by line.
type Scene struct {
	Line  func(line string) error // plays one line
	Trace *strings.Builder        // where it writes what comes of it
}

// RunScenes runs files whose cases are a sequence of lines: "run" is the command
// of one that begins in a new scene, "more" of one that goes on in that before.
func RunScenes(t *testing.T, pattern string, begin func() Scene) {
	t.Helper()
	RunWith(t, pattern, func() Play {
		var s Scene
		return func(t *testing.T, c Case) string {
			switch {
			case c.Input[0] == "run":
				s = begin()
			case c.Input[0] != "more" || s.Line == nil:
				t.Fatalf("%s: unknown command %q", c.At, c.Input[0])
			}
			s.Trace.Reset()
			for _, line := range c.Input[1:] {
				if err := s.Line(line); err != nil {
					t.Fatalf("%s: %q: %v", c.At, line, err)
				}
			}
			return s.Trace.String()
		}
	})
}

func runFile(t *testing.T, path string, play Play) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := reader{path: path, lines: strings.Split(strings.TrimRight(string(text), "\n"), "\n")}
	for c, want := r.next(t); c != nil; c, want = r.next(t) {
		got := play(t, *c)
		if got != "" && !strings.HasSuffix(got, "\n") {
			got += "\n"
		}
		if got != want && !*rewrite {
			t.Errorf("%s: %s\ngot:\n%swant:\n%s", c.At, strings.Join(c.Input, "\n\t"), got, want)
		}
		r.out.WriteString(joined(c.Input) + "----\n" + got)
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(r.out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// reader takes a file apart, and writes what stands between the cases to out.
type reader struct {
	path  string
	lines []string
	at    int
	out   strings.Builder
}

// next returns the next case and what is expected of it, nil at the end.
func (r *reader) next(t *testing.T) (c *Case, want string) {
	t.Helper()
	title := ""
	for ; r.at < len(r.lines); r.at++ {
		line := r.lines[r.at]
		if line != "" && line[0] != '#' {
			break
		}
		if line == "" {
			title = ""
		} else if title == "" {
			title, _, _ = strings.Cut(strings.TrimSpace(line[1:]), ". ")
		}
		r.out.WriteString(line + "\n")
	}
	if r.at == len(r.lines) {
		return nil, ""
	}
	c = &Case{At: fmt.Sprintf("%s:%d", r.path, r.at+1), Title: strings.TrimSuffix(title, ".")}
	c.Input = r.until("----")
	if r.at == len(r.lines) {
		t.Fatalf("%s: no ---- ends the input of %q", c.At, c.Input[0])
	}
	r.at++
	return c, joined(r.until(""))
}

// until returns the lines up to one that is end, or to the file's end.
func (r *reader) until(end string) []string {
	from := r.at
	for r.at < len(r.lines) && r.lines[r.at] != end {
		r.at++
	}
	return r.lines[from:r.at]
}

func joined(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	return b.String()
}
