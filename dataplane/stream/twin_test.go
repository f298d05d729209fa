package stream

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// dumb reads a whole stream line by line, and the figures by expressions.
func dumb(body string) seen {
	s := seen{Cached: -1, Prompt: -1, Completed: -1}
	lines := strings.Split(strings.ReplaceAll(strings.ReplaceAll(body, "\r\n", "\n"), "\r", "\n"), "\n")
	hasData, empty := false, false
	fail := func() {
		s.FailedFirst = s.FailedFirst || !s.Failed && s.Events == 0
		s.Failed = true
	}
	for _, line := range lines[:len(lines)-1] { // what follows the last end is no line yet
		cut := line[:min(len(line), maxLine)]
		if value, ok := strings.CutPrefix(line, "event:"); ok && strings.TrimPrefix(value, " ") == "error" {
			fail()
		}
		if value, ok := strings.CutPrefix(cut, "event:"); ok && len(line) < maxLine {
			value = strings.TrimPrefix(value, " ")
			empty = empty || value == "ping" || value == "message_start" || regexp.MustCompile(`^response\.(created|queued|in_progress)$`).MatchString(value)
		}
		if value, ok := strings.CutPrefix(cut, "data:"); ok {
			hasData = true
			value = strings.TrimLeft(value, " ")
			s.Done = s.Done || strings.HasPrefix(value, "[DONE]")
			if value, ok = strings.CutPrefix(value, "{"); ok {
				value, ok = strings.CutPrefix(strings.TrimLeft(value, " \t"), `"error"`)
				if ok && !strings.HasPrefix(strings.TrimLeft(value, " \t:"), "null") {
					fail()
				}
			}
		}
		if line == "" {
			if hasData && !empty {
				s.Events++
			}
			hasData, empty = false, false
		}
	}
	s.Cached, s.Prompt, s.Completed = last(body, "cached"), last(body, "prompt"), last(body, "completion")
	return s
}

// last is the last figure of that name that something follows. The spaces it
// takes are bounded by what a Watcher remembers.
func last(body, name string) int64 {
	n := int64(-1)
	for _, m := range regexp.MustCompile(`"`+name+`_tokens"[ :]{0,4}([0-9]{1,18})[^0-9]`).FindAllStringSubmatch(body, -1) {
		n, _ = strconv.ParseInt(m[1], 10, 64)
	}
	return n
}

// strange reports whether figures in body are written as no engine does:
// there a Watcher may give up where the expression goes on, or the reverse.
var strange = regexp.MustCompile(`_tokens"([ :]{5}|[ :]{0,4}[0-9]{19}|[ :]*$|[ :]*[0-9]+$)`)

// FuzzWatcher feeds any bytes in pieces of any length.
func FuzzWatcher(f *testing.F) {
	for _, body := range []string{
		"data: {\"error\": {}}\n\ndata: [DONE]\n\n",
		"event: error\r\ndata: {\"error\": null}\r\n\r\n: c\r\rdata\n\n",
		"data: {\"usage\":{\"prompt_tokens\":17,\"completion_tokens\":12,\"prompt_tokens_details\":{\"cached_tokens\": 16}}}\n\n",
		"\"prompt_tokens\":3,\"prompt_tokens\":null,\"prompt_tokens\": 12345678901234567,",
	} {
		f.Add([]byte(body), []byte{1, 7, 3})
	}
	f.Fuzz(func(t *testing.T, body, cuts []byte) {
		if strange.Match(body) {
			return
		}
		w := &Watcher{}
		w.Reset()
		for rest := body; len(rest) > 0; {
			n := len(rest)
			if len(cuts) > 0 {
				n, cuts = min(int(cuts[0])%64, n), cuts[1:]
			}
			w.Feed(rest[:n])
			rest = rest[n:]
		}
		if got, want := w.seen(), dumb(string(body)); got != want {
			t.Fatalf("%q: %+v, want %+v", body, got, want)
		}
	})
}
