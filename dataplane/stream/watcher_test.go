package stream

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// watch feeds a body in pieces of the given lengths, the rest at once.
func watch(body string, pieces ...int) *Watcher {
	w := &Watcher{}
	w.Reset()
	for _, n := range pieces {
		w.Feed([]byte(body[:n]))
		body = body[n:]
	}
	if len(body) > 0 {
		w.Feed([]byte(body))
	}
	return w
}

// seen is what a Watcher tells.
type seen struct {
	Events                    int
	Failed, FailedFirst, Done bool
	Cached, Prompt, Completed int64
}

func (w *Watcher) seen() seen {
	return seen{w.Events, w.Failed, w.FailedFirst, w.Done, w.CachedTokens, w.PromptTokens, w.CompletionTokens}
}

func TestWatcherTable(t *testing.T) {
	const event = "data: {\"id\":1}\n\n"
	const failure = "data: {\"error\": {\"code\": 500}}\n\n"
	none := seen{Cached: -1, Prompt: -1, Completed: -1}
	with := func(change func(*seen)) seen { s := none; change(&s); return s }
	events := func(n int) seen { return with(func(s *seen) { s.Events = n }) }
	failed := func(n int, first bool) seen {
		return with(func(s *seen) { s.Events, s.Failed, s.FailedFirst = n, true, first })
	}
	for _, c := range []struct {
		name, body string
		want       seen
	}{
		{"nothing", "", none},
		{"LF", event + event, events(2)},
		{"CRLF", strings.ReplaceAll(event+event, "\n", "\r\n"), events(2)},
		{"CR", strings.ReplaceAll(event+event, "\n", "\r"), events(2)},
		{"mixed ends", "data: 1\r\n\ndata: 2\r\rdata: 3\n\r\n", events(3)},
		{"not ended", "data: 1\n", none},
		{"comments", ": ping\n\n: ping - 2026\r\n\r\n" + event, events(1)},
		{"an event without data", "event: ping\n\nid: 5\n\n", none},
		{"taken, and then content", "event: response.created\ndata: {}\n\nevent: response.in_progress\ndata: {}\n\nevent: response.output_text.delta\ndata: {}\n\n", events(1)},
		{"a message's start", "event: message_start\ndata: {}\n\nevent: ping\ndata: {}\n\nevent: content_block_delta\ndata: {}\n\n", events(1)},
		{"the name behind", "data: {}\nevent:ping\n\ndata: {}\n\n", events(1)},
		{"nearly such a name", "event: response.created2\ndata: {}\n\n", events(1)},
		{"many data lines", "data: 1\ndata: 2\ndata:3\n\n", events(1)},
		{"empty lines", "\n\n\r\n\r\r" + event, events(1)},
		{"error first", failure, failed(1, true)},
		{"error unended", "data: {\"error\": {}}\n", failed(0, true)},
		{"error behind a comment", ": ping\n\n" + failure, failed(1, true)},
		{"error later", event + failure + "data: [DONE]\n\n", with(func(s *seen) { s.Events, s.Failed, s.Done = 3, true, true })},
		{"error null", "data: {\"error\": null, \"id\": 1}\n\n", events(1)},
		{"error null, no spaces", "data:{\"error\":null}\n\n", events(1)},
		{"error with spaces", "data:  { \t\"error\" : {}}\n\n", failed(1, true)},
		{"error not the first key", "data: {\"id\":1,\"error\":\"in the text\"}\n\n", events(1)},
		{"error in a text", "data: {\"text\":\"{\\\"error\\\"\"}\n\n", events(1)},
		{"Anthropic error", "event: error\ndata: {\"type\":\"error\",\"error\":{}}\n\n", failed(1, true)},
		{"Anthropic error without a space", "event:error\ndata: {\"type\":\"error\"}\n\n", failed(1, true)},
		{"Anthropic error later", event + "event: error\ndata: {\"type\":\"error\"}\n\n", failed(2, false)},
		{"another event's name", "event: error_budget\ndata: {}\n\n", events(1)},
		{"done", "data: [DONE]\n\n", with(func(s *seen) { s.Events, s.Done = 1, true })},
		{"done with CRLF", "data: [DONE]\r\n\r\n", with(func(s *seen) { s.Events, s.Done = 1, true })},
		{"a long line", "data: " + strings.Repeat("x", 1<<16) + "\n\n", events(1)},
		{
			"usage", "data: {\"usage\":{\"prompt_tokens\":17,\"completion_tokens\":12,\"prompt_tokens_details\":{\"cached_tokens\": 16}}}\n\n",
			seen{Events: 1, Cached: 16, Prompt: 17, Completed: 12},
		},
		{
			"usage grows", "data: {\"usage\":{\"completion_tokens\":1}}\n\ndata: {\"usage\":{\"completion_tokens\":22}}\n\n",
			seen{Events: 2, Cached: -1, Prompt: -1, Completed: 22},
		},
		{"usage null", "data: {\"usage\":{\"prompt_tokens\":3,\"cached_tokens\":null}}\n\n", seen{Events: 1, Cached: -1, Prompt: 3, Completed: -1}},
		{"usage null after a number", "data: {\"prompt_tokens\":3}\n\ndata: {\"prompt_tokens\":null}\n\n", seen{Events: 2, Cached: -1, Prompt: 3, Completed: -1}},
		{"usage in a text", "data: {\"text\":\"\\\"prompt_tokens\\\": 5\"}\n\n", events(1)},
	} {
		if got := watch(c.body).seen(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		checkSplits(t, c.name, c.body)
	}
}

// checkSplits feeds a body cut at every place, and a byte at a time: what is
// seen must not depend on how the bytes came.
func checkSplits(t *testing.T, name, body string) {
	t.Helper()
	want := watch(body).seen()
	step := 1 + len(body)/4096
	for at := 0; at <= len(body); at += step {
		if got := watch(body, at).seen(); got != want {
			t.Errorf("%s cut at byte %d: %+v, want %+v", name, at, got, want)
			return
		}
	}
	ones := make([]int, min(len(body), 1<<15))
	for i := range ones {
		ones[i] = 1
	}
	if got := watch(body, ones...).seen(); got != want {
		t.Errorf("%s byte by byte: %+v, want %+v", name, got, want)
	}
}

func TestWatcherLargeNumbers(t *testing.T) {
	for _, digits := range []int{17, 18, 19, 20, 40} {
		w := watch("{\"prompt_tokens\":" + strings.Repeat("9", digits) + "}")
		if w.PromptTokens < 0 {
			t.Errorf("a count of %d digits became %d", digits, w.PromptTokens)
		}
	}
}

// excerpts are short streams taken down from vLLM, without their heads.
func TestWatcherExcerpts(t *testing.T) {
	for name, want := range map[string]seen{
		"chat.sse":     {Events: 4, Done: true, Cached: 0, Prompt: 17, Completed: 12},
		"killed.sse":   {Events: 3, Failed: true, Done: true, Cached: -1, Prompt: -1, Completed: -1},
		"messages.sse": {Events: 3, Cached: -1, Prompt: -1, Completed: -1},
	} {
		body, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if got := watch(string(body)).seen(); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		checkSplits(t, name, string(body))
	}
}

// TestWatcherCaptures feeds every captured stream there is, cut at every place.
func TestWatcherCaptures(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "..", "shared", "data", "http", "sse_*.raw"))
	if len(files) == 0 {
		t.Skip("no captured streams beside the repository (../shared/data/http/sse_*.raw)")
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		body := captured(t, raw)
		w := watch(body)
		if w.Events == 0 || w.Failed != strings.Contains(file, "killed") {
			t.Errorf("%s: %+v", filepath.Base(file), w.seen())
		}
		checkSplits(t, filepath.Base(file), body)
	}
}

// captured returns the body of a captured answer. Some captures announce
// chunks but hold the plain body, as curl decodes it.
func captured(t *testing.T, raw []byte) string {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err == nil {
		if body, err := io.ReadAll(resp.Body); err == nil {
			return string(body)
		}
	}
	_, body, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	if !ok {
		t.Fatal("a capture without a head")
	}
	return string(body)
}

func TestWatcherAllocs(t *testing.T) {
	body := []byte(strings.Repeat("data: {\"id\":1,\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\n", 20))
	w := &Watcher{}
	if n := testing.AllocsPerRun(100, func() {
		w.Reset()
		w.Feed(body[:333])
		w.Feed(body[333:])
		w.Usage(body)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkWatcherEvent(b *testing.B) {
	event := []byte("data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n")
	w := &Watcher{}
	w.Reset()
	b.SetBytes(int64(len(event)))
	for b.Loop() {
		w.Feed(event)
	}
}
