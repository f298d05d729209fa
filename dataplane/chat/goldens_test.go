package chat

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// goldenNow is the clock of scripts/chat_goldens.py.
var goldenNow = Clock{Year: 2026, Month: 3, Day: 5, Hour: 7, Minute: 8, Second: 9}

// cachedTemplates is where scripts/templates.sh puts templates of others.
const cachedTemplates = "../../.cache/templates"

// fewestGoldens is how many cases the templates of this repository alone must
// give, so that no mistake here lets the comparison shrink.
const fewestGoldens = 400

type golden struct {
	conversation string
	raises       bool
	size         int
	sum          string
	head         string
}

type goldenFile struct {
	name, sum, source string
	cases             []golden
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimRight(string(data), "\n"), "\n")
}

func unquote(t *testing.T, quoted string) string {
	t.Helper()
	var s string
	if err := json.Unmarshal([]byte(quoted), &s); err != nil {
		t.Fatalf("%v in %s", err, quoted)
	}
	return s
}

func readGoldenFile(t *testing.T, path string) goldenFile {
	t.Helper()
	file := goldenFile{name: strings.TrimSuffix(filepath.Base(path), ".txt")}
	for i, line := range readLines(t, path) {
		fields := strings.SplitN(line, " ", 5)
		switch {
		case i == 0:
			file.sum, file.source = fields[1], strings.Join(fields[2:], " ")
		case fields[1] == "raises":
			file.cases = append(file.cases, golden{conversation: fields[0], raises: true})
		default:
			size, err := strconv.Atoi(fields[2])
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			file.cases = append(file.cases, golden{fields[0], false, size, fields[3], unquote(t, fields[4])})
		}
	}
	return file
}

// conversations are the variables that goldens are rendered with.
func conversations(t *testing.T) map[string][]byte {
	t.Helper()
	byName := map[string][]byte{}
	for _, line := range readLines(t, "testdata/conversations.jsonl") {
		var c struct {
			Name string
			Vars json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		byName[c.Name] = c.Vars
	}
	return byName
}

// templateSource finds a template by name, here or in the cache.
func templateSource(name string) (source string, own, ok bool) {
	for _, folder := range []string{"testdata/templates", cachedTemplates} {
		if data, err := os.ReadFile(filepath.Join(folder, name+".jinja")); err == nil {
			return string(data), folder == "testdata/templates", true
		}
	}
	return "", false, false
}

// goldenVars are the variables of a conversation, over the special tokens.
func goldenVars(t *testing.T, m *Machine, raw []byte) Value {
	t.Helper()
	vars := m.Dict(8)
	for _, token := range [][2]string{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}} {
		m.Set(vars, token[0], m.Copy(token[1]))
	}
	given, err := m.ReadJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	for i := range given.Len() {
		key, value := given.Entry(i)
		if err := m.SetValue(vars, key, value); err != nil {
			t.Fatal(err)
		}
	}
	return vars
}

// knownMisses are the lines "TEMPLATE CONVERSATION WHY" of testdata/misses.txt.
func knownMisses(t *testing.T) map[string]bool {
	t.Helper()
	misses := map[string]bool{}
	file, err := os.Open("testdata/misses.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for s := bufio.NewScanner(file); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) >= 3 && fields[0] != "#" {
			misses[fields[0]+" "+fields[1]] = true
		}
	}
	return misses
}

// TestGoldens compares with what Python's jinja2 rendered.
func TestGoldens(t *testing.T) {
	paths, err := filepath.Glob("testdata/goldens/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	vars, misses := conversations(t), knownMisses(t)
	counted := 0
	for _, path := range paths {
		file := readGoldenFile(t, path)
		t.Run(file.name, func(t *testing.T) {
			source, own, ok := templateSource(file.name)
			if !ok {
				t.Skipf("no template of that name in %s; run scripts/templates.sh", cachedTemplates)
			}
			if sum := sha256.Sum256([]byte(source)); hex.EncodeToString(sum[:]) != file.sum {
				if own {
					t.Fatal("the goldens are of another template; run scripts/chat_goldens.py")
				}
				t.Skip("the goldens are of another version of this template")
			}
			if own {
				counted += len(file.cases)
			}
			compareGoldens(t, file, source, vars, misses)
		})
	}
	if counted < fewestGoldens {
		t.Errorf("%d cases of own templates, want at least %d", counted, fewestGoldens)
	}
}

func compareGoldens(t *testing.T, file goldenFile, source string, vars map[string][]byte, misses map[string]bool) {
	template, err := Compile(source, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := Machine{Now: goldenNow}
	for _, want := range file.cases {
		m.Reset()
		var out Rope
		err := template.Render(&m, goldenVars(t, &m, vars[want.conversation]), &out)
		got := out.AppendText(nil)
		sum := sha256.Sum256(got)
		switch {
		case misses[file.name+" "+want.conversation]:
			if err == nil {
				t.Errorf("%s: a known miss that renders; it must fail, or leave testdata/misses.txt", want.conversation)
			}
		case want.raises && err == nil:
			t.Errorf("%s: Python raises an error, got text", want.conversation)
		case want.raises:
			if ClassOf(err) != Raised {
				t.Errorf("%s: Python raises an error; got %v", want.conversation, err)
			}
		case err != nil:
			t.Errorf("%s: %v", want.conversation, err)
		case len(got) != want.size || hex.EncodeToString(sum[:]) != want.sum:
			t.Errorf("%s: differs from Python\n%s", want.conversation, difference(got, []byte(want.head)))
		}
	}
}

// difference shows where two texts part.
func difference(got, want []byte) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	show := func(b []byte) string {
		return strconv.Quote(string(bytes.ToValidUTF8(b[max(0, at-40):min(len(b), at+60)], []byte("?"))))
	}
	if at > len(got) || at > len(want) {
		return ""
	}
	return "got  …" + show(got) + "\nwant …" + show(want)
}
