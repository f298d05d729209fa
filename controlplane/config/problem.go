package config

import (
	"strconv"
	"strings"
)

// Problem is one thing wrong with a configuration.
type Problem struct {
	File   string // or "environment", "flags"
	Line   int    // from 1; 0 = not in a file
	Column int    // from 1
	Key    string // full path, such as nodes[2].url; "" = the file as a whole
	Value  string // as written, shortened; secrets are hidden
	What   string // what is wrong
	Remedy string // what to do
}

// place is where the problem is.
func (p Problem) place() place { return place{p.File, p.Line, p.Column} }

// Error names place, key, value, what is wrong and the remedy on one line.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		b.WriteString(":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column))
	}
	b.WriteString(": ")
	if p.Key != "" {
		b.WriteString(p.Key)
		if p.Value != "" {
			b.WriteString(" = " + p.Value)
		}
		b.WriteString(": ")
	}
	b.WriteString(p.What)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
}

// Errors are all problems of a configuration, in the order of the file.
type Errors []Problem

// Error prints one problem a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}
