package soak

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"warmpath/bench/backend"
)

// checkHead compares the head that a node got with the one that the client sent,
// as the router has to change it.
func checkHead(h *head, r *request, address string) error {
	if want := r.method + " " + r.path + " HTTP/1.1"; h.line != want {
		return fmt.Errorf("request line %q, want %q", h.line, want)
	}
	wants := map[string]string{"host": address, fieldRequest: r.id, fieldKept: r.label, "x-forwarded-for": r.source, "x-request-id": ""}
	if r.named {
		wants["x-request-id"] = r.id
	}
	if r.textLen > 0 {
		wants["content-type"], wants["content-length"] = "application/json", ""
		if !r.json {
			wants["content-type"] = "application/octet-stream"
		}
		if r.chunked && h.has("transfer-encoding") && r.large() { // passed on before its length was known
			delete(wants, "content-length")
			wants["transfer-encoding"] = "chunked"
		}
	}
	for name, want := range wants {
		got, err := h.one(name)
		switch {
		case err != nil:
			return err
		case got == "" || want != "" && got != want:
			return fmt.Errorf("%s %q, want %q", name, got, want)
		}
	}
	for _, f := range h.fields {
		if _, ok := wants[f.name]; !ok {
			return fmt.Errorf("a field that was not sent, or not to be sent on: %s: %q", f.name, f.value)
		}
	}
	return nil
}

// serveControl answers what the router asks on its own account, in the shapes of
// vLLM.
func (c *nodeConn) serveControl(h *head) bool {
	kind, length, err := bodyOf(h, bodyNone)
	if err != nil {
		c.broken("read a request of the router", err)
		return false
	}
	if _, err := io.Copy(io.Discard, io.LimitReader(&body{r: c.r, kind: kind, left: length}, bodyBytes)); err != nil {
		c.broken("read a request of the router", err)
		return false
	}
	method, rest, _ := strings.Cut(h.line, " ")
	path, _, _ := strings.Cut(rest, " ")
	status, kindOf, text := "200 OK", "application/json", ""
	switch {
	case method != "GET":
		status, text = "404 Not Found", `{"detail":"Not Found"}`
	case path == "/health":
	case path == "/v1/models":
		text = backend.ModelsBody(modelName, maxModelLen)
	case path == "/metrics":
		kindOf, text = "text/plain; version=0.0.4; charset=utf-8", backend.MetricsBody(modelName)
	case path == "/version":
		text = `{"version":"0.32.0"}`
	default:
		status, text = "404 Not Found", `{"detail":"Not Found"}`
	}
	b := fmt.Appendf(nil, "HTTP/1.1 %s\r\nserver: soak\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s", status, kindOf, len(text), text)
	if slices.Contains(h.all("connection"), "close") {
		_, _ = c.c.Write(b)
		return false
	}
	_, err = c.c.Write(b)
	return err == nil
}
