package soak

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"warmpath/scenariotest"
)

// TestJudge runs testdata/judge.txt.
func TestJudge(t *testing.T) {
	scenariotest.Run(t, "testdata/judge.txt", func(t *testing.T, c scenariotest.Case) string {
		got, err := parseFacts(t, c.Lines()).judge()
		if err != nil {
			return "violated: " + err.Error()
		}
		return got
	})
}

func parseFacts(t *testing.T, lines []string) *facts {
	t.Helper()
	f := &facts{plan: &plan{method: "GET", path: "/v1/models"}}
	for _, line := range lines {
		words := strings.Fields(line)
		switch words[0] {
		case "request":
			for _, w := range words[1:] {
				parseWord(t, f.plan, w)
			}
		case "try":
			f.tries = append(f.tries, parseTry(t, words[1:]))
		case "stopped":
			f.stopped = append(f.stopped, number(t, words[1]))
		case "client":
			f.outcome = parseOutcome(t, words[1:])
		default:
			t.Fatalf("line %q", line)
		}
	}
	return f
}

func parseWord(t *testing.T, p *plan, w string) {
	t.Helper()
	switch name, value, _ := strings.Cut(w, "="); name {
	case "local":
		p.kind = kindLocal
	case "refused":
		p.kind = kindRefused
	case "stalled":
		p.kind = kindStalled
	case "head":
		p.method = "HEAD"
	case "halfway":
		p.leave = leaveHalfway
	case "body":
		p.textLen = number(t, value)
	default:
		t.Fatalf("word %q", w)
	}
}

func parseTry(t *testing.T, words []string) try {
	t.Helper()
	var y try
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch {
		case name == "node":
			y.node = number(t, value)
		case name == "begun":
			y.begun = true
		case name == "whole":
			y.whole = true
		case name == "broken":
			y.broken = "broken"
		case slices.Contains(faultNames[:], name):
			y.fault.kind = faultKind(slices.Index(faultNames[:], name))
		default:
			t.Fatalf("word %q", w)
		}
	}
	return y
}

func parseOutcome(t *testing.T, words []string) *outcome {
	t.Helper()
	o := &outcome{end: map[string]ending{"whole": endWhole, "cut": endCut, "left": endLeft, "never": endNever}[words[0]]}
	if o.end == endCut {
		o.err = errors.New("reset")
	}
	for _, w := range words[1:] {
		switch name, value, _ := strings.Cut(w, "="); name {
		case "node":
			o.ofNode, o.node = true, number(t, value)
		case "try":
			o.try = number(t, value)
		case "status":
			o.got, o.status = true, number(t, value)
		case "code":
			o.code = value
		case "tried":
			o.says = "node failed; tried: " + strings.ReplaceAll(value, ",", ", ")
		default:
			t.Fatalf("word %q", w)
		}
	}
	return o
}

func number(t *testing.T, digits string) int {
	t.Helper()
	n, err := strconv.Atoi(digits)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBegin says which tries a node may see.
func TestBegin(t *testing.T) {
	n := &node{}
	for name, c := range map[string]struct {
		request *request
		want    string
	}{
		"the first":                {&request{}, ""},
		"after a dead node":        {&request{tries: []*try{{broken: "killed"}}}, ""},
		"after a fault":            {&request{tries: []*try{{fault: fault{kind: answer500}, whole: true}}}, ""},
		"after nothing":            {&request{tries: []*try{{}}}, "nothing was wrong"},
		"after an answer":          {&request{tries: []*try{{whole: true, begun: true}}}, "nothing was wrong"},
		"too many":                 {&request{tries: slices.Repeat([]*try{{broken: "killed"}}, mostTries)}, "more than"},
		"for no node":              {&request{plan: plan{kind: kindRefused}}, "not for nodes"},
		"of an ended connection":   {&request{lost: true}, "ended before its turn"},
		"after a surplus of bytes": {&request{tries: []*try{{fault: fault{kind: surplus}, whole: true}}}, "nothing was wrong"},
	} {
		_, _, err := c.request.begin(n)
		if c.want == "" && err != nil || c.want != "" && !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
