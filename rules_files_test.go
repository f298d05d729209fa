package warmpath_test

import (
	"go/build"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// textKinds are the extensions of files that people write; "" is for files
// such as Makefile.
var textKinds = []string{".go", ".c", ".h", ".sh", ".py", ".lua", ".js", ".md", ".yaml", ".yml", ".tmpl", ".html", ".css", ".service", ""}

// prose visits each written file: no data, no recorded results.
func prose(t *testing.T, visit func(p, text string)) {
	walk(t, func(p string) {
		if !slices.Contains(textKinds, path.Ext(p)) || p == "LICENSE" || strings.Contains(p, "testdata/") ||
			under(p, "bench/results") || path.Dir(p) == "." && strings.HasPrefix(path.Base(p), "rules_") {
			return
		}
		visit(p, readFile(t, p))
	})
}

// wordRule forbids a pattern in every written file but these rules.
type wordRule struct {
	pattern *regexp.Regexp
	reason  string
	remedy  string
}

var wordRules = []wordRule{
	{
		regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`),
		"unfinished work hides in comments", "finish it, or say in the documentation what is not done",
	},
	{
		regexp.MustCompile(`["'\x60\s=:(](/root/|/work/|/home/[a-z]+/|/Users/|[A-Z]:\\)`),
		"a path of one machine works nowhere else", "use a relative path, a flag or a temporary folder",
	},
	{
		regexp.MustCompile(`(?i)\bissues? #[0-9]+`),
		"numbers of a tracker mean nothing to a reader of the code", "say what the matter is",
	},
	{
		regexp.MustCompile(`(?i)proxy\.golang\.org|registry\.npmjs|pypi\.org/simple`),
		"which registry serves a machine is its owner's choice", "name the package and its version only",
	},
}

func TestWords(t *testing.T) {
	prose(t, func(p, text string) {
		number := 0
		for line := range strings.Lines(text) {
			number++
			for i := range wordRules {
				if found := wordRules[i].pattern.FindString(line); found != "" {
					t.Errorf("%s:%d says %q: %s; %s", p, number, strings.TrimSpace(found), wordRules[i].reason, wordRules[i].remedy)
				}
			}
		}
	})
}

func TestFilesAreShort(t *testing.T) {
	const most = 600
	for _, s := range sources(t) {
		if !s.generated && s.lines > most {
			t.Errorf("%s has %d lines: one idea a file; split it to %d or less", s.path, s.lines, most)
		}
	}
}

// TestFoldersAreShallow bounds the depth of packages; testdata does not count.
func TestFoldersAreShallow(t *testing.T) {
	const most = 3
	for _, s := range sources(t) {
		if depth := strings.Count(s.path, "/"); depth > most {
			t.Errorf("%s lies %d folders deep: the tree is the map of the program; keep it at %d", s.path, depth, most)
		}
	}
}

// builds are what something really compiles: the plain build, the race
// detector, the Hugging Face oracle, for both Linux architectures, and without
// assembly.
var builds = []build.Context{
	{GOARCH: "amd64"},
	{GOARCH: "amd64", CgoEnabled: true, BuildTags: []string{"race"}},
	{GOARCH: "amd64", CgoEnabled: true, BuildTags: []string{"hf"}},
	{GOARCH: "arm64"},
	{GOARCH: "amd64", BuildTags: []string{"purego"}},
}

// TestNoFileIsLeftOut finds Go files that no build compiles, be it for their
// name or for their constraint.
func TestNoFileIsLeftOut(t *testing.T) {
	for _, s := range sources(t) {
		used := slices.ContainsFunc(builds, func(c build.Context) bool {
			c.GOOS, c.Compiler, c.ReleaseTags = "linux", "gc", build.Default.ReleaseTags
			match, err := c.MatchFile(s.folder, path.Base(s.path))
			return match || err != nil // an error is the compiler's to report
		})
		if !used {
			t.Errorf("%s is in no build: delete it, or name its build in rules_files_test.go and in the Makefile", s.path)
		}
	}
}

// TestTestdataIsUsed wants each file under testdata mentioned by a test of its
// package: by name, by an extension it globs, or by its folder.
func TestTestdataIsUsed(t *testing.T) {
	tests := map[string]string{} // folder → text of its tests
	for _, s := range sources(t) {
		if s.test {
			tests[s.folder] += s.text
		}
	}
	walk(t, func(p string) {
		folder, rest, ok := strings.Cut(p, "/testdata/")
		if !ok {
			return
		}
		// testdata/fuzz/FuzzX/… belongs to the fuzz target of that name.
		if parts := strings.Split(rest, "/"); parts[0] == "fuzz" && len(parts) == 3 {
			if !strings.Contains(tests[folder], "func "+parts[1]+"(") {
				t.Errorf("%s belongs to no fuzz target: delete it", p)
			}
			return
		}
		if !mentions(tests[folder], rest) {
			t.Errorf("%s is mentioned by no test of its package: use it or delete it", p)
		}
	})
}

// mentions reports whether the text of a package's tests reaches a file
// below its testdata folder.
func mentions(text, file string) bool {
	dir, base := path.Split(file)
	if strings.Contains(text, base) || strings.Contains(text, "*"+path.Ext(base)) && path.Ext(base) != "" {
		return true
	}
	if strings.Contains(text, `"testdata"`) || strings.Contains(text, `"testdata/"`) { // reads the whole folder, or joins names
		stem := strings.TrimSuffix(base, path.Ext(base))
		return strings.Contains(text, "ReadDir(") || strings.Contains(text, "WalkDir(") || strings.Contains(text, stem)
	}
	return dir != "" && strings.Contains(text, "testdata/"+strings.TrimSuffix(dir, "/")) || strings.Contains(text, `testdata/*"`)
}

// TestScriptsAreCalled wants each script mentioned by the Makefile, by prose,
// by another script or by code.
func TestScriptsAreCalled(t *testing.T) {
	var scripts []string
	walk(t, func(p string) {
		if under(p, "scripts") && slices.Contains([]string{".sh", ".py"}, path.Ext(p)) {
			scripts = append(scripts, p)
		}
	})
	called := map[string]bool{}
	prose(t, func(p, text string) {
		for _, script := range scripts {
			if p != script && strings.Contains(text, path.Base(script)) {
				called[script] = true
			}
		}
	})
	for _, script := range scripts {
		if !called[script] {
			t.Errorf("%s is called by nothing: name it in the Makefile, in a document or in the script that runs it, or delete it", script)
		}
	}
}

func TestWordRulesBite(t *testing.T) {
	for _, bad := range []string{"// TO" + "DO: later", `dir := "/ro` + `ot/x"`, "see iss" + "ue #12"} {
		if !slices.ContainsFunc(wordRules, func(r wordRule) bool { return r.pattern.MatchString(bad) }) {
			t.Errorf("no rule refuses %q", bad)
		}
	}
	for _, good := range []string{`"GET /work HTTP/1.1"`, "a workroot/ folder", "https://example.com/root/x"} {
		for _, r := range wordRules {
			if found := r.pattern.FindString(good); found != "" {
				t.Errorf("%q is refused for %q", good, found)
			}
		}
	}
}

func TestMentions(t *testing.T) {
	for _, c := range []struct {
		text, file string
		want       bool
	}{
		{`os.ReadFile("testdata/a.txt")`, "a.txt", true},
		{`filepath.Glob("testdata/*.txt")`, "b.txt", true},
		{`filepath.Glob("testdata/*.txt")`, "b.json", false},
		{`os.ReadDir("testdata")`, "b.json", true},
		{`os.ReadFile("testdata/a.txt")`, "b.txt", false},
		{`read("testdata/heads")`, "heads/one.bin", true},
	} {
		if got := mentions(c.text, c.file); got != c.want {
			t.Errorf("mentions(%q, %q) = %v", c.text, c.file, got)
		}
	}
}
