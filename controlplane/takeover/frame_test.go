package takeover

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"warmpath/dataplane/prefix"
)

func TestPath(t *testing.T) {
	dir := t.TempDir()
	a, _ := Path("", dir, "127.0.0.1:8080")
	b, _ := Path("", dir, "127.0.0.1:8081")
	if again, _ := Path("", dir, "127.0.0.1:8080"); a != again || a == b || filepath.Dir(a) != filepath.Join(dir, "warmpath") {
		t.Errorf("%q, %q", a, b)
	}
	if p, why := Path(filepath.Join(dir, "state"), "", "127.0.0.1:0"); p != filepath.Join(dir, "state", "takeover.sock") {
		t.Errorf("%q, %q", p, why)
	}
	if p, why := Path("", dir, "127.0.0.1:0"); p != "" || !strings.Contains(why, "state_dir") {
		t.Errorf("%q, %q", p, why)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p, why := Path(filepath.Join(file, "x"), "", "127.0.0.1:1"); p != "" || !strings.Contains(why, "set state_dir") {
		t.Errorf("%q, %q", p, why)
	}
}

// FuzzFrames: frames are read as they were written, and no bytes do harm.
func FuzzFrames(f *testing.F) {
	f.Add(AppendFrame(AppendFrame(nil, Hello, []byte(`{"version":1}`)), Ready, nil))
	note, _ := AppendNote(nil, &Note{Fetch: 3, Chain: []prefix.Hash{5, 6}, IDs: []uint32{7}})
	f.Add(note)
	f.Add(binary.LittleEndian.AppendUint32(nil, 1<<31))
	f.Add([]byte(`{"node":"a","rank":1}`))
	f.Add(note[headBytes : len(note)-sumBytes])
	f.Fuzz(func(t *testing.T, b []byte) {
		readBody(t, b)
		for {
			kind, body, n, err := ParseFrame(b)
			if err != nil || n == 0 {
				return
			}
			if again := AppendFrame(nil, kind, body); !bytes.Equal(again, b[:n]) {
				t.Fatalf("%x is written as %x", b[:n], again)
			}
			b = b[n:]
		}
	})
}

// readBody reads a body as everything that it could be.
func readBody(t *testing.T, body []byte) {
	for _, v := range []any{new(hello), new(welcome), new(refusal), new(SocketName), new(Node), new(Fetch), new(Rank)} {
		_ = decode(body, v)
		_ = decodeOpen(body, v)
	}
	note, err := DecodeNote(body)
	if err != nil {
		return
	}
	again, _ := AppendNote(nil, &note)
	_, body, _, _ = ParseFrame(again)
	if same, err := DecodeNote(body); err != nil || !reflect.DeepEqual(same, note) {
		t.Fatalf("%+v is read as %+v, %v", note, same, err)
	}
}

func TestNotesAreBounded(t *testing.T) {
	b, ok := AppendNote([]byte("x"), &Note{Chain: make([]prefix.Hash, maxNoteValues-1), IDs: []uint32{1}})
	if _, _, n, err := ParseFrame(b[1:]); !ok || err != nil || n != len(b)-1 {
		t.Errorf("%v, %d of %d bytes, %v", ok, n, len(b), err)
	}
	if b, ok := AppendNote([]byte("x"), &Note{Chain: make([]prefix.Hash, maxNoteValues), IDs: []uint32{1}}); ok || string(b) != "x" {
		t.Error("too long, and taken")
	}
}
