package kvevent

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

// pack encodes JSON as MessagePack, keeping the order of keys. Numbers with a
// point are floats; "$bin:00ff" is binary, and "$cut" ends the payload.
func pack(t testing.TB, text string) []byte {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	b, err := packValue(nil, d)
	if err != nil && err != io.EOF {
		t.Fatalf("%s: %v", text, err)
	}
	b, _, _ = bytes.Cut(b, []byte("\xa4$cut"))
	return b
}

func packValue(b []byte, d *json.Decoder) ([]byte, error) {
	token, err := d.Token()
	if err != nil {
		return b, err
	}
	switch v := token.(type) {
	case json.Delim:
		return packList(b, v, d)
	case json.Number:
		return packNumber(b, v), nil
	case string:
		if digits, ok := strings.CutPrefix(v, "$bin:"); ok {
			bin, err := hex.DecodeString(digits)
			return msgp.AppendBytes(b, bin), err
		}
		return msgp.AppendString(b, v), nil
	case bool:
		return msgp.AppendBool(b, v), nil
	}
	return msgp.AppendNil(b), nil
}

// packList encodes an array or an object, whose length comes first.
func packList(b []byte, open json.Delim, d *json.Decoder) ([]byte, error) {
	var inner []byte
	n := uint32(0)
	for d.More() {
		var err error
		if inner, err = packValue(inner, d); err != nil {
			return b, err
		}
		n++
	}
	if _, err := d.Token(); err != nil {
		return b, err
	}
	if open == '{' {
		b = msgp.AppendMapHeader(b, n/2)
	} else {
		b = msgp.AppendArrayHeader(b, n)
	}
	return append(b, inner...), nil
}

func packNumber(b []byte, n json.Number) []byte {
	if i, err := n.Int64(); err == nil {
		if i > math.MaxInt32 {
			return msgp.AppendUint64(b, uint64(i))
		}
		return msgp.AppendInt64(b, i)
	}
	var u uint64
	if _, err := fmt.Sscan(n.String(), &u); err == nil && !strings.ContainsAny(n.String(), ".e") {
		return msgp.AppendUint64(b, u)
	}
	f, _ := n.Float64()
	return msgp.AppendFloat64(b, f)
}

// dump writes a batch as text.
func dump(b *Batch) string {
	var out strings.Builder
	fmt.Fprintf(&out, "time %v rank %d\n", b.TimeSeconds, b.Rank)
	for i := range b.Events {
		e := &b.Events[i]
		switch e.Kind {
		case Stored:
			fmt.Fprintf(&out, "stored %v", e.Hashes)
			if e.HasParent {
				fmt.Fprintf(&out, " after %d", e.Parent)
			}
			fmt.Fprintf(&out, " tokens %v of %d", e.Tokens, e.BlockTokens)
		case Removed:
			fmt.Fprintf(&out, "removed %v", e.Hashes)
		case Cleared:
			out.WriteString("cleared")
		}
		dumpRest(&out, e)
	}
	for r, n := range b.Dropped {
		if n > 0 {
			fmt.Fprintf(&out, "dropped %d %s\n", n, Reason(r))
		}
	}
	return out.String()
}

func dumpRest(out *strings.Builder, e *Event) {
	if e.Kind != Cleared {
		out.WriteString([...]string{"", " host", " disk", " elsewhere"}[e.Medium])
	}
	for i := range e.Hashes {
		if x := e.Extra(i); len(x) > 0 {
			v, _, _ := msgp.ReadIntfBytes(x)
			fmt.Fprintf(out, " extra %d: %v", i, v)
		}
	}
	if e.Adapter != "" {
		out.WriteString(" adapter " + e.Adapter)
	}
	if e.Salt != "" {
		out.WriteString(" salt " + e.Salt)
	}
	if e.Group != NotSaid {
		fmt.Fprintf(out, " group %d", e.Group)
	}
	out.WriteString([...]string{"", " full", " partial"}[e.Spec])
	if e.Remote {
		out.WriteString(" remote")
	}
	if e.Merged > 1 {
		fmt.Fprintf(out, " merged %d", e.Merged)
	}
	out.WriteString("\n")
}
