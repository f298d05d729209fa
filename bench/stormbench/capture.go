package stormbench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"warmpath/controlplane/kvevent"
)

var errCapture = errors.New("no capture, or one that is cut off")

// readCaptures returns the payloads of all batches in the captures that match a
// pattern, in the order of the files.
func readCaptures(pattern string) (payloads [][]byte, err error) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		more, err := readCapture(data)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		payloads = append(payloads, more...)
	}
	var d kvevent.Decoder
	blocks := 0
	for _, p := range payloads {
		b, err := d.Decode(p)
		if err != nil {
			return nil, err
		}
		for i := range b.Events {
			blocks += len(b.Events[i].Hashes)
		}
	}
	if blocks == 0 {
		return nil, fmt.Errorf("no events in %s", pattern)
	}
	return payloads, nil
}

// readCapture returns the batches of a capture: after a magic line come
// messages, each a time (float64), a count of frames (uint32) and the frames,
// each behind its length (uint32), all big-endian. The last two frames are the
// sequence number, of which −1 ends a replay, and the payload.
func readCapture(data []byte) (payloads [][]byte, err error) {
	rest, ok := bytes.CutPrefix(data, []byte("KVCAP1\n"))
	if !ok {
		return nil, errCapture
	}
	for len(rest) > 0 {
		if len(rest) < 12 {
			return nil, errCapture
		}
		var frames [][]byte
		count := binary.BigEndian.Uint32(rest[8:])
		rest = rest[12:]
		for range count {
			if len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
				return nil, errCapture
			}
			size := binary.BigEndian.Uint32(rest)
			frames, rest = append(frames, rest[4:4+size]), rest[4+size:]
		}
		if n := len(frames); n >= 2 && len(frames[n-2]) == 8 && binary.BigEndian.Uint64(frames[n-2]) != 1<<64-1 {
			payloads = append(payloads, frames[n-1])
		}
	}
	return payloads, nil
}
