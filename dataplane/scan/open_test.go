package scan

import (
	"reflect"
	"testing"
)

// closers end a body that is cut within a text, or behind a value, of each kind.
var closers = []string{`"}}]}]}`, `}}]}]}`, `"}]}]}`, `"}]}`, `"}`, `}]}]}`, `]}]}`, `}]}`, `]}`, `}`}

// TestOpenTexts: what has come of a message or a prompt is what it would be if it
// ended there.
func TestOpenTexts(t *testing.T) {
	checked := 0
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"system","content":"be \n brief"},{"role":"user","content":[{"type":"text","text":"one \u00e9"},` +
			`{"type":"image_url","image_url":{"url":"data:,"}},{"type":"text","text":"two 模型"}]},{"role":"user","content":"three \" é","name":"n"},{"role":"tool"}],"user":"u"}`,
		`{"model":"m","prompt":"once upon \t a time 🙂","user":"u"}`,
		`{"input":"a text","model":"m"}`,
		`{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi there"}]},{"type":"reasoning"}],"model":"m"}`,
		`{"messages":[{"content":[{"text":"its type comes late","type":"text"}],"role":"user"}],"model":"m"}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"what it is","cache_control":{"type":"ephemeral"},"x":"y"}]}]}`,
		`{"system":"one text","messages":[{"role":"user","content":"q"}]}`,
	} {
		var s Scanner
		for n := range len(body) {
			if _, err := s.Scan([]byte(body[:n]), false); err != nil {
				t.Fatal(err)
			}
			got := pictureOf([]byte(body), s.Result())
			_, open := s.openText()
			if s.state == inString && (s.ctx == ctxItem && s.key == memberRole || s.ctx == ctxTop && s.key == memberSystem) || s.within(partDepth, ctxPart) && !open {
				continue // a role, a system text or a part of an unknown type does not count before its end
			}
			for _, end := range closers {
				closed := []byte(body[:s.Offset()] + end)
				whole, err := scanAll(closed)
				if err != nil {
					continue
				}
				want := pictureOf(closed, whole.Result())
				got.User, got.Model, got.HasModel = want.User, want.Model, want.HasModel // they count when they have ended
				if n := len(got.Messages); n > 0 && n == len(want.Messages) {
					got.Messages[n-1].Span = want.Messages[n-1].Span
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%q, then %s:\n got %+v\nwant %+v", body[:n], end, got, want)
				}
				checked++
				break
			}
		}
		whole, err := s.Scan([]byte(body), true)
		if !whole || err != nil || !reflect.DeepEqual(pictureOf([]byte(body), s.Result()), twinPicture([]byte(body))) {
			t.Errorf("%q: looking at it on the way has changed its end", body)
		}
	}
	if checked < 150 {
		t.Errorf("%d places were checked", checked)
	}
}
