package config

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestErrors runs testdata/errors.txt: the command "parse" with overrides
// (NAME=value for variables, --key=value for flags), the file, ----, and what
// comes of it.
func TestErrors(t *testing.T) {
	const path = "testdata/errors.txt"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		out.WriteString(lines[i] + "\n")
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			continue
		}
		args, ok := strings.CutPrefix(lines[i]+" ", "parse ")
		if !ok {
			t.Fatalf("%s:%d: unknown command %q", path, i+1, lines[i])
		}
		var file, want strings.Builder
		for i++; i < len(lines) && lines[i] != "----"; i++ {
			file.WriteString(lines[i] + "\n")
		}
		at := i + 2
		for i++; i < len(lines) && lines[i] != ""; i++ {
			want.WriteString(lines[i] + "\n")
		}
		got := outcome(file.String(), strings.Fields(args))
		if got != want.String() && !*rewrite {
			t.Errorf("%s:%d:\ngot:\n%swant:\n%s", path, at, got, want.String())
		}
		out.WriteString(file.String() + "----\n" + got)
		if i < len(lines) {
			out.WriteString("\n")
		}
	}
	if *rewrite {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// outcome parses a file and prints its problems, or what differs from the
// default.
func outcome(file string, args []string) string {
	var env []string
	flags := map[string]string{}
	for _, a := range args {
		if flag, ok := strings.CutPrefix(a, "--"); ok {
			key, value, _ := strings.Cut(flag, "=")
			flags[key] = value
		} else {
			env = append(env, a)
		}
	}
	c, err := Parse("warmpath.yaml", []byte(file), WithEnvironment(env), WithFlags(flags))
	if err != nil {
		var problems Errors
		if !errors.As(err, &problems) {
			return "BUG: error of another type: " + err.Error() + "\n"
		}
		return err.Error() + "\n"
	}
	var b strings.Builder
	b.WriteString("ok\n")
	for _, change := range c.Diff(Default()) {
		b.WriteString(change.Key + ": " + change.New + "\n")
	}
	return b.String()
}
