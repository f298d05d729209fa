package chat

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// escapedForms are texts as the raw content of a JSON string, in the ways that
// clients write them.
var escapedForms = []string{
	``, `a`, `\n`, `\\`, `\\\\`, `\\n`, `\"`, `x\"y\"`, `\/`, `<\/think>`, `\u003c/think\u003e`, `é`, `\u00e9`,
	`\ud83d\ude00`, `😀`, `\\ud83d`, `a\\`, `a\\\"`, `\u0020x\u0020`, ` \t\r\nx\f\b `, `\u2028a\u00a0`, `\u0000`, `\\u0041A`,
	`n\nn`, `00e9\u00e9`, `\\\\\\n`, `</think></think>`, `a</think>\n\n`, `\u005c`, `\\u005c\\`,
}

func unescaped(t *testing.T, raw string) string {
	t.Helper()
	var s string
	if err := json.Unmarshal([]byte(`"`+raw+`"`), &s); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return s
}

// TestEscapedWalk goes over escaped text from both ends and compares with the
// decoded text.
func TestEscapedWalk(t *testing.T) {
	for _, raw := range escapedForms {
		want := []rune(unescaped(t, raw))
		rest := []byte(raw)
		for i := range want {
			r, size := firstChar(rest)
			if r != want[i] {
				t.Fatalf("%s: character %d is %q, want %q", raw, i, r, want[i])
			}
			rest = rest[size:]
		}
		if _, size := firstChar(rest); size != 0 {
			t.Errorf("%s: %q is left", raw, rest)
		}
		rest = []byte(raw)
		for i := len(want) - 1; i >= 0; i-- {
			r, size := lastChar(rest)
			if r != want[i] {
				t.Fatalf("%s: character %d from the end is %q, want %q", raw, i, r, want[i])
			}
			rest = rest[:len(rest)-size]
		}
	}
}

// TestEscapedOperations compares what works on escaped text with the same on
// decoded text, for all pairs of forms.
func TestEscapedOperations(t *testing.T) {
	for _, hay := range escapedForms {
		for _, needle := range escapedForms {
			compareOperations(t, hay, needle)
		}
	}
}

// compareOperations checks all operations on a lazy string against the strings
// of Go.
func compareOperations(t *testing.T, rawHay, rawNeedle string) {
	t.Helper()
	hay, needle := unescaped(t, rawHay), unescaped(t, rawNeedle)
	if !utf8.ValidString(hay) || !utf8.ValidString(needle) {
		return
	}
	var m Machine
	m.Reset()
	read := func(raw string) Value {
		v, err := m.ReadJSON([]byte(`"` + raw + `"`))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, v := range []Value{read(rawHay), Escaped([]byte(rawHay)), halves(&m, rawHay)} {
		if got := string(m.Bytes(v)); got != hay {
			t.Fatalf("%s: text is %q, want %q", rawHay, got, hay)
		}
		check := func(what string, got, want any) {
			if got != want {
				t.Errorf("%s, %s, form %d: %s is %v, want %v", rawHay, rawNeedle, v.form, what, got, want)
			}
		}
		n := read(rawNeedle)
		check("equal", equalText(v, n), hay == needle)
		check("contains", m.containsText(v, n), strings.Contains(hay, needle))
		check("prefix", m.hasPrefix(v, []byte(needle)), strings.HasPrefix(hay, needle))
		check("suffix", m.hasSuffix(v, []byte(needle)), strings.HasSuffix(hay, needle))
		check("length", charLen(v), utf8.RuneCountInString(hay))
		check("truth", v.Truth(), hay != "")
		check("strip", string(m.Bytes(m.strip(v, trimSet{}, true, true))), strings.TrimFunc(hay, isSpace))
		if needle != "" {
			check("strip of characters", string(m.Bytes(m.strip(v, trimSet{[]byte(needle)}, true, true))), strings.Trim(hay, needle))
			check("split", joinedParts(t, &m, v, needle, -1, false), strings.Join(strings.Split(hay, needle), "|"))
			check("split once", joinedParts(t, &m, v, needle, 1, false), strings.Join(strings.SplitN(hay, needle, 2), "|"))
			i := strings.LastIndex(hay, needle)
			want := hay
			if i >= 0 {
				want = hay[:i] + "|" + hay[i+len(needle):]
			}
			check("split from the right", joinedParts(t, &m, v, needle, 1, true), want)
		}
		replaced, err := m.replaceText(v, n, Text([]byte("<>")), -1)
		if err != nil {
			t.Fatal(err)
		}
		check("replace", string(m.Bytes(replaced)), strings.ReplaceAll(hay, needle, "<>"))
	}
}

// halves returns the text as a rope of its two halves, cut at an escape if it
// has one.
func halves(m *Machine, raw string) Value {
	cut := max(0, strings.IndexByte(raw, '\\'))
	return m.concat(Escaped([]byte(raw[:cut])), Escaped([]byte(raw[cut:])))
}

func joinedParts(t *testing.T, m *Machine, v Value, separator string, limit int, fromRight bool) string {
	list, err := m.splitText(v, []byte(separator), limit, fromRight)
	if err != nil {
		t.Fatal(err)
	}
	var parts [][]byte
	for i := range list.Len() {
		parts = append(parts, m.Bytes(list.At(i)))
	}
	return string(bytes.Join(parts, []byte("|")))
}

// FuzzEscapedOperations takes any two texts, and escapes of the fuzzer's
// choice: each character whose turn it is becomes \uXXXX.
func FuzzEscapedOperations(f *testing.F) {
	for i, hay := range escapedForms {
		f.Add(hay, escapedForms[(i*7+3)%len(escapedForms)], uint(i*37))
	}
	f.Fuzz(func(t *testing.T, hay, needle string, choice uint) {
		if len(hay) > 200 || len(needle) > 20 || !utf8.ValidString(hay) || !utf8.ValidString(needle) {
			return
		}
		compareOperations(t, escapedBy(hay, choice), escapedBy(needle, choice>>3))
	})
}

// escapedBy writes text as the content of a JSON string. The bits of choice
// say, in turns, which characters are written as \uXXXX.
func escapedBy(text string, choice uint) string {
	var b []byte
	for i, r := range text {
		if choice>>(i%16)&1 == 1 && r <= 0xffff {
			b = appendUnit(b, r)
		} else if r == '/' && choice&2 == 2 {
			b = append(b, '\\', '/')
		} else {
			b = appendJSONText(b, []byte(string(r)), false)
		}
	}
	return string(b)
}
