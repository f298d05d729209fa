package scan

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// extraStrictness lists the refusals of bodies that encoding/json accepts.
var extraStrictness = []string{
	"where a JSON object must begin",
	"invalid UTF-8 in a string",
	"objects and arrays within each other",
	"messages", "texts and content parts", "token ids",
}

// FuzzScan compares with encoding/json and the twin, and the whole body with
// the body in pieces.
func FuzzScan(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body), uint16(7), uint16(5))
	}
	for _, c := range refusedBodies {
		f.Add([]byte(c.body), uint16(3), uint16(1))
	}
	f.Add(chatBody(mixedText(200)), uint16(90), uint16(33))
	f.Fuzz(func(t *testing.T, body []byte, first, step uint16) {
		s, err := scanAll(body)
		if err == nil {
			if !json.Valid(body) || !utf8.Valid(body) {
				t.Fatalf("body %q accepted", body)
			}
			checkAgainstTwin(t, body, s)
		} else if json.Valid(body) {
			known := false
			for _, what := range extraStrictness {
				known = known || strings.Contains(err.What, what)
			}
			if !known {
				t.Fatalf("body %q refused: %v", body, err)
			}
		}
		if err != nil && (err.Offset < 0 || err.Offset > len(body)) {
			t.Fatalf("body %q: offset of %v", body, err)
		}
		var at []int
		for n := int(first); n < len(body); n += int(step) + 1 {
			at = append(at, n)
		}
		checkSplit(t, body, s, err, at...)
		checkForgetting(t, body, s, err, int(step)+1)
	})
}
