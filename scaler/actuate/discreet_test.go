package actuate

import (
	"errors"
	"net/url"
	"strings"
	"testing"
)

func TestPlace(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                      "",
		"https://h:1/p/q":                       "https://h:1/p/q",
		"https://h/p?api_key=hunter2":           "https://h/p",
		"https://h?":                            "https://h",
		"https://hunter2@h/#hunter2":            "https://h/",
		"https://user:hunter2@h:1/p?a=b":        "https://h:1/p",
		"https:user:hunter2@h/p?hunter2":        "https:h/p",
		"h/p?hunter2":                           "h/p",
		"https://user:hunter2@h:port/":          "(no URL)",
		"https://h/%zz?hunter2":                 "(no URL)",
		"https://h/p\n?hunter2":                 "(no URL)",
		"https://[fd00::7]:1/p?q=hunter2#f%20g": "https://[fd00::7]:1/p",
	} {
		if got := Place(raw); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}

func TestDiscreet(t *testing.T) {
	inner := errors.New("connection refused")
	err := Discreet(&url.Error{Op: "Post", URL: "https://user:hunter2@h/p?api_key=hunter2", Err: inner})
	if !errors.Is(err, inner) || err.Error() != `Post "https://h/p": connection refused` {
		t.Errorf("%v", err)
	}
	if Discreet(nil) != nil || Discreet(inner) != inner {
		t.Error("what has no URL is another now")
	}
	_, err = url.Parse("https://user:hunter2@h/" + strings.Repeat("%z", 2)) // wrong on purpose
	if err = Discreet(err); strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "%z") {
		t.Errorf("%v", err)
	}
}
