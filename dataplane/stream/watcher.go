package stream

import "bytes"

// maxLine bounds how much of an event's first data line is looked at: enough
// for `data: {"error"` and white space.
const maxLine = 64

// Watcher follows one answer's body. The zero Watcher is ready; Reset readies
// it for the next answer. It takes the body in pieces of any size.
//
// Event streams are parsed as the WHATWG HTML standard, section 9.2.6, says
// (lines end in LF, CRLF or CR; an empty line ends an event; a line that
// starts with a colon is a comment), as far as needed to tell events from
// comments and errors from content.
type Watcher struct {
	// Events counts the events that ended and may carry content: comments, and
	// events that only say that a request was taken, are not included.
	Events int
	// Failed says that an event was an error, as engines send it inside a 200
	// stream when their core died.
	Failed bool
	// FailedFirst says that the first error came before any other event had
	// ended: nothing of worth was sent yet.
	FailedFirst bool
	// Done says that `data: [DONE]` came.
	Done bool
	// CachedTokens is what usage.prompt_tokens_details.cached_tokens said; -1 = nothing.
	CachedTokens int64
	// PromptTokens is what usage.prompt_tokens said; -1 = nothing.
	PromptTokens int64
	// CompletionTokens is what usage.completion_tokens said; -1 = nothing.
	CompletionTokens int64

	line    [maxLine]byte // start of the line that has not ended
	lineLen int
	lineAll int  // its whole length so far
	hasData bool // the event under way has a data line
	empty   bool // … and is one that carries no content, by its name
	sawCR   bool // the last byte was CR: an LF that follows belongs to it
	tail    [tailBytes]byte
	tailLen int
}

// Reset forgets the answer.
func (w *Watcher) Reset() {
	*w = Watcher{CachedTokens: -1, PromptTokens: -1, CompletionTokens: -1}
}

// Feed takes the next bytes of an event stream.
func (w *Watcher) Feed(b []byte) {
	w.Usage(b)
	for len(b) > 0 {
		if w.sawCR {
			w.sawCR = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		end := bytes.IndexByte(b, '\n')
		if cr := bytes.IndexByte(b[:lineEnd(end, len(b))], '\r'); cr >= 0 {
			end = cr
			w.sawCR = true
		}
		if end < 0 {
			w.keep(b)
			return
		}
		w.keep(b[:end])
		w.endLine()
		b = b[end+1:]
	}
}

func lineEnd(lf, n int) int {
	if lf < 0 {
		return n
	}
	return lf
}

func (w *Watcher) keep(b []byte) {
	w.lineAll += len(b)
	w.lineLen += copy(w.line[w.lineLen:], b)
}

func (w *Watcher) endLine() {
	line := w.line[:w.lineLen]
	empty := w.lineAll == 0
	w.lineLen, w.lineAll = 0, 0
	switch {
	case empty:
		if w.hasData && !w.empty {
			w.Events++
		}
		w.hasData, w.empty = false, false
	case bytes.HasPrefix(line, data):
		w.hasData = true
		w.dataLine(bytes.TrimLeft(line[len(data):], " "))
	case bytes.HasPrefix(line, name):
		w.named(bytes.TrimPrefix(line[len(name):], space))
	}
}

// named looks at an event's name: of the routes /v1/messages and /v1/responses
// each has one. Some come before the engine has looked at the prompt, or while it
// does, and say nothing of how long that took.
func (w *Watcher) named(event []byte) {
	switch string(event) {
	case "error":
		w.fail()
	case "response.created", "response.queued", "response.in_progress", "message_start", "ping":
		w.empty = true
	}
}

func (w *Watcher) fail() {
	w.FailedFirst = w.FailedFirst || !w.Failed && w.Events == 0
	w.Failed = true
}

var (
	data     = []byte("data:")
	done     = []byte("[DONE]")
	name     = []byte("event:") // an event named error is Anthropic's form
	space    = []byte(" ")
	null     = []byte("null")
	errorKey = []byte(`"error"`)
)

// dataLine looks at the start of one data line: `{"error"` with any white
// space JSON allows, or `[DONE]`.
func (w *Watcher) dataLine(b []byte) {
	if bytes.HasPrefix(b, done) {
		w.Done = true
		return
	}
	if len(b) == 0 || b[0] != '{' {
		return
	}
	b = bytes.TrimLeft(b[1:], " \t")
	if !bytes.HasPrefix(b, errorKey) {
		return
	}
	b = bytes.TrimLeft(b[len(errorKey):], " \t:")
	// `"error": null` is what some servers put into every event.
	if !bytes.HasPrefix(b, null) {
		w.fail()
	}
}
