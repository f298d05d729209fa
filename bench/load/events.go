package load

import (
	"bytes"
	"errors"

	"warmpath/bench/field"
)

// maxLineBytes bounds one line of an event stream.
const maxLineBytes = 1 << 20

var errLongLine = errors.New("read event stream: a line is longer than 1 MiB")

// lines splits an event stream into lines, whatever pieces it comes in. A line
// ends with LF or CRLF; a lone CR, which the specification of server-sent events
// also allows, no engine sends.
type lines struct{ part []byte }

// next returns the first line of data, without its end, and what follows it.
// ok is false when the line is not complete: then data is kept.
func (l *lines) next(data []byte) (line, rest []byte, ok bool, err error) {
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		if len(l.part)+len(data) > maxLineBytes {
			return nil, nil, false, errLongLine
		}
		l.part = append(l.part, data...)
		return nil, nil, false, nil
	}
	line, rest = data[:end], data[end+1:]
	if len(l.part) > 0 {
		if len(l.part)+len(line) > maxLineBytes {
			return nil, nil, false, errLongLine
		}
		line = append(l.part, line...)
		l.part = line[:0] // stays readable until the next call
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, rest, true, nil
}

func (l *lines) reset() { l.part = l.part[:0] }

// fieldValue is the value of a line of the given field, `data` or `event`; ok
// is false for any other line.
func fieldValue(line []byte, name string) (value []byte, ok bool) {
	if len(line) <= len(name) || string(line[:len(name)]) != name || line[len(name)] != ':' {
		return nil, false
	}
	value = line[len(name)+1:]
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	return value, true
}

// kind is what an event means to the measurement.
type kind uint8

const (
	kindUnnamed kind = iota // its data must tell
	kindOther
	kindContent // the answer went on
	kindDone    // the stream's last event
	kindError   // the engine says that it failed
)

// named says what an event's name means. Streams of the dialects messages and
// responses name all events; those of chat completions name none.
func named(name []byte) kind {
	switch string(name) {
	case "content_block_delta":
		return kindContent
	case "message_stop", "response.completed", "response.incomplete":
		return kindDone
	case "error", "response.failed":
		return kindError
	}
	if bytes.HasPrefix(name, []byte("response.")) && bytes.HasSuffix(name, []byte(".delta")) {
		return kindContent
	}
	return kindOther
}

// Members of events are found by their bytes, without decoding: inside a JSON
// string every quotation mark is escaped, so that `"name"` is no text. Members
// of textMembers hold what a user reads, of chats, reasoning, completions and
// calls of tools.
var (
	textMembers = [][]byte{
		[]byte(`"content"`), []byte(`"text"`), []byte(`"reasoning_content"`), []byte(`"reasoning"`), []byte(`"arguments"`),
	}
	errorMember  = []byte(`"error"`)
	usageMember  = []byte(`"usage"`)
	promptCount  = [][]byte{[]byte(`"prompt_tokens"`), []byte(`"input_tokens"`)}
	answerCount  = [][]byte{[]byte(`"completion_tokens"`), []byte(`"output_tokens"`)}
	cachedCount  = [][]byte{[]byte(`"cached_tokens"`), []byte(`"cache_read_input_tokens"`)}
	doneSentinel = []byte("[DONE]")
)

// errorSearch is within how many bytes an unnamed event says that it is an
// error.
const errorSearch = 48

// unnamed says what the data of an event without a name means.
func unnamed(data []byte) kind {
	if len(data) > 0 && data[0] == '[' {
		if bytes.Equal(data, doneSentinel) {
			return kindDone
		}
		return kindOther
	}
	for _, member := range textMembers {
		if value := valueOf(data, member); len(value) > 1 && value[0] == '"' && value[1] != '"' {
			return kindContent
		}
	}
	if value := valueOf(data[:min(len(data), errorSearch)], errorMember); len(value) > 0 && value[0] != 'n' { // null
		return kindError
	}
	return kindOther
}

// valueOf returns what follows a member's name and colon, nil without the member.
func valueOf(event, member []byte) []byte {
	for {
		at := bytes.Index(event, member)
		if at < 0 {
			return nil
		}
		event = event[at+len(member):]
		i := 0
		for i < len(event) && (event[i] == ' ' || event[i] == '\t') {
			i++
		}
		if i == len(event) || event[i] != ':' {
			continue // a value of that name
		}
		for i++; i < len(event) && (event[i] == ' ' || event[i] == '\t'); i++ {
		}
		return event[i:]
	}
}

// usage are the token counts that an answer states.
type usage struct{ prompt, answer, cached int64 }

// read takes over the counts that text states. Counts of earlier events stay
// where it states none.
func (u *usage) read(text []byte) {
	at := bytes.Index(text, usageMember)
	if at < 0 {
		return
	}
	text = text[at:]
	for _, c := range []struct {
		into  *int64
		names [][]byte
	}{{&u.prompt, promptCount}, {&u.answer, answerCount}, {&u.cached, cachedCount}} {
		for _, name := range c.names {
			if n, ok := number(valueOf(text, name)); ok {
				*c.into = n
				break
			}
		}
	}
}

// number reads the digits that text begins with.
func number(text []byte) (int64, bool) {
	n := 0
	for n < len(text) && n < 18 && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return field.Decimal(text[:n])
}
