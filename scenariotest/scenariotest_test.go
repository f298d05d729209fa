package scenariotest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const file = `# Prose at the head of the file. More of it.

# A case. With a second sentence.
add 1 2
  # not prose: within a case

----
3

# Prose between cases.
nothing
----

add 5
----
8
`

// adder adds to the sum of the cases before.
func adder() Play {
	sum := 0
	return func(_ *testing.T, c Case) string {
		if c.Input[0] == "nothing" {
			return ""
		}
		for _, word := range c.Command()[1:] {
			sum += int(word[0] - '0')
		}
		return string(rune('0' + sum))
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun(t *testing.T) {
	path := write(t, "a.txt", file)
	var seen []Case
	RunWith(t, path, func() Play {
		add := adder()
		return func(t *testing.T, c Case) string {
			seen = append(seen, c)
			return add(t, c)
		}
	})
	if len(seen) != 3 {
		t.Fatalf("%d cases are run", len(seen))
	}
	first := seen[0]
	if first.Title != "A case" || first.At != path+":4" || first.Rest() != "  # not prose: within a case\n\n" || !slices.Equal(first.Lines(), []string{"add 1 2"}) {
		t.Errorf("the first case is %+v", first)
	}
	if seen[1].Title != "Prose between cases" || seen[2].Title != "" {
		t.Errorf("titles %q and %q", seen[1].Title, seen[2].Title)
	}
}

// TestRewrite: what came is written, and nothing else is touched.
func TestRewrite(t *testing.T) {
	defer func(was bool) { *rewrite = was }(*rewrite)
	*rewrite = true
	path := write(t, "a.txt", strings.NewReplacer("3\n", "wrong\nlines\n", "----\n\n", "----\nnot nothing\n\n").Replace(file))
	RunWith(t, path, adder)
	if got, err := os.ReadFile(path); err != nil || string(got) != file {
		t.Errorf("written, %v:\n%s", err, got)
	}
}
