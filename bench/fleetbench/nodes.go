package fleetbench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"strconv"
	"time"

	"warmpath/bench/backend"
)

// NodesOptions say what the nodes are. All fields are needed.
type NodesOptions struct {
	Nodes        int
	Port         int  // the same at each node's address
	MetricsBytes int  // of a metrics text, roughly
	Still        bool // its figures never change
	Whole        bool // nodes give the whole of it, whatever they are asked for
}

// Address is where node i listens: each has an address of its own, as real ones do.
func Address(i, port int) string { return fmt.Sprintf("127.77.%d.%d:%d", i/250, i%250+1, port) }

// Serve runs the nodes until ctx ends. ready is called when all listen.
func Serve(ctx context.Context, o NodesOptions, ready func()) error {
	debug.SetGCPercent(1000) // its processor time is not measured, but it is this machine's
	f := &fleet{began: time.Now(), still: o.Still, whole: o.Whole, page: newPage(o.MetricsBytes), models: answer("application/json", backend.ModelsBody(model, 1<<20))}
	f.plain = answer("application/json", `{"id":"c","object":"chat.completion","model":"fleet","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":1,"total_tokens":1001}}`)
	f.stream = streamAnswer()
	for i := range o.Nodes {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", Address(i, o.Port))
		if err != nil {
			return fmt.Errorf("start node %d: %w", i, err)
		}
		defer ln.Close()
		go f.accept(ln, i)
	}
	ready()
	<-ctx.Done()
	return nil
}

// fleet is what all nodes share. Immutable.
type fleet struct {
	began                 time.Time
	still, whole          bool
	page                  page
	models, plain, stream []byte
}

func answer(kind, body string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s", kind, len(body), body)
}

// streamAnswer is a whole stream of three events.
func streamAnswer() []byte {
	out := []byte("HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n")
	for _, data := range []string{
		`{"id":"c","object":"chat.completion.chunk","model":"fleet","choices":[{"index":0,"delta":{"role":"assistant","content":"yes"},"finish_reason":null}]}`,
		`{"id":"c","object":"chat.completion.chunk","model":"fleet","choices":[{"index":0,"delta":{"content":"."},"finish_reason":"stop"}]}`,
		`[DONE]`,
	} {
		event := "data: " + data + "\n\n"
		out = fmt.Appendf(out, "%x\r\n%s\r\n", len(event), event)
	}
	return append(out, "0\r\n\r\n"...)
}

func (f *fleet) accept(ln net.Listener, i int) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return // the listener is closed: the process ends
		}
		go f.serve(conn, i)
	}
}

// serve answers the requests of one connection. As uvicorn does, it closes one that
// was idle for five seconds.
func (f *fleet) serve(conn net.Conn, i int) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 16<<10)
	var scratch []byte
	for {
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		path, body, err := readRequest(in)
		if err != nil {
			return
		}
		switch {
		case bytes.Equal(path, []byte("/metrics")), f.whole && bytes.HasPrefix(path, []byte("/metrics/")):
			scratch, err = f.metrics(conn, i, scratch, f.page.behind)
		case bytes.HasPrefix(path, []byte("/metrics/?name")): // what Python's Prometheus client makes of it
			scratch, err = f.metrics(conn, i, scratch, f.page.info)
		case bytes.Equal(path, []byte("/v1/models")):
			_, err = conn.Write(f.models)
		case bytes.Equal(path, []byte("/health")):
			_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: 0\r\n\r\n")
		case bytes.HasSuffix(path, []byte("/completions")) && bytes.Contains(body, []byte(`"stream":true`)):
			_, err = conn.Write(f.stream)
		case bytes.HasSuffix(path, []byte("/completions")):
			_, err = conn.Write(f.plain)
		default:
			_, err = io.WriteString(conn, "HTTP/1.1 404 Not Found\r\nserver: uvicorn\r\ncontent-length: 0\r\n\r\n")
		}
		if err != nil {
			return
		}
	}
}

// readRequest returns path and body, which are valid until the next call on the
// reader; of a body that is longer than its buffer nothing is kept.
func readRequest(in *bufio.Reader) (path, body []byte, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, nil, err
	}
	parts := bytes.Fields(line)
	if len(parts) != 3 {
		return nil, nil, fmt.Errorf("request line %q", line)
	}
	path = bytes.Clone(parts[1])
	length := 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil, nil, err
		}
		name, value, more := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		if !more {
			break
		}
		if bytes.EqualFold(name, []byte("content-length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return nil, nil, err
			}
		}
	}
	if body, err = in.Peek(length); err != nil && length <= in.Size() {
		return nil, nil, err
	}
	_, err = in.Discard(length)
	return path, body, err
}

// metrics answers as vLLM's application does: its server does not know how long the
// text is, so it comes in a chunk.
func (f *fleet) metrics(conn net.Conn, i int, scratch, behind []byte) ([]byte, error) {
	ms := int64(1)
	if !f.still {
		ms = time.Since(f.began).Milliseconds()
	}
	scratch = figures(scratch[:0], i, ms)
	length := len(f.page.before) + len(scratch) + len(behind)
	head := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/plain; version=1.0.0; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n", length)
	parts := net.Buffers{head, f.page.before, scratch, behind, []byte("\r\n0\r\n\r\n")}
	_, err := parts.WriteTo(conn)
	return scratch, err
}
