package chat

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestConstructs renders the scenarios of testdata/constructs.txt: small
// templates with what Python makes of them (scripts/chat_constructs.py).
//
//	render NAME [VARIABLES]       the text as a JSON string, or "raises ERROR"
//	inexact NAME [VARIABLES]      part of the error that Render returns
//	unsupported NAME [VARIABLES]  part of the error that Compile returns
func TestConstructs(t *testing.T) {
	data, err := os.ReadFile("testdata/constructs.txt")
	if err != nil {
		t.Fatal(err)
	}
	var head []string
	var template []string
	lines := strings.Split(string(data), "\n")
	for i := 0; i < len(lines); i++ {
		switch {
		case head == nil:
			if word := strings.SplitN(lines[i], " ", 3); len(word) > 1 && word[0] != "#" {
				head, template = word, nil
			}
		case lines[i] == "----":
			i++
			command, name, vars, want := head[0], head[1], strings.Join(head[2:], ""), lines[i]
			source := strings.Join(template, "\n")
			t.Run(name, func(t *testing.T) { checkConstruct(t, command, source, vars, want) })
			head = nil
		default:
			template = append(template, lines[i])
		}
	}
}

func checkConstruct(t *testing.T, command, source, vars, want string) {
	if vars == "" {
		vars = "{}"
	}
	class, text := renderSource(t, source, vars)
	switch {
	case command != "render":
		if class != command || !strings.Contains(text, want) {
			t.Errorf("got %s %q, want %s …%s…", class, text, command, want)
		}
	case strings.HasPrefix(want, "raises "):
		if class != Raised.String() {
			t.Errorf("got %s %q, want what Python %s", class, text, want)
		}
	default:
		var plain string
		if err := json.Unmarshal([]byte(want), &plain); err != nil {
			t.Fatal(err)
		}
		if class != "ok" || text != plain {
			t.Errorf("got  %s %q\nwant ok %q", class, text, plain)
		}
	}
}

// renderSource returns "ok" and the text, or the class of the error and its
// message.
func renderSource(t *testing.T, source, vars string) (class, text string) {
	t.Helper()
	template, err := Compile(source, Options{})
	if err != nil {
		return ClassOf(err).String(), err.Error()
	}
	m := Machine{Now: goldenNow}
	var out Rope
	if err := template.Render(&m, goldenVars(t, &m, []byte(vars)), &out); err != nil {
		return ClassOf(err).String(), err.Error()
	}
	return "ok", string(out.AppendText(nil))
}
