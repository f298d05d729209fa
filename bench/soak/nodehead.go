package soak

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
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
		text = `{"object":"list","data":[{"id":"` + modelName + `","object":"model","created":1760000000,"owned_by":"vllm","root":"` + modelName + `","parent":null,"max_model_len":8388608,"permission":[]}]}`
	case path == "/metrics":
		kindOf, text = "text/plain; version=0.0.4; charset=utf-8", metrics()
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

// metrics are of an idle engine.
func metrics() string {
	var b strings.Builder
	for _, s := range []struct{ name, kind, labels, value string }{
		{"vllm:num_requests_running", "gauge", "", "0.0"},
		{"vllm:num_requests_waiting", "gauge", "", "0.0"},
		{"vllm:kv_cache_usage_perc", "gauge", "", "0.0"},
		{"vllm:prefix_cache_queries_total", "counter", "", "0.0"},
		{"vllm:prefix_cache_hits_total", "counter", "", "0.0"},
		{"vllm:prompt_tokens_total", "counter", "", "0.0"},
		{"vllm:generation_tokens_total", "counter", "", "0.0"},
		{"vllm:cache_config_info", "gauge", `block_size="16",num_gpu_blocks="32768",enable_prefix_caching="True",`, "1.0"},
	} {
		fmt.Fprintf(&b, "# TYPE %s %s\n%s{%sengine=\"0\",model_name=%s} %s\n", s.name, s.kind, s.name, s.labels, strconv.Quote(modelName), s.value)
	}
	return b.String()
}
