package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestReadJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		raw, want string // the repr, or the class of the error
	}{
		{`{"b":1,"a":2}`, `{'b': 1, 'a': 2}`},
		{`{"a":1,"b":2,"a":3}`, `{'a': 3, 'b': 2}`},
		{`{"a":1,"\u0061":2}`, `{'a': 2}`},
		{` [ 1 , -0 , -0.0 , 1e5 , 1E-7, 0.1 ] `, `[1, 0, -0.0, 100000.0, 1e-07, 0.1]`},
		{`[true,false,null]`, `[True, False, None]`},
		{`9223372036854775808`, `9223372036854775808`},
		{`-9223372036854775809`, `-9223372036854775809`},
		{`9223372036854775807`, `9223372036854775807`},
		{`1e999`, `inf`},
		{`-1e999`, `-inf`},
		{strings.Repeat("9", 4300), strings.Repeat("9", 4300)},
		{"-" + strings.Repeat("9", 4300), "-" + strings.Repeat("9", 4300)},
		{strings.Repeat("9", 4301), "raised"},
		{`"\u0000"`, `'\x00'`},
		{`"\ud83d\ude00"`, `'😀'`},
		{`"\ud83d"`, "inexact"},
		{`"\ude00\ud83d"`, "inexact"},
		{`"\ud83d\n"`, "inexact"},
		{`{"\ud83d":1}`, "inexact"},
		{`"\\ud83d"`, `'\\ud83d'`},
		{deep(DefaultLimits.Depth), strings.Repeat("[", DefaultLimits.Depth) + strings.Repeat("]", DefaultLimits.Depth)},
		{deep(DefaultLimits.Depth + 1), "limit"},
		{`{"a":` + deep(DefaultLimits.Depth) + `}`, "limit"},
		{``, "malformed"},
		{`1 2`, "malformed"},
		{`01`, "malformed"},
		{`-`, "malformed"},
		{`1.`, "malformed"},
		{`1e`, "malformed"},
		{`.5`, "malformed"},
		{`+1`, "malformed"},
		{`NaN`, "malformed"},
		{`Infinity`, "malformed"},
		{`nul`, "malformed"},
		{`[1,]`, "malformed"},
		{`[1`, "malformed"},
		{`{"a"}`, "malformed"},
		{`{"a":1,}`, "malformed"},
		{`{a:1}`, "malformed"},
		{`"a`, "malformed"},
		{`"a\"`, "malformed"},
		{`"\u12"`, "malformed"},
	} {
		var m Machine
		v, err := m.ReadJSON([]byte(c.raw))
		got := ""
		if err != nil {
			got = ClassOf(err).String()
		} else {
			text, err := m.appendRepr(nil, v)
			if err != nil {
				t.Fatalf("%.40s: %v", c.raw, err)
			}
			got = string(text)
		}
		if got != c.want {
			t.Errorf("%.40s: got %.80s, want %.80s", c.raw, got, c.want)
		}
	}
}

// TestReadJSONText checks what is refused only in text that nobody has checked.
func TestReadJSONText(t *testing.T) {
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{`{"a": "b\n"}`, true},
		{"{\"a\": \"b\n\"}", false},
		{`"\x"`, false},
		{`"\/"`, true},
	} {
		var m Machine
		_, err := m.ReadJSONText(String(c.text))
		if ok := err == nil; ok != c.ok {
			t.Errorf("%q: %v", c.text, err)
		}
		if err != nil && ClassOf(err) != Malformed {
			t.Errorf("%q: class %v", c.text, ClassOf(err))
		}
	}
}

// FuzzReadJSON compares the reader with encoding/json: what the reader takes,
// it takes too, and both mean the same.
func FuzzReadJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5,"x\n\u00e9\ud83d\ude00",null,true]}`, `[[[]]]`, `{"a":1,"a":2}`, `"\ud800"`, `1e400`, `123456789012345678901234567890`, `"\u0000\/"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m Machine
		v, err := m.ReadJSONText(Text(raw))
		var want any
		oracle := json.Unmarshal(raw, &want)
		if err != nil {
			if class := ClassOf(err); oracle == nil && class == Malformed {
				t.Fatalf("%q: %v, which encoding/json takes", raw, err)
			}
			return
		}
		text, err := m.appendJSON(nil, v, &jsonStyle{ascii: true, sortKeys: true, item: []byte(","), key: []byte(":")}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if oracle != nil {
			if strings.Contains(string(text), "Infinity") {
				return // a float out of range, which encoding/json refuses
			}
			t.Fatalf("%q: read, but %v", raw, oracle)
		}
		var got any
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%q: written as %q: %v", raw, text, err)
		}
		if g, w := fmt.Sprint(unsigned(got)), fmt.Sprint(unsigned(want)); g != w && !strings.ContainsRune(w, '\ufffd') {
			t.Fatalf("%q: got %v, want %v", raw, got, want)
		}
	})
}

// unsigned makes -0 0 in a value of encoding/json: in Python -0 is an int, which
// has no sign.
func unsigned(v any) any {
	switch v := v.(type) {
	case float64:
		if v == 0 {
			return 0.0
		}
	case []any:
		for i := range v {
			v[i] = unsigned(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = unsigned(v[key])
		}
	}
	return v
}
