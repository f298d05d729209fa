package discover

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write what the code says into the scenario files")

// runScenarios runs every case of a file: a command line, input lines, a line
// of four dashes, the expected trace up to a blank line. Lines that begin with
// # between cases are prose.
func runScenarios(t *testing.T, path string, run func(command []string, input string) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	var out strings.Builder
	for i := 0; i < len(lines); {
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			out.WriteString(lines[i] + "\n")
			i++
			continue
		}
		at, command := i+1, lines[i]
		var input, want []string
		for i++; i < len(lines) && lines[i] != "----"; i++ {
			input = append(input, lines[i])
		}
		for i++; i < len(lines) && lines[i] != ""; i++ {
			want = append(want, lines[i])
		}
		got := strings.TrimRight(run(strings.Fields(command), strings.Join(input, "\n")), "\n")
		out.WriteString(strings.Join(append([]string{command}, input...), "\n") + "\n----\n" + got + "\n")
		if !*rewrite && got != strings.Join(want, "\n") {
			t.Errorf("%s:%d: %s\ngot:\n%s\nwant:\n%s", path, at, command, got, strings.Join(want, "\n"))
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
