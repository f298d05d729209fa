package soak

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// badRequest is a request that the router has to refuse. HOST, ID and FIELDS in
// its text stand for the request's own.
type badRequest struct {
	name   string
	text   string
	status []int
	keeps  bool // it was read to its end: the connection may go on
	later  bool // a well-formed request stands behind it that must not be served
}

// post is a request with a body of known length.
func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nFIELDS\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// smuggled stands behind a bad request.
var smuggled = post(pathChat, `{"model":"soak","messages":[{"role":"user","content":"this must not be seen"}]}`)

// badRequests are the ways in which two parsers could read a request, and others
// that no node may see.
var badRequests = []badRequest{
	{name: "two lengths", text: "POST /v1/chat/completions HTTP/1.1\r\nFIELDS\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}   ", status: []int{400}, later: true},
	{name: "length and chunks", text: "POST /v1/chat/completions HTTP/1.1\r\nFIELDS\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: []int{400}, later: true},
	{name: "chunks that are not last", text: "POST /v1/chat/completions HTTP/1.1\r\nFIELDS\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", status: []int{400}, later: true},
	{name: "unknown coding", text: "POST /v1/chat/completions HTTP/1.1\r\nFIELDS\r\nTransfer-Encoding: gzip\r\n\r\n", status: []int{501}, later: true},
	{name: "chunks in HTTP/1.0", text: "POST /v1/chat/completions HTTP/1.0\r\nFIELDS\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", status: []int{400}, later: true},
	{name: "bad chunk size", text: "POST /v1/chat/completions HTTP/1.1\r\nFIELDS\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", status: []int{400}, later: true},
	{name: "chunk longer than its size", text: "POST /v1/chat/completions HTTP/1.1\r\nFIELDS\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}}\r\n0\r\n\r\n", status: []int{400}, later: true},
	{name: "signed length", text: "POST /v1/chat/completions HTTP/1.1\r\nFIELDS\r\nContent-Length: +5\r\n\r\nhello", status: []int{400}, later: true},
	{name: "bare line feeds", text: "GET /v1/files/f HTTP/1.1\nHost: HOST\nx-soak-request: ID\n\n", status: []int{400}, later: true},
	{name: "folded line", text: "GET /v1/files/f HTTP/1.1\r\nFIELDS\r\nX-A: 1\r\n 2\r\n\r\n", status: []int{400}, later: true},
	{name: "space before a colon", text: "GET /v1/files/f HTTP/1.1\r\nFIELDS\r\nContent-Length : 5\r\n\r\nhello", status: []int{400}, later: true},
	{name: "control character", text: "GET /v1/files/f HTTP/1.1\r\nFIELDS\r\nX-A: a\x00b\r\n\r\n", status: []int{400}, later: true},
	{name: "no host", text: "GET /v1/files/f HTTP/1.1\r\nx-soak-request: ID\r\n\r\n", status: []int{400}},
	{name: "two hosts", text: "GET /v1/files/f HTTP/1.1\r\nFIELDS\r\nHost: other\r\n\r\n", status: []int{400}, later: true},
	{name: "other version", text: "GET /v1/files/f HTTP/2.0\r\nFIELDS\r\n\r\n", status: []int{400, 505}, later: true},
	{name: "no version", text: "GET /v1/files/f\r\nFIELDS\r\n\r\n", status: []int{400}},
	{name: "space in the target", text: "GET /v1/files/f x HTTP/1.1\r\nFIELDS\r\n\r\n", status: []int{400}},
	{name: "tunnel", text: "CONNECT HOST HTTP/1.1\r\nFIELDS\r\n\r\n", status: []int{405}},
	{name: "long head", text: "GET /v1/files/f HTTP/1.1\r\nFIELDS\r\nX-A: " + strings.Repeat("a", maxRouterHead) + "\r\n\r\n", status: []int{431}},
	{name: "many fields", text: "GET /v1/files/f HTTP/1.1\r\nFIELDS\r\n" + strings.Repeat("X-A: a\r\n", 200) + "\r\n", status: []int{431}},
	{name: "long body", text: fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nFIELDS\r\nContent-Length: %d\r\n\r\n", bodyBytes+1), status: []int{413}},
	{name: "unknown expectation", text: "POST /v1/files HTTP/1.1\r\nFIELDS\r\nExpect: tea\r\nContent-Length: 5\r\n\r\n", status: []int{417}},
	{name: "escaped path", text: "GET /v1/%66iles HTTP/1.1\r\nFIELDS\r\n\r\n", status: []int{400}, keeps: true},
	{name: "dot segment", text: "GET /v1/../admin HTTP/1.1\r\nFIELDS\r\n\r\n", status: []int{400}, keeps: true},
	{name: "unknown route", text: "GET /admin HTTP/1.1\r\nFIELDS\r\n\r\n", status: []int{404}, keeps: true},
	{name: "refused route", text: post("/v1/load_lora_adapter", "{}"), status: []int{404}, keeps: true},
	{name: "wrong method", text: "GET /v1/chat/completions HTTP/1.1\r\nFIELDS\r\n\r\n", status: []int{405}, keeps: true},
	{name: "no JSON", text: post(pathChat, `{"model":`), status: []int{400}, keeps: true},
	{name: "a key twice", text: post(pathChat, `{"model":"soak","model":"other"}`), status: []int{400, 404, 503}, keeps: true},
	{name: "unknown model", text: post(pathChat, `{"model":"other"}`), status: []int{404, 503}, keeps: true},
}

// maxRouterHead is the router's limits.head_bytes.
const maxRouterHead = 16 << 10

// refused sends a bad request and reads what the router says of it.
func (c *clientConn) refused(r *request) *outcome {
	text := r.bad.text
	if r.bad.later {
		text += smuggled
	}
	text = strings.NewReplacer("HOST", c.run.address, "FIELDS", "Host: "+c.run.address+"\r\n"+fieldRequest+": "+r.id+"\r\nX-Request-Id: "+r.id, "ID", r.id).Replace(text)
	sent := c.send([][]byte{[]byte(text)}, 0, nil)
	o := &outcome{}
	_ = c.c.SetReadDeadline(time.Now().Add(requestLimit))
	h, err := readHead(c.r)
	if err != nil {
		return c.finish(r, o.fail(err), sent)
	}
	o.got = true
	if err := o.readStatus(h, r); err != nil || o.ofNode {
		return c.finish(r, o.fail(framing("%q is no refusal: %v", h.line, err)), sent)
	}
	kind, length, err := bodyOf(h, bodyUntilClose)
	if err != nil {
		return c.finish(r, o.fail(err), sent)
	}
	o = o.readOwn(r, h, &body{r: c.r, kind: kind, left: length}, false) // its id may not have been read
	o.keeps = !h.closes()
	switch {
	case !slices.Contains(r.bad.status, o.status):
		o.fail(framing("status %d, want one of %d", o.status, r.bad.status))
	case o.keeps && !r.bad.keeps:
		o.fail(framing("the connection goes on after what two parsers could read in two ways"))
	}
	return c.finish(r, o, sent)
}
