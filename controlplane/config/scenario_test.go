package config

import (
	"errors"
	"strings"
	"testing"

	"warmpath/scenariotest"
)

// TestErrors runs testdata/errors.txt: the command "parse" with overrides
// (NAME=value for variables, --key=value for flags), the file, ----, and what
// comes of it.
func TestErrors(t *testing.T) {
	scenariotest.Run(t, "testdata/errors.txt", func(t *testing.T, c scenariotest.Case) string {
		words := c.Command()
		if words[0] != "parse" {
			t.Fatalf("%s: unknown command %q", c.At, words[0])
		}
		return outcome(c.Rest(), words[1:])
	})
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
