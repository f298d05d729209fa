package config

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// line is one line of the example with the full key it holds.
type line struct {
	indent     int
	dash       bool
	key, value string
	path       string
}

func (l line) String() string {
	lead := strings.Repeat(" ", l.indent)
	if l.dash {
		lead = lead[2:] + "- "
	}
	return strings.TrimRight(lead+l.key+": "+l.value, " ")
}

// exampleLines takes the example apart.
func exampleLines() []line {
	var out []line
	var stack []line
	for _, text := range strings.Split(Example(), "\n") {
		text, _, _ = strings.Cut(text, "#")
		text = strings.TrimRight(text, " ")
		if text == "" {
			continue
		}
		l := line{dash: strings.Contains(text, "- ")}
		body := strings.TrimLeft(text, " -")
		l.indent = len(text) - len(body)
		l.key, l.value, _ = strings.Cut(body, ":")
		l.value = strings.TrimSpace(l.value)
		for len(stack) > 0 && stack[len(stack)-1].indent >= l.indent {
			stack = stack[:len(stack)-1]
		}
		parent := ""
		if len(stack) > 0 {
			parent = stack[len(stack)-1].path
		}
		if parent == "models" || parent == "nodes" {
			parent += "[0]"
		}
		l.path = join(parent, l.key)
		stack = append(stack, l)
		out = append(out, l)
	}
	return out
}

func render(lines []line) []byte {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.String() + "\n")
	}
	return []byte(b.String())
}

// TestMutations changes a valid file in 1,000 random ways. Each result loads,
// or gives problems that have a line each and name the key that was changed.
func TestMutations(t *testing.T) {
	base := exampleLines()
	if _, err := Parse("f", render(base)); err != nil {
		t.Fatalf("the file before mutation: %v", err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for n := range 1000 {
		data, what, wantKey, must := mutate(r, slices.Clone(base))
		_, err := Parse("f", data)
		if err == nil {
			if must {
				t.Errorf("%d: %s was accepted", n, what)
			}
			continue
		}
		refused++
		checkProblems(t, data, err)
		named := func(p Problem) bool {
			return p.Key == wantKey || strings.HasPrefix(p.Key, wantKey+"[") || strings.Contains(p.What, wantKey)
		}
		if wantKey != "" && !slices.ContainsFunc(err.(Errors), named) {
			t.Errorf("%d: %s: %s is not named in:\n%v", n, what, wantKey, err)
		}
	}
	if refused < 500 {
		t.Errorf("only %d of 1000 were refused", refused)
	}
}

// mutate makes one change. key is the full key that problems must name, "" if
// the change is not about one; must says that it cannot be accepted.
func mutate(r *rand.Rand, lines []line) (data []byte, what, key string, must bool) {
	i := r.IntN(len(lines))
	l := &lines[i]
	isLeaf := l.value != "" && l.value != "{}"
	parent := strings.TrimSuffix(l.path, l.key)
	switch kind := r.IntN(8); {
	case kind == 0: // another key
		at := r.IntN(len(l.key) + 1)
		l.key = l.key[:at] + string(rune('a'+r.IntN(26))) + l.key[at:]
		return render(lines), "key " + l.path + " → " + l.key, parent + l.key, true
	case kind == 1 && isLeaf: // another type
		l.value = []string{"{zz: 1}", "[[1]]", "null", "[{a: b}]"}[r.IntN(4)]
		return render(lines), l.path + ": " + l.value, l.path, true
	case kind == 2 && isLeaf: // another value
		l.value = []string{`"?!"`, "-1", "99999999999999999999", "1e400", "true", ".nan", `"é "`, "0x10", "1_0", "2001-01-01", "maybe"}[r.IntN(11)]
		key := l.path
		if l.path == "models[0].name" || l.path == "policy.name" {
			key = ""
		}
		return render(lines), l.path + ": " + l.value, key, false
	case kind == 3 && isLeaf && !l.dash: // twice
		lines = slices.Insert(lines, i, *l)
		return render(lines), "twice " + l.path, l.path, true
	case kind == 4: // gone
		what := "without " + l.path
		return render(slices.Delete(lines, i, i+1)), what, "", false
	case kind == 5: // elsewhere
		l.indent = max(2, l.indent+r.IntN(7)-3)
		return render(lines), "indentation of " + l.path, "", false
	case kind == 6: // bytes
		data := render(lines)
		for range 1 + r.IntN(4) {
			data[r.IntN(len(data))] = byte(r.IntN(256))
		}
		return data, "bytes", "", false
	default: // junk
		data := render(lines)
		at := r.IntN(len(data))
		junk := []string{"\t", "[", "}", ": ", "\x00\x01\xff", "&a ", "*a", "!!x ", "- ", "\"", "'", "|", "? ", "---\n", "%YAML 1.1\n", "<<: {a: b}\n"}[r.IntN(16)]
		return slices.Concat(data[:at], []byte(junk), data[at:]), fmt.Sprintf("junk %q at %d", junk, at), "", false
	}
}
