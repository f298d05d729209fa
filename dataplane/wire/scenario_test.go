package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"warmpath/scenariotest"
)

// TestScenarios runs testdata/*.txt. A case is a command with arguments
// (key=value) and input lines with Go escapes, which are joined as they are.
func TestScenarios(t *testing.T) {
	scenariotest.Run(t, "testdata/*.txt", func(t *testing.T, c scenariotest.Case) string {
		return runCase(t, c.Command(), strings.Join(c.Input[1:], ""))
	})
}

func runCase(t *testing.T, words []string, input string) string {
	args := map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	b := unescape(t, input)
	switch words[0] {
	case "request":
		return traceRequest(t, b, limitsOf(t, args))
	case "response":
		return traceResponse(t, b, limitsOf(t, args), methodOf([]byte(args["to"])))
	case "body":
		return traceBody(t, b, args)
	case "forward":
		return traceForward(t, b, args)
	case "relay":
		return traceRelay(t, b, args)
	}
	t.Fatalf("unknown command %q", words[0])
	return ""
}

// unescape reads Go escapes, and {text*n} as text repeated n times.
func unescape(t testing.TB, s string) []byte {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(s, "{")
		out.WriteString(before)
		if !found {
			break
		}
		inner, after, _ := strings.Cut(rest, "}")
		text, times, _ := strings.Cut(inner, "*")
		out.WriteString(strings.Repeat(text, number(t, times)))
		s = after
	}
	v, err := strconv.Unquote(`"` + strings.ReplaceAll(out.String(), `"`, `\"`) + `"`)
	if err != nil {
		t.Fatalf("unquote %q: %v", s, err)
	}
	return []byte(v)
}

func number(t testing.TB, s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func limitsOf(t *testing.T, args map[string]string) *Limits {
	var lim Limits
	for k, p := range map[string]*int{"head": &lim.HeadBytes, "fields": &lim.Fields, "target": &lim.TargetBytes} {
		if v, ok := args[k]; ok {
			*p = number(t, v)
		}
	}
	return &lim
}

var kindNames = [...]string{"none", "length", "chunked", "until-close"}

func traceError(err *Error) string { return fmt.Sprintf("%d %s", err.Status, err.Code) }

func traceFields(out *strings.Builder, b []byte, fields []Field) {
	for _, f := range fields {
		mark := ' '
		if f.Drop {
			mark = '-'
		}
		fmt.Fprintf(out, "\n%c %s: %q", mark, f.Name.Of(b), f.Value.Of(b))
	}
}

func flags(pairs ...any) string {
	var out strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1].(bool) {
			out.WriteString(" " + pairs[i].(string))
		}
	}
	return out.String()
}

// show prints all of a head but where its parse stands.
func show(v any) string {
	switch r := v.(type) {
	case Request:
		r.h = head{}
		return fmt.Sprint(r)
	case Response:
		r.h = head{}
		return fmt.Sprint(r)
	}
	panic("BUG: no head")
}

// parseRequest parses b whole, and checks that byte by byte gives the same.
func parseRequest(t *testing.T, b []byte, lim *Limits) (*Request, int, *Error) {
	t.Helper()
	var whole, slow Request
	whole.Reset()
	n, err := whole.Parse(b, lim)
	slow.Reset()
	for end := 0; end <= len(b); end++ {
		m, e := slow.Parse(b[:end], lim)
		if m == 0 && e == nil {
			continue
		}
		if m != n || e != err || e == nil && show(slow) != show(whole) {
			t.Errorf("%q: whole %d %v %v, byte by byte %d %v %v", b, n, err, whole, m, e, slow)
		}
		return &whole, n, err
	}
	if n != 0 || err != nil {
		t.Errorf("%q: whole %d %v, byte by byte nothing", b, n, err)
	}
	return &whole, n, err
}

func traceRequest(t *testing.T, b []byte, lim *Limits) string {
	r, n, err := parseRequest(t, b, lim)
	if err != nil {
		return traceError(err)
	}
	if n == 0 {
		return "more"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s path=%s query=%s host=%s 1.%d body=%s length=%d%s, %d bytes", r.Method, r.MethodName.Of(b), r.Path.Of(b),
		r.Query.Of(b), r.Host.Of(b), r.Minor, kindNames[r.Body], r.ContentLength,
		flags("keep-alive", r.KeepAlive, "expect", r.ExpectContinue, "upgrade", r.Upgrade), n)
	traceFields(&out, b, r.Fields)
	return out.String()
}

func parseResponse(t *testing.T, b []byte, lim *Limits, request Method) (*Response, int, *Error) {
	t.Helper()
	var whole, slow Response
	whole.Reset()
	n, err := whole.Parse(b, lim, request)
	slow.Reset()
	for end := 0; end <= len(b); end++ {
		m, e := slow.Parse(b[:end], lim, request)
		if m == 0 && e == nil {
			continue
		}
		if m != n || e != err || e == nil && show(slow) != show(whole) {
			t.Errorf("%q: whole %d %v %v, byte by byte %d %v %v", b, n, err, whole, m, e, slow)
		}
		return &whole, n, err
	}
	if n != 0 || err != nil {
		t.Errorf("%q: whole %d %v, byte by byte nothing", b, n, err)
	}
	return &whole, n, err
}

func traceResponse(t *testing.T, b []byte, lim *Limits, request Method) string {
	r, n, err := parseResponse(t, b, lim, request)
	if err != nil {
		return traceError(err)
	}
	if n == 0 {
		return "more"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d %q 1.%d body=%s length=%d%s, %d bytes", r.Status, r.Reason.Of(b), r.Minor, kindNames[r.Body],
		r.ContentLength, flags("keep-alive", r.KeepAlive, "events", r.EventStream), n)
	traceFields(&out, b, r.Fields)
	return out.String()
}

// readBody feeds b in pieces of at most size bytes.
func readBody(d *Body, b []byte, size int) (content []byte, used int, err *Error) {
	content, _, used, err = readKept(d, b, size)
	return content, used, err
}

// readKept does that too; kept is what was consumed but for trailer fields.
func readKept(d *Body, b []byte, size int) (content, kept []byte, used int, err *Error) {
	for used < len(b) && !d.Done() {
		piece := b[used:min(len(b), used+size)]
		data, n, e := d.Next(piece)
		used += n
		if !d.TrailerFields() {
			kept = append(kept, piece[:n]...)
		}
		if e != nil {
			return content, kept, used, e
		}
		content = append(content, data.Of(piece)...)
	}
	return content, kept, used, nil
}

func traceBody(t *testing.T, b []byte, args map[string]string) string {
	kind, length := BodyChunked, int64(0)
	if v, ok := args["length"]; ok {
		kind, length = BodyLength, int64(number(t, v))
	}
	if _, ok := args["until-close"]; ok {
		kind = BodyUntilClose
	}
	var trace string
	for _, size := range []int{len(b) + 1, 1, 2, 3, 7} {
		var d Body
		d.Start(kind, length)
		content, kept, used, err := readKept(&d, b, size)
		got := fmt.Sprintf("%q, %d bytes", content, used)
		if len(content) > 100 {
			got = fmt.Sprintf("%d bytes of content, %d bytes", len(content), used)
		}
		switch {
		case err != nil:
			got += ", " + traceError(err)
		case d.Done():
			got += ", done"
			if len(kept) < used {
				got += fmt.Sprintf(", %q without trailers", kept)
			}
		default:
			got += ", more"
			if e := d.End(); e != nil {
				got += ", at close " + traceError(e)
			} else if !d.Done() {
				t.Error("not done after a good end")
			}
		}
		if trace == "" {
			trace = got
		} else if got != trace {
			t.Errorf("%q in pieces of %d: %s, whole: %s", b, size, got, trace)
		}
	}
	return trace
}

func optional(args map[string]string, key string) []byte {
	if v, ok := args[key]; ok {
		return []byte(v)
	}
	return nil
}

func optionalNumber(t *testing.T, args map[string]string, key string) int {
	if v, ok := args[key]; ok {
		return number(t, v)
	}
	return -1
}

func showHead(head []byte) string {
	if !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		return fmt.Sprintf("no end: %q", head)
	}
	lines := strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
	return strings.Join(lines, "\n")
}

func traceForward(t *testing.T, b []byte, args map[string]string) string {
	r, n, err := parseRequest(t, b, nil)
	if n == 0 {
		t.Fatalf("%q: %v", b, err)
	}
	o := RequestOptions{
		PathPrefix: args["prefix"], Host: args["host"], ContentLength: int64(optionalNumber(t, args, "length")),
		RequestID: optional(args, "id"), ForwardedFor: optional(args, "for"), RealIP: optional(args, "ip"),
		ForwardedProto: optional(args, "proto"), Rank: optionalNumber(t, args, "rank"),
	}
	return showHead(AppendRequestHead(nil, b, r, &o))
}

func traceRelay(t *testing.T, b []byte, args map[string]string) string {
	r, n, err := parseResponse(t, b, nil, methodOf([]byte(args["to"])))
	if n == 0 {
		t.Fatalf("%q: %v", b, err)
	}
	o := ResponseOptions{
		Minor: 1, RequestID: optional(args, "id"), RoutedTo: optional(args, "node"), DurationSeconds: -1,
		ContentLength: int64(optionalNumber(t, args, "length")),
	}
	_, o.KeepAlive = args["keep-alive"]
	_, o.Chunked = args["chunked"]
	if _, ok := args["1.0"]; ok {
		o.Minor = 0
	}
	if v, ok := args["ms"]; ok {
		o.DurationSeconds = float64(number(t, v)) / 1000
	}
	out := showHead(AppendResponseHead(nil, b, r, &o))
	if o.MustClose(r) {
		out += "\n(must close)"
	}
	return out
}
