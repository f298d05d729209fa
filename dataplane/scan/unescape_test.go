package scan

import (
	"encoding/json"
	"testing"
)

func TestAppendUnescaped(t *testing.T) {
	for raw, want := range map[string]string{
		``: "", `plain`: "plain", `\"\\\/\b\f\n\r\t`: "\"\\/\b\f\n\r\t", `a\u0041b`: "aAb", `\u00e9\u4e2d`: "é中",
		`\ud83d\ude00`: "🙂"[:0] + "😀", `\uD83D\uDE00!`: "😀!", `\ud83d`: "\uFFFD", `\ude00x`: "\uFFFDx", `\ud83d\u0041`: "\uFFFDA",
		`\ud83d\ud83d\ude00`: "\uFFFD😀", `\ud83dx\ude00`: "\uFFFDx\uFFFD", `\ud83d\n`: "\uFFFD\n",
		`cut\`: "cut", `cut\u`: "cut", `cut\u00e`: "cut",
	} {
		if got := string(AppendUnescaped([]byte("^"), []byte(raw))); got != "^"+want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

func FuzzAppendUnescaped(f *testing.F) {
	for _, seed := range []string{`a\n\u0041`, `\ud83d\ude00`, `\ud83d\ud83d\ude00`, `\udc00\\u1234`, "中\\t"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got := AppendUnescaped(nil, []byte(raw)) // must not panic, whatever raw is
		body := []byte(`{"user":"` + raw + `"}`)
		s, err := scanAll(body)
		if err != nil || s.Result().User.Len() != len(raw) {
			return
		}
		var want struct{ User string }
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatal(err)
		}
		if string(got) != want.User {
			t.Errorf("%q: %q, want %q", raw, got, want.User)
		}
	})
}
