package dataplane_test

import (
	"errors"
	"strings"
	"testing"
)

// TestStrictReading checks what the conformance cases are judged by.
func TestStrictReading(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	chunks := func(s string) string { return "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + s }
	for _, c := range []struct {
		text     string
		requests int
		err      string // "" none, "more", or a part of a fault
		last     string // body of the last request
	}{
		{"", 0, "", ""},
		{get + get, 2, "", ""},
		{"\r\n\r\n" + get, 1, "", ""},
		{strings.Repeat("\r\n", 5) + get, 0, "bad request line", ""},
		{get + "GET", 1, "more", ""},
		{get[:len(get)-1], 0, "more", ""},
		{"GET / HTTP/1.1\n", 0, "bare LF", ""},
		{"GET / HTTP/1.1\rX", 0, "bare CR", ""},
		{"GET  / HTTP/1.1\r\n", 0, "bad request line", ""},
		{"GET / HTTP/1.10\r\n", 0, "bad request line", ""},
		{"GET / HTTP/1.1\r\n\r\n", 0, "not one Host", ""},
		{"GET /# HTTP/1.1\r\nHost: a\r\n\r\n", 0, "bad target", ""},
		{"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 0, "bad Host", ""},
		{"GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", 0, "bad field line", ""},
		{"GET / HTTP/1.0\r\n\r\nrest", 1, "", ""},
		{"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\nrest", 1, "", ""},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + get, 2, "", ""},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab", 0, "more", ""},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc", 0, "bad Content-Length", ""},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 0, "bad Content-Length", ""},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 0, "bad framing", ""},
		{"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, "bad framing", ""},
		{chunks("3\r\nabc\r\n0\r\n\r\n"), 1, "", "abc"},
		{chunks("1;a=b; c = \"d\\\";\" ;e\r\na\r\n1\r\nb\r\n00\r\nX: y\r\n\r\n"), 1, "", "ab"},
		{chunks("3\r\nabc\r\n0\r\n"), 0, "more", ""},
		{chunks("3\r\nab"), 0, "more", ""},
		{chunks("3\r\nabcd"), 0, "no CRLF", ""},
		{chunks("3 \r\nabc\r\n0\r\n\r\n"), 0, "bad chunk size", ""},
		{chunks("3;\r\nabc\r\n0\r\n\r\n"), 0, "bad chunk extension", ""},
		{chunks("3;a=\r\nabc\r\n0\r\n\r\n"), 0, "bad chunk extension", ""},
		{chunks("3;a \r\nabc\r\n0\r\n\r\n"), 0, "bad chunk extension", ""},
		{chunks("3;a=\"b\r\nabc\r\n0\r\n\r\n"), 0, "bad chunk extension", ""},
		{chunks("\r\n"), 0, "bad chunk size", ""},
		{chunks("0\r\nX\r\n\r\n"), 0, "bad field line", ""},
	} {
		p := readPipeline(c.text)
		got := ""
		switch {
		case errors.Is(p.err, errMore):
			got = "more"
		case p.err != nil:
			got = p.err.Error()
		}
		if len(p.requests) != c.requests || !strings.Contains(got, c.err) || (got == "") != (c.err == "") {
			t.Errorf("%q: %d requests, then %q, want %d, %q", c.text, len(p.requests), got, c.requests, c.err)
			continue
		}
		if c.last != "" && p.requests[len(p.requests)-1].body != c.last {
			t.Errorf("%q: body %q, want %q", c.text, p.requests[len(p.requests)-1].body, c.last)
		}
	}
}

// TestConformanceCases: what is wrong with a file of cases is said with its place.
func TestConformanceCases(t *testing.T) {
	for text, want := range map[string]string{
		"hello\n":                              "a.txt:1: \"hello\" stands before the first case",
		"set x=y\n":                            "a.txt:1: ",
		"== a\nGET\n":                          "a.txt:1: the case has no line of four dashes",
		"# b\n\n== a\n-- nobody\n----\nopen":   "a.txt:3: \"-- nobody\": unknown section",
		"== a\n-- node slow\n----\nopen":       "a.txt:1: \"-- node slow\": unknown word",
		"== a\n\\q\n----\nopen":                "a.txt:1: \"\\\\q\": invalid syntax",
		"== a\n\n----\n200 echo":               "a.txt:1: how the connection is left is not said",
		"== a\n\n----\n200 echo open\nnode up": "a.txt:1: node is \"up\"",
	} {
		if _, err := parseConformFile("a.txt", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	f, err := parseConformFile("a.txt", "# b\nset head_ms=5\n== a\nA {b*3}\n\\x00\\\\\n\\\n-- answered\n{}\\\n-- node close twice\nX\n----\n200 to HEAD {y*2}\n404\ncut\nsaw X 200\nor slowly:\n502 open\n")
	if err != nil {
		t.Fatal(err)
	}
	c := f.cases[0]
	if c.steps[0].send != "A bbb\r\n\x00\\\r\n" || c.steps[1] != (clientStep{"answered", "{}"}) || f.settings["head_ms"] != 5 ||
		c.plan.replies[0] != (nodeReply{text: "X\r\n", close: true, times: 2}) || !c.slowly || c.other.end != "open" ||
		strings.Join(c.want.answers, ",") != "HEAD," || c.want.end != "cut" || c.want.text != "200 to HEAD yy 404 cut saw X 200" {
		t.Errorf("read as %+v, other %+v", c, c.other)
	}
}
