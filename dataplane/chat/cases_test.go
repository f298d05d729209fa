package chat

import (
	"bufio"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var casesFile = flag.String("chat.cases", "", "file of cases for TestRenderCases and TestPrepareCases (scripts/chat_fuzz.py, scripts/request_fuzz.py)")

// TestRenderCases renders templates with variables, for comparison with Python
// by scripts/chat_fuzz.py. The cases are lines {"template", "vars"} of a file;
// the results go to FILE.out.
func TestRenderCases(t *testing.T) {
	type renderCase struct {
		Template string
		Vars     json.RawMessage
	}
	m := Machine{Now: goldenNow}
	eachCase(t, func(c renderCase) caseResult {
		m.Reset()
		template, err := Compile(c.Template, Options{})
		if err != nil {
			return failed(err)
		}
		var out Rope
		if err := template.Render(&m, goldenVars(t, &m, c.Vars), &out); err != nil {
			return failed(err)
		}
		return caseResult{Text: string(out.AppendText(nil))}
	})
}

// TestPrepareCases prepares and renders bodies of requests, for comparison with
// the code of engines by scripts/request_fuzz.py: lines {"engine", "endpoint",
// "template", "body"}.
func TestPrepareCases(t *testing.T) {
	type prepareCase struct {
		Engine, Template string
		engineRequest
	}
	made := map[string]*dialects{}
	for _, e := range []Engine{VLLM, SGLang} {
		made[e.String()] = &dialects{e, map[string]*Dialect{}}
	}
	m := Machine{Now: goldenNow}
	eachCase(t, func(c prepareCase) caseResult {
		m.Reset()
		got := preparedText(t, made[c.Engine].of(t, c.Template), &m, c.engineRequest)
		if got.err != nil {
			return failed(got.err)
		}
		if got.level == LevelPrefix {
			return caseResult{Class: "prefix", Text: got.text}
		}
		return caseResult{Text: got.text}
	})
}

type caseResult struct {
	Class string `json:"class"` // of the error, empty if there is text
	Text  string `json:"text"`  // or the error
}

func failed(err error) caseResult { return caseResult{ClassOf(err).String(), err.Error()} }

// eachCase reads the file of cases and writes the results.
func eachCase[C any](t *testing.T, run func(C) caseResult) {
	if *casesFile == "" {
		t.Skip("only with -chat.cases")
	}
	in, err := os.Open(*casesFile)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(*casesFile + ".out")
	if err != nil {
		t.Fatal(err)
	}
	results := json.NewEncoder(out)
	results.SetEscapeHTML(false)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var c C
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		if err := results.Encode(run(c)); err != nil {
			t.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
