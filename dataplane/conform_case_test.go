package dataplane_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A file of cases: comments (#) and settings ("set name=number") at its head,
// then cases:
//
//	== what it shows (section of the RFC)
//	what the client sends
//	-- answered           and what it sends after one answer more has come
//	-- begun              or when the node has seen the head of one request more
//	-- seen               or a whole request more
//	-- end                it ends its sending direction
//	-- node [words]       the node's answer to its first, second, … request
//	-- hello              what a node sends on connections before it is asked
//	-- unasked            what it sends when all is answered
//	----
//	what comes of it
//
// Every line is sent with CRLF behind it unless it ends in a backslash; escapes
// are Go's; {text*n} is text n times, here and there. Words behind "node": never (and then it
// is silent), close, reset, early (before it has read the body, of which it
// reads no more), twice.
//
// What comes of it is a list of answers, how the client's connection is left,
// and the requests that the node saw: none if none is named.
//
//	400 bad_host           the router's own, with the code of its body
//	200 echo               the node's echo of that client's own request
//	200 OK …               anything else, with all fields and the body, but for
//	                       what the router always adds
//	open                   another request on the connection is answered
//	closed, cut, waits     it ended, cleanly or with a reset; more is awaited
//	part of GET /v1/x      the node saw a request that did not come to its end
//	saw GET /v1/x …        with all fields and the body, but for those that the
//	                       router always adds, which are looked at as well
//	node kept, node closed the connection of the last request
//
// "or:" begins what may come of it instead, "or slowly:" what may come of it
// when all is sent byte by byte: then more of an answer has gone on when
// something is found to be wrong with it. Which of the two it is shows in the
// status of the first answer.
type conformCase struct {
	name, at string // and where it stands
	steps    []clientStep
	plan     nodePlan
	unasked  string
	want     caseOutcome
	other    *caseOutcome // allowed too
	slowly   bool         // but only when all is sent byte by byte
}

// clientStep is what a client sends, after what its section says.
type clientStep struct{ after, send string }

// caseOutcome is what is expected, and what of it says how to read answers.
type caseOutcome struct {
	text    string   // words, with one space between them
	answers []string // method that each answers, as far as it matters: HEAD or ""
	end     string
	node    string // kept, closed or ""
}

type conformFile struct {
	name     string
	settings map[string]int
	cases    []*conformCase
}

func readConformFiles(t *testing.T) (files []*conformFile) {
	names, err := filepath.Glob("testdata/conform/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatal("no conformance files", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parseConformFile(filepath.Base(name), string(text))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

func parseConformFile(name, text string) (*conformFile, error) {
	f := &conformFile{name: strings.TrimSuffix(name, ".txt"), settings: map[string]int{}}
	number := 0
	var block []string
	at := ""
	flush := func() error {
		if at == "" {
			return nil
		}
		c, err := parseConformCase(at, block)
		f.cases = append(f.cases, c)
		return err
	}
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		number++
		switch {
		case strings.HasPrefix(l, "== "):
			if err := flush(); err != nil {
				return nil, err
			}
			at, block = fmt.Sprintf("%s:%d", name, number), []string{l[3:]}
		case at != "":
			block = append(block, l)
		case strings.HasPrefix(l, "set "):
			key, value, _ := strings.Cut(l[4:], "=")
			n, err := strconv.Atoi(value)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, number, err)
			}
			f.settings[key] = n
		case l != "" && l[0] != '#':
			return nil, fmt.Errorf("%s:%d: %q stands before the first case", name, number, l)
		}
	}
	return f, flush()
}

func parseConformCase(at string, lines []string) (*conformCase, error) {
	c := &conformCase{name: lines[0], at: at, steps: []clientStep{{}}}
	into := &c.steps[0].send
	for i, l := range lines[1:] {
		if l == "----" {
			return c, c.parseOutcome(lines[i+2:])
		}
		if words, ok := strings.CutPrefix(l, "-- "); ok {
			var err error
			if into, err = c.section(strings.Fields(words)); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", at, l, err)
			}
			continue
		}
		text, err := unescapeLine(l)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", at, l, err)
		}
		*into += text
	}
	return nil, fmt.Errorf("%s: the case has no line of four dashes", at)
}

// section begins another part of a case and returns where its bytes go.
func (c *conformCase) section(words []string) (into *string, err error) {
	switch words[0] {
	case "answered", "begun", "seen", "end":
		c.steps = append(c.steps, clientStep{after: words[0]})
		return &c.steps[len(c.steps)-1].send, nil
	case "hello":
		return &c.plan.hello, nil
	case "unasked":
		return &c.unasked, nil
	case "node":
	default:
		return nil, fmt.Errorf("unknown section")
	}
	r := nodeReply{}
	for _, w := range words[1:] {
		switch w {
		case "never":
			r.never = true
		case "close":
			r.close = true
		case "reset":
			r.reset = true
		case "early":
			r.early = true
		case "twice":
			r.times = 2
		default:
			return nil, fmt.Errorf("unknown word %q", w)
		}
	}
	c.plan.replies = append(c.plan.replies, r)
	return &c.plan.replies[len(c.plan.replies)-1].text, nil
}

func (c *conformCase) parseOutcome(lines []string) (err error) {
	var kept []string
	for _, l := range lines {
		if !strings.HasPrefix(l, "#") {
			kept = append(kept, l)
		}
	}
	text, other, differs := strings.Cut(repeat(strings.Join(kept, "\n")), "\nor")
	if c.want, err = parseOutcome(text); err == nil && differs {
		c.other = &caseOutcome{}
		condition, other, _ := strings.Cut(other, ":")
		c.slowly = condition == " slowly"
		*c.other, err = parseOutcome(other)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", c.at, err)
	}
	return err
}

// parseOutcome takes out what says how to read: the answers are the words of
// three digits, on lines that are not indented.
func parseOutcome(text string) (o caseOutcome, err error) {
	before, node, ok := strings.Cut(text, "\nnode ")
	if ok {
		o.node = strings.TrimSpace(node)
	}
	o.text = oneSpaced(before)
	for _, l := range strings.Split(before, "\n") {
		w := strings.Fields(l)
		if len(w) == 0 || l[0] == ' ' || w[0] == "saw" || w[0] == "part" {
			continue
		}
		for i := range w {
			if _, err := strconv.Atoi(w[i]); err != nil || len(w[i]) != 3 {
				continue
			}
			method := ""
			if len(w) > i+2 && w[i+1] == "to" {
				method = w[i+2]
			}
			o.answers = append(o.answers, method)
		}
		if last := w[len(w)-1]; last == "open" || last == "closed" || last == "cut" || last == "waits" {
			o.end = last
		}
	}
	if o.end == "" {
		err = fmt.Errorf("how the connection is left is not said")
	}
	if o.node != "" && o.node != "kept" && o.node != "closed" {
		err = fmt.Errorf("node is %q, want kept or closed", o.node)
	}
	return o, err
}

func oneSpaced(s string) string { return strings.Join(strings.Fields(s), " ") }

// unescapeLine returns the bytes of a line.
func unescapeLine(l string) (string, error) {
	end := "\r\n"
	if n := len(l) - len(strings.TrimRight(l, `\`)); n%2 == 1 {
		l, end = l[:len(l)-1], ""
	}
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(repeat(l), `"`, `\"`) + `"`)
	return text + end, err
}

// repeat writes {text*n} out.
func repeat(l string) string {
	var out strings.Builder
	for {
		open := strings.IndexByte(l, '{')
		shut := open + 1 + strings.IndexByte(l[open+1:], '}')
		if open < 0 || shut == open {
			return out.String() + l
		}
		out.WriteString(l[:open])
		star := strings.LastIndexByte(l[open:shut], '*')
		n, err := strconv.Atoi(l[open+star+1 : shut])
		if star < 0 || err != nil { // the braces are meant
			out.WriteString(l[open : shut+1])
		} else {
			out.WriteString(strings.Repeat(l[open+1:open+star], n))
		}
		l = l[shut+1:]
	}
}
