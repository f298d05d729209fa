package wire

import (
	"fmt"
	"strings"
	"testing"
)

// clientHead is what an OpenAI client library sends: 17 fields, 535 bytes.
const clientHead = "POST /v1/chat/completions HTTP/1.1\r\n" +
	"Host: 127.0.0.1:8080\r\n" +
	"Accept-Encoding: gzip, deflate\r\n" +
	"Connection: keep-alive\r\n" +
	"Accept: application/json\r\n" +
	"Content-Type: application/json\r\n" +
	"User-Agent: OpenAI/Python 1.99.9\r\n" +
	"X-Stainless-Lang: python\r\n" +
	"X-Stainless-Package-Version: 1.99.9\r\n" +
	"X-Stainless-OS: Linux\r\n" +
	"X-Stainless-Arch: x64\r\n" +
	"X-Stainless-Runtime: CPython\r\n" +
	"X-Stainless-Runtime-Version: 3.12.3\r\n" +
	"Authorization: Bearer sk-0123456789\r\n" +
	"X-Stainless-Async: false\r\n" +
	"x-stainless-retry-count: 0\r\n" +
	"x-stainless-read-timeout: 600\r\n" +
	"Content-Length: 1234\r\n\r\n"

const smallHead = "GET /v1/models HTTP/1.1\r\nHost: router:8080\r\nUser-Agent: curl/8.5.0\r\nAccept: */*\r\nX-Request-Id: 1f2e3d4c\r\n\r\n"

const nodeHead = "HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n" +
	"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"

var requestOptions = RequestOptions{
	Host: "10.0.0.11:8000", ContentLength: 1234, RequestID: []byte("0123456789abcdef"),
	ForwardedFor: []byte("192.0.2.7"), Rank: -1,
}

var responseOptions = ResponseOptions{
	Minor: 1, KeepAlive: true, RequestID: []byte("0123456789abcdef"), RoutedTo: []byte("gpu-a"),
	DurationSeconds: -1, Chunked: true, ContentLength: -1,
}

func BenchmarkRequest(b *testing.B) {
	for _, bench := range []struct{ name, head string }{{"small", smallHead}, {"client", clientHead}} {
		b.Run(bench.name, func(b *testing.B) {
			src := []byte(bench.head)
			var r Request
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				r.Reset()
				if n, err := r.Parse(src, nil); n != len(src) || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}

func BenchmarkResponse(b *testing.B) {
	src := []byte(nodeHead)
	var r Response
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		r.Reset()
		if n, err := r.Parse(src, nil, MethodPost); n != len(src) || err != nil {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkAppendRequestHead(b *testing.B) {
	src := []byte(clientHead)
	var r Request
	r.Reset()
	if _, err := r.Parse(src, nil); err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, 2048)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendRequestHead(dst[:0], src, &r, &requestOptions)
	}
}

func BenchmarkAppendResponseHead(b *testing.B) {
	src := []byte(nodeHead)
	var r Response
	r.Reset()
	if _, err := r.Parse(src, nil, MethodPost); err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, 2048)
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendResponseHead(dst[:0], src, &r, &responseOptions)
	}
}

// BenchmarkBody reads events of 200 bytes, a chunk each, as engines send them.
func BenchmarkBody(b *testing.B) {
	event := strings.Repeat("d", 200)
	src := []byte(strings.Repeat(fmt.Sprintf("%x\r\n%s\r\n", len(event), event), 100) + LastChunk)
	var d Body
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		d.Start(BodyChunked, 0)
		for rest := src; !d.Done(); {
			_, n, err := d.Next(rest)
			if err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
	}
}
