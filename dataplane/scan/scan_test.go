package scan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// bodies are requests in all forms that are looked at.
var bodies = []string{
	`{}`,
	" \t\r\n{ } \n",
	`{"model":"qwen3","stream":true,"max_tokens":16,"prefix_len":32,"user":"u","cache_salt":"c","session_id":"s"}`,
	`{"messages":[{"role":"system","content":"be brief"},{"content":"déjà 模型 🙂\n\u00e9\ud83d\ude00","role":"user"}],"model":"m"}`,
	`{"messages":[{"role":"user","content":[{"type":"text","text":"a\"b"},{"text":"c","type":"input_text"},{"type":"image_url","image_url":{"url":"data:,"}},"s",5,null,[1,[2]],{"type":"text"},{"type":"output_text","text":null}]}]}`,
	`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":7,"content":{"a":[]}},{}]}`,
	`{"messages":[{"role":"a"},5],"input":[{"role":"b"}]}`,
	`{"messages":{"role":"a"}} `,
	`{"prompt":"once\tupon"}`,
	`{"prompt":["a","b\\","c"]}`,
	`{"prompt":[1, 22,333 ,4294967295, 0]}`,
	`{"prompt":[1,4294967296]}`,
	`{"prompt":[1,2.0]}`,
	`{"prompt":[[1,2],[],[3]]}`, `{"prompt":[[],[3]]}`, `{"prompt":[[1,2],["a"]]}`, `{"prompt":[[1],[{}]]}`, `{"prompt":[[1],[[]]]}`, `{"prompt":[[1],[null]]}`,
	`{"prompt":["a",1]}`, `{"prompt":[1,"a"]}`, `{"prompt":[]}`, `{"prompt":[null]}`, `{"prompt":[{}]}`, `{"prompt":[1,null,2]}`, `{"prompt":[1,[2]]}`,
	`{"prompt":5,"input":"used"}`, `{"prompt":["a"],"input":"unused"}`, `{"prompt":"","input":[1,2,3]}`,
	`{"input":"text","instructions":"i"}`,
	`{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"reasoning"}],"instructions":"do"}`,
	`{"input":["a","b"]}`, `{"input":[[7,8],[9]]}`, `{"input":[{},"a"]}`, `{"input":["a",{}]}`,
	`{"system":"s","messages":[]}`,
	`{"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"image"},[0],"x",1.5e3,true]}`,
	`{"system":[],"instructions":"i"}`, `{"system":null,"instructions":["x"]}`, `{"system":5}`,
	`{"tools":[{"type":"function","function":{"name":"f","parameters":{"a":[1,-2.5E+3,true,false,null]}}}],"tool_choice":"auto"}`,
	`{"tools":null}`, `{"tools":{}}`, `{"tools":"x"}`, `{"tools":[]}`,
	`{"model":5,"stream":"yes","max_tokens":"5","prefix_len":-3,"user":null}`,
	`{"max_tokens":5,"max_completion_tokens":7}`, `{"max_completion_tokens":7,"max_tokens":5}`, `{"max_tokens":5,"max_completion_tokens":null}`,
	`{"max_tokens":9223372036854775807}`, `{"max_tokens":9223372036854775808}`, `{"max_tokens":99999999999999999999}`, `{"max_tokens":1e2,"prefix_len":0}`,
	`{"model":"a","model":"b"}`, `{"model":"a","model":null}`, `{"stream":true,"stream":1}`, `{"messages":[{"role":"a"}],"messages":[{"role":"b"}]}`,
	`{"messages":[{"role":"a"}],"messages":null}`, `{"messages":[{"role":"a","role":5,"content":"x","content":[]}]}`, `{"prompt":"a","prompt":[1,2]}`,
	`{"messages":[{"content":[{"type":"text","type":"image","text":"a"},{"type":"text","text":"a","text":"b"}]}]}`,
	`{"system":"a","system":{}}`, `{"tools":[1],"tools":0}`, `{"max_tokens":1,"max_tokens":[2]}`, `{"stream":false,"stream":{"stream":true}}`,
	`{"mod\u0065l":"m","\u006d\u0065\u0073\u0073\u0061\u0067\u0065\u0073":[{"r\u006fle":"u","content":[{"t\u0079pe":"te\u0078t","text":"x"}]}]}`,
	`{"a":{"model":"inner","messages":[{"role":"x"}]},"b":[{"prompt":"y"}],"model":"outer"}`,
	`{"model":"\ud800","user":"\udc00\ud800","session_id":"\ud83d\ud83d\ude00x"}`,
	`{"n":[0,-0,10,-1.5,1e5,1E-2,0.0,2e+0],"e":[[],{},[[[{}]]]],"":""}`,
}

// scanAll scans a whole body in one call.
func scanAll(body []byte) (*Scanner, *Error) {
	s := new(Scanner)
	done, err := s.Scan(body, true)
	if done == (err != nil) {
		panic("done and error contradict each other")
	}
	return s, err
}

// scanSplit scans a body in calls that end at the offsets given.
func scanSplit(body []byte, at ...int) (*Scanner, *Error) {
	s := new(Scanner)
	for _, n := range at {
		part := append(make([]byte, 0, n), body[:n]...) // bytes beyond n must not be read
		if _, err := s.Scan(part, false); err != nil {
			return s, err
		}
		if s.Offset() > n || s.Offset() <= n-6 { // so the work of all calls is linear
			panic(fmt.Sprintf("%d of %d bytes dealt with", s.Offset(), n))
		}
		s.Result()
	}
	_, err := s.Scan(body, true)
	return s, err
}

func checkAgainstTwin(t *testing.T, body []byte, s *Scanner) {
	t.Helper()
	got, want := pictureOf(body, s.Result()), twinPicture(body)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("body %q\n got %+v\nwant %+v", body, got, want)
	}
}

func checkSplit(t *testing.T, body []byte, whole *Scanner, wholeErr *Error, at ...int) {
	t.Helper()
	s, err := scanSplit(body, at...)
	if !reflect.DeepEqual(err, wholeErr) {
		t.Fatalf("body %q split at %v: error %+v, in one call %+v", body, at, err, wholeErr)
	}
	if err == nil && !reflect.DeepEqual(pictureOf(body, s.Result()), pictureOf(body, whole.Result())) {
		t.Fatalf("body %q split at %v: %+v, in one call %+v", body, at, s.Result(), whole.Result())
	}
}

func TestScanAgainstTwin(t *testing.T) {
	all := append([]string{string(chat4K(t)), string(tokenIDsBody(300)), string(chatBody(mixedText(300)))}, bodies...)
	captured, _ := filepath.Glob("../../../shared/data/http/req_*.json")
	if len(captured) == 0 {
		t.Log("no captured requests here: only the built-in ones are checked")
	}
	for _, name := range captured {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(b))
	}
	for _, body := range all {
		s, err := scanAll([]byte(body))
		if err != nil {
			t.Errorf("body %q: %v", body, err)
			continue
		}
		checkAgainstTwin(t, []byte(body), s)
	}
}

// TestScanEverySplit stops at every byte, once only there and once at all.
func TestScanEverySplit(t *testing.T) {
	all := append([]string{string(chatBody(mixedText(200))), string(chatBody(escapedText(200)))}, bodies...)
	for _, refused := range refusedBodies {
		all = append(all, refused.body)
	}
	for _, text := range all {
		body := []byte(text)
		whole, err := scanAll(body)
		every := make([]int, len(body)+1)
		for i := range every {
			every[i] = i
			checkSplit(t, body, whole, err, i)
		}
		checkSplit(t, body, whole, err, every...)
	}
}

var refusedBodies = []struct {
	body, what string
	offset     int
}{
	{"", "empty body, want a JSON object", 0},
	{" \n", "empty body, want a JSON object", 2},
	{"[]", "invalid character '[' where a JSON object must begin", 0},
	{`"a"`, `invalid character '"' where a JSON object must begin`, 0},
	{"5", "invalid character '5' where a JSON object must begin", 0},
	{"\xef\xbb\xbf{}", "byte-order mark or invalid byte 0xEF where a JSON object must begin", 0},
	{"{", "body ends inside an object or array", 1},
	{"{}x", "invalid character 'x' after the top-level object", 2},
	{"{} {}", "invalid character '{' after the top-level object", 3},
	{"{}\x00", "invalid byte 0x00 after the top-level object", 2},
	{"{\f}", "invalid byte 0x0C where an object key must begin", 1},
	{`{a:1}`, "invalid character 'a' where an object key must begin", 1},
	{`{'a':1}`, `invalid character '\'' where an object key must begin`, 1},
	{`{"a"}`, "invalid character '}' after object key", 4},
	{`{"a":}`, "invalid character '}' where a value must begin", 5},
	{`{"a":1,}`, "invalid character '}' where an object key must begin", 7},
	{`{,}`, "invalid character ',' where an object key must begin", 1},
	{`{"a":1 "b":2}`, `invalid character '"' after object value`, 7},
	{`{"a":1]`, "invalid character ']' after object value", 6},
	{`{"a":[1,]}`, "invalid character ']' where a value must begin", 8},
	{`{"a":[,1]}`, "invalid character ',' where a value must begin", 6},
	{`{"a":[1}`, "invalid character '}' after array element", 7},
	{`{"a":[1 2]}`, "invalid character '2' after array element", 8},
	{`{"a":]}`, "invalid character ']' where a value must begin", 5},
	{`{"a":01}`, "number with a leading zero", 5},
	{`{"a":-01}`, "number with a leading zero", 5},
	{`{"prompt":[1,02,3]}`, "number with a leading zero", 13},
	{`{"a":-}`, "invalid character '}' in a number, want a digit", 6},
	{`{"a":1.}`, "invalid character '}' in a number, want a digit", 7},
	{`{"a":1.e1}`, "invalid character 'e' in a number, want a digit", 7},
	{`{"a":1e}`, "invalid character '}' in a number, want a digit", 7},
	{`{"a":1e+}`, "invalid character '}' in a number, want a digit", 8},
	{`{"a":+1}`, "invalid character '+' where a value must begin", 5},
	{`{"a":.5}`, "invalid character '.' where a value must begin", 5},
	{`{"a":1.5.5}`, "invalid character '.' after object value", 8},
	{`{"a":0x1}`, "invalid character 'x' after object value", 6},
	{`{"a":1e5e5}`, "invalid character 'e' after object value", 8},
	{`{"a":NaN}`, "invalid character 'N' where a value must begin", 5},
	{`{"a":Infinity}`, "invalid character 'I' where a value must begin", 5},
	{`{"a":-Infinity}`, "invalid character 'I' in a number, want a digit", 6},
	{`{"a":nul}`, "invalid character '}' in the literal null", 8},
	{`{"a":trux}`, "invalid character 'x' in the literal true", 8},
	{`{"a":falsey}`, "invalid character 'y' after object value", 10},
	{`{"a":True}`, "invalid character 'T' where a value must begin", 5},
	{`{"a":fal`, "body ends inside or after the literal false", 8},
	{`{"a":12`, "body ends after a number inside an object or array", 7},
	{`{"a":"x`, "body ends inside a string", 7},
	{`{"a`, "body ends inside a string", 3},
	{`{"a":"\`, "body ends inside a string", 7},
	{`{"a":"\u12`, "body ends inside a string", 10},
	{`{"a":"\x41"}`, "invalid character 'x' in a string escape", 7},
	{`{"a":"\'"}`, `invalid character '\'' in a string escape`, 7},
	{`{"a":"\u12G4"}`, `invalid character 'G' in a \u escape, want four hexadecimal digits`, 10},
	{`{"a":"\u123"}`, `invalid character '"' in a \u escape, want four hexadecimal digits`, 11},
	{`{"a":"\u 123"}`, `invalid byte 0x20 in a \u escape, want four hexadecimal digits`, 8},
	{`{"a":"\U1234"}`, "invalid character 'U' in a string escape", 7},
	{"{\"a\":\"x\ny\"}", "invalid byte 0x0A in a string, control characters must be escaped", 7},
	{"{\"a\":\"\x00\"}", "invalid byte 0x00 in a string, control characters must be escaped", 6},
	{"{\"a\":\"\x1f\"}", "invalid byte 0x1F in a string, control characters must be escaped", 6},
	{"{\"a\":\"é\x80\"}", "invalid UTF-8 in a string", 8},
	{"{\"a\":\"\xc3\"}", "invalid UTF-8 in a string", 6},
	{"{\"a\":\"\xc3", "body ends inside a string", 7},
	{"{\"a\":\"\xc0\x80\"}", "invalid UTF-8 in a string", 6},
	{"{\"a\":\"\xe0\x80\x80\"}", "invalid UTF-8 in a string", 6},
	{"{\"a\":\"\xed\xa0\x80中\"}", "invalid UTF-8 in a string", 6},
	{"{\"a\":\"\xf4\x90\x80\x80\"}", "invalid UTF-8 in a string", 6},
	{"{\"a\":\"\xf0\x8f\x80\x80\"}", "invalid UTF-8 in a string", 6},
	{"{\"a\":\"\xff\"}", "invalid UTF-8 in a string", 6},
	{"{\"a\":\"中中中中\xe0\x9f\xbf\"}", "invalid UTF-8 in a string", 18},
	{"{\"a\":\"中\xed\xbf\xbf\"}", "invalid UTF-8 in a string", 9},
	{"{\"\xff\":1}", "invalid UTF-8 in a string", 2},
	{"{\"a\":1\u00a0}", "invalid byte 0xC2 after object value", 6},
	{"{\"a\":1}\u2028", "invalid byte 0xE2 after the top-level object", 7},
	{"{/**/}", "invalid character '/' where an object key must begin", 1},
}

func TestScanRefuses(t *testing.T) {
	for _, c := range refusedBodies {
		_, err := scanAll([]byte(c.body))
		if err == nil {
			t.Errorf("body %q accepted, want %q", c.body, c.what)
			continue
		}
		if err.Offset != c.offset || err.What != c.what {
			t.Errorf("body %q: %q at %d, want %q at %d", c.body, err.What, err.Offset, c.what, c.offset)
		}
	}
}

func TestScanAcceptsEdges(t *testing.T) {
	for _, value := range []string{
		"0", "-0", "1E+2", "1e2", "1e-2", "0.5", "-1.5e10", "123456789012345678901234567890.5", `""`, `"\/"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`, `"\ud83d"`,
		`"\u0000"`, "\"\u007f\u2028\ufeff\U0010ffff\"", `"\"\\\/\b\f\n\r\t\u00Ff"`, "\"\uFFFD\"", "\"\uD7FF\uE000\"", "[]", "{}", " \t\n\r null \t\n\r",
	} {
		body := []byte(`{"a":` + value + `}`)
		if _, err := scanAll(body); err != nil {
			t.Errorf("value %q: %v", value, err)
		}
		if !json.Valid(body) || !utf8.Valid(body) {
			t.Errorf("value %q is not valid JSON", value)
		}
	}
}

// TestScanStringsOfEveryLength puts each kind of byte at each place of strings
// that are shorter and longer than all strides, before and after other kinds.
func TestScanStringsOfEveryLength(t *testing.T) {
	inserts := []string{`\n`, `\"`, `\\`, `\u00e9`, `\ud83d\ude00`, "é", "中", "🙂", "ก", "한", "\x01", "\x80", "\xed\xa0\x80", "\xc1\x81", "\xf5\x80\x80\x80", `\q`, `\u00g0`, "\x7f"}
	fills := []string{"a", "中", `\\`, `\t`, "🙂"}
	for length := range 80 {
		for _, fill := range fills {
			text := strings.Repeat(fill, length)
			for i, insert := range inserts {
				value := text + insert + strings.Repeat(fill, (length*7+i)%75)
				body := []byte(`{"user":"` + value + `"}`)
				s, err := scanAll(body)
				if valid := json.Valid(body) && utf8.Valid(body); valid != (err == nil) {
					t.Fatalf("body %q: %v, valid is %v", body, err, valid)
				}
				if err == nil {
					checkAgainstTwin(t, body, s)
				} else if want := len(`{"user":"`) + len(text); err.Offset < want || err.Offset > want+5 {
					t.Fatalf("body %q: %v, want about %d", body, err, want)
				}
			}
		}
	}
}

func TestScanDepth(t *testing.T) {
	nested := func(n int) []byte {
		return []byte(strings.Repeat(`{"a":`, n/2) + strings.Repeat(`[`, n-n/2) + strings.Repeat(`]`, n-n/2) + strings.Repeat(`}`, n/2))
	}
	if _, err := scanAll(nested(DefaultMaxDepth)); err != nil {
		t.Error(err)
	}
	_, err := scanAll(nested(DefaultMaxDepth + 1))
	if err == nil || err.What != "more than 512 objects and arrays within each other" {
		t.Errorf("one level too many: %v", err)
	}
	s := Scanner{Limits: Limits{MaxDepth: 1}}
	if _, err := s.Scan([]byte(`{"a":1}`), true); err != nil {
		t.Error(err)
	}
	s.Reset()
	if _, err := s.Scan([]byte(`{"a":{}}`), true); err == nil || err.Offset != 5 {
		t.Errorf("limit 1: %v", err)
	}
}

func TestScanBounds(t *testing.T) {
	for _, c := range []struct{ fits, over, what string }{
		{`{"messages":[{},{}]}`, `{"messages":[{},{},{}]}`, "more than 2 messages"},
		{`{"input":[{}],"messages":[{}]}`, `{"messages":[{},{}],"messages":[{}]}`, "more than 2 messages"},
		{`{"prompt":["a","b"]}`, `{"prompt":["a","b","c"]}`, "more than 2 texts and content parts"},
		{`{"messages":[{"content":[1,2]}]}`, `{"messages":[{"content":[1,2,3]}]}`, "more than 2 texts and content parts"},
		{`{"prompt":"a","system":"b"}`, `{"prompt":"a","system":"b","instructions":"c"}`, "more than 2 texts and content parts"},
		{`{"system":[{},[]]}`, `{"system":[{},[],{}]}`, "more than 2 texts and content parts"},
		{`{"prompt":[1,2]}`, `{"prompt":[1,2,3]}`, "more than 2 token ids"},
		{`{"prompt":[[1,2],[3,4,5]]}`, `{"prompt":[[1,2,3]]}`, "more than 2 token ids"},
	} {
		s := Scanner{Limits: Limits{MaxMessages: 2, MaxParts: 2, MaxTokenIDs: 2}}
		if _, err := s.Scan([]byte(c.fits), true); err != nil {
			t.Errorf("body %s: %v", c.fits, err)
		}
		s.Reset()
		if _, err := s.Scan([]byte(c.over), true); err == nil || err.What != c.what {
			t.Errorf("body %s: %v, want %q", c.over, err, c.what)
		}
	}
}

func TestScanLargestBody(t *testing.T) {
	if testing.Short() {
		t.Skip("reserves 1 GiB of address space")
	}
	body := make([]byte, MaxBodyBytes+1) // never touched
	if _, err := scanAll(body); err == nil || err.What != "body of more than 1 GiB" {
		t.Errorf("body of %d bytes: %v", len(body), err)
	}
}

func TestScanErrorStays(t *testing.T) {
	var s Scanner
	_, first := s.Scan([]byte(`{x`), false)
	_, again := s.Scan([]byte(`{x}`), true)
	if first == nil || first != again {
		t.Errorf("first %v, then %v", first, again)
	}
	if want := "parse JSON body: invalid character 'x' where an object key must begin at byte 1"; first.Error() != want {
		t.Errorf("error %q, want %q", first.Error(), want)
	}
	s.Reset()
	if done, err := s.Scan([]byte(`{}`), true); !done || err != nil {
		t.Errorf("after Reset: %v, %v", done, err)
	}
}

func TestScanShrunkBodyPanics(t *testing.T) {
	defer func() {
		if r := fmt.Sprint(recover()); !strings.HasPrefix(r, "BUG: ") {
			t.Errorf("panic %q", r)
		}
	}()
	var s Scanner
	_, _ = s.Scan([]byte(`{"a":`), false)
	_, _ = s.Scan([]byte(`{`), false)
}

// TestResultBeforeTheEnd looks at what has come while messages are open.
func TestResultBeforeTheEnd(t *testing.T) {
	body := []byte(`{"model":"m","messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"user","content":"unfin`)
	var s Scanner
	if done, err := s.Scan(body, false); done || err != nil {
		t.Fatal(done, err)
	}
	p := pictureOf(body, s.Result())
	if p.Model != "m" || len(p.Messages) != 3 || p.Messages[1].Parts[0].Text != "a" || p.Messages[2].Parts[0].Text != "unfin" {
		t.Errorf("found %+v", p)
	}
	body = append(body, `ished"}],"messages":null}`...)
	if done, err := s.Scan(body, true); !done || err != nil {
		t.Fatal(done, err)
	}
	if len(s.Result().Messages) != 0 || s.Repeated() != KeyMessages {
		t.Errorf("after the repeated key: %+v", s.Result())
	}
}

func TestScanSeenAndRepeated(t *testing.T) {
	var s Scanner
	body := []byte(`{"model":"a","stream":1,"x":{"user":1},"model":"b","prompt":"c"}`)
	_, _ = s.Scan(body[:20], false)
	if s.Seen() != KeyModel || s.Repeated() != 0 {
		t.Errorf("seen %b, repeated %b", s.Seen(), s.Repeated())
	}
	_, _ = s.Scan(body, true)
	if s.Seen() != KeyModel|KeyStream|KeyPrompt || s.Repeated() != KeyModel {
		t.Errorf("seen %b, repeated %b", s.Seen(), s.Repeated())
	}
	if !s.Seen().Has(KeyModel|KeyPrompt) || s.Seen().Has(KeyModel|KeyTools) {
		t.Error("Has is wrong")
	}
}

func TestResetDropsLargeBuffers(t *testing.T) {
	s := Scanner{Limits: Limits{MaxDepth: 9}}
	body := []byte(`{"prompt":["a"` + strings.Repeat(`,"a"`, 2*keptParts) + `]}`)
	if _, err := s.Scan(body, true); err != nil {
		t.Fatal(err)
	}
	s.Reset()
	if cap(s.parts) > keptParts || s.Limits.MaxDepth != 9 {
		t.Errorf("kept %d parts, depth limit %d", cap(s.parts), s.Limits.MaxDepth)
	}
}

func TestScanRandomSplits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	body := chatBody(mixedText(2000) + escapedText(500) + plainText(300) + chineseText(500))
	whole, err := scanAll(body)
	if err != nil {
		t.Fatal(err)
	}
	checkAgainstTwin(t, body, whole)
	for range 300 {
		var at []int
		for n := r.IntN(40); n < len(body); n += 1 + r.IntN(400) {
			at = append(at, n)
		}
		checkSplit(t, body, whole, nil, at...)
	}
}
