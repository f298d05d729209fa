package soak

import (
	"fmt"
	"net/http"
	"strconv"
)

// Fields of requests and answers that only these tests know. Requests carry the
// id in fieldRequest whether or not they bring an X-Request-Id; answers say in
// fieldAnswer which node and try they are of.
const (
	fieldRequest = "x-soak-request"
	fieldAnswer  = "x-soak-answer"
	fieldNamed   = "x-soak-named" // the X-Request-Id that the node was given
	fieldKept    = "x-soak-kept"  // passed on as it is
	fieldDropped = "x-soak-hop"   // named by Connection: not passed on
)

// Several requests share the start of their prompts.
const (
	systems        = 16
	systemMaxBytes = 2 << 10
)

// body is the content of the request's body.
func (p *plan) body() []byte {
	if p.textLen == 0 {
		return nil
	}
	if !p.json {
		return appendText(make([]byte, 0, p.textLen), p.label, p.textLen)
	}
	b := make([]byte, 0, p.textLen+systemMaxBytes+256)
	model := `"model":"` + modelName + `"`
	b = append(b, '{')
	if p.seq%4 != 0 || p.large() { // what is decided early has to name its model before
		b = append(append(b, model...), ',')
		model = ""
	}
	if p.stream {
		b = append(b, `"stream":true,"max_tokens":16,`...)
	}
	switch p.path {
	case pathChat:
		system := p.worker % systems
		b = append(b, `"messages":[{"role":"system","content":"`...)
		b = appendText(b, fmt.Sprint("system", system), system*systemMaxBytes/systems)
		b = append(b, `"},{"role":"user","content":"`...)
		b = appendText(b, p.label, p.textLen)
		b = append(b, `"}]`...)
	case pathCompletion:
		b = append(b, `"prompt":"`...)
		b = append(appendText(b, p.label, p.textLen), '"')
	default:
		b = append(b, `"input":"`...)
		b = append(appendText(b, p.label, p.textLen), '"')
	}
	if model != "" {
		b = append(append(b, ','), model...)
	}
	return append(b, '}')
}

// requestHead is the head that the client sends.
func (p *plan) requestHead(host string, length int) []byte {
	target := p.path
	if p.absolute {
		target = "http://" + host + target
	}
	b := fmt.Appendf(nil, "%s %s HTTP/1.%d\r\nHost: %s\r\n%s: %s\r\n", p.method, target, p.minor, host, fieldRequest, p.id)
	if p.named {
		b = fmt.Appendf(b, "X-Request-Id: %s\r\n", p.id)
	}
	b = fmt.Appendf(b, "Connection: %s\r\n%s: 1\r\n%s: %s\r\n", p.connection(), fieldDropped, fieldKept, p.label)
	if p.textLen > 0 {
		kind := "application/json"
		if !p.json {
			kind = "application/octet-stream"
		}
		b = fmt.Appendf(b, "Content-Type: %s\r\n", kind)
		if p.chunked {
			b = append(b, "Transfer-Encoding: chunked\r\n"...)
		} else {
			b = fmt.Appendf(b, "Content-Length: %d\r\n", length)
		}
	}
	if p.expect {
		b = append(b, "Expect: 100-continue\r\n"...)
	}
	return append(b, "\r\n"...)
}

func (p *plan) connection() string {
	switch {
	case p.closes && p.minor > 0:
		return "close, " + fieldDropped
	case !p.closes && p.minor == 0:
		return "keep-alive, " + fieldDropped
	}
	return fieldDropped
}

// requestBody is the body in the form in which it goes out.
func (p *plan) requestBody(content []byte) []byte {
	if !p.chunked || len(content) == 0 {
		return content
	}
	d := roll(p.seed, uint64(p.worker), uint64(p.seq), 5)
	trailers := ""
	if p.trailers {
		trailers = "X-Soak-Trailer: dropped\r\n"
	}
	extension := ""
	if d.chance(0.2) {
		extension = ";soak=1"
	}
	return appendChunked(nil, content, d.cuts(len(content), d.spread(1, 16)), extension, trailers)
}

// cuts returns places within n bytes, ascending.
func (d dice) cuts(n, count int) []int {
	places := make([]int, 0, count)
	at := 0
	for range count - 1 {
		if n-at < 2 {
			break
		}
		at += d.between(1, max(1, 2*(n-at)/count))
		if at >= n {
			break
		}
		places = append(places, at)
	}
	return places
}

// answerOwner owns the text of the answer that a node gives at a try.
func (p *plan) answerOwner(node, try int) string {
	return p.label + "/n" + strconv.Itoa(node) + "t" + strconv.Itoa(try)
}

// content is the body of the answer that a node gives at a try. For streams ends
// has where each event ends.
func (p *plan) content(node, try int, k faultKind) (b []byte, ends []int) {
	a, status := &p.answer, k.status(p.answer.status)
	if p.noContent(status) {
		return nil, nil
	}
	owner := p.answerOwner(node, try)
	if !p.stream || status != http.StatusOK {
		b = fmt.Appendf(make([]byte, 0, a.textLen+256), `{"id":%q,"object":"chat.completion","owner":%q,"choices":[{"index":0,"message":{"role":"assistant","content":"`, p.id, owner)
		b = appendText(b, owner, a.textLen)
		return append(b, `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}`...), nil
	}
	if a.comment {
		b = append(b, ": ping "+owner+"\n\n"...)
	}
	event := func(text string) {
		b = append(append(append(b, "data: "...), text...), "\n\n"...)
		ends = append(ends, len(b))
	}
	fails := fmt.Sprintf(`{"error":{"message":"%s failed","type":"InternalServerError","code":500}}`, owner)
	if k == errorFirst {
		event(fails)
	}
	for i := range a.events {
		b = fmt.Appendf(b, `data: {"id":%q,"owner":%q,"choices":[{"index":%d,"delta":{"content":"`, p.id, owner, i)
		b = appendText(b, owner+"e"+strconv.Itoa(i), a.textLen)
		b = append(b, `"}}]}`+"\n\n"...)
		ends = append(ends, len(b))
	}
	if k == errorWithin {
		event(fails)
	}
	event("[DONE]")
	return b, ends
}
