package backend

import (
	"fmt"
	"strings"

	"warmpath/bench/load/stamp"
)

const (
	streamHead = "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
	streamEnd  = "data: [DONE]\n\n"
	eventHead  = `data: {"id":"chatcmpl-0",` + stamp.Field + `,"choices":[{"index":0,"delta":{"content":"`
	eventTail  = `"}}]}` + "\n\n"
)

// MinChunkBytes is the length of an event with one byte of content.
const MinChunkBytes = len(eventHead) + 1 + len(eventTail)

// chunkPair is what one loop sends: a chunk, and the last one with the end of
// the stream. Their stamps are filled in at each sending, so that every loop
// has its own.
type chunkPair struct {
	middle, last []byte
	at           int // of the stamp's digits, the same in both
}

func newChunkPair(chunkBytes int) chunkPair {
	event := eventHead + strings.Repeat("y", chunkBytes-len(eventHead)-len(eventTail)) + eventTail
	middle := httpChunk(event)
	return chunkPair{
		middle: []byte(middle),
		last:   []byte(middle + httpChunk(streamEnd) + "0\r\n\r\n"),
		at:     stamp.At([]byte(middle)),
	}
}

func httpChunk(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

// stamped returns a chunk that says it was sent now. It is valid until the next
// call.
func (p *chunkPair) stamped(last bool) []byte {
	chunk := p.middle
	if last {
		chunk = p.last
	}
	stamp.Put(chunk[p.at:p.at+stamp.Digits], stamp.Now())
	return chunk
}
