package dataplane_test

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"warmpath/dataplane"
	"warmpath/dataplane/chat"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prompt"
	"warmpath/dataplane/tokenize"
)

// allProved are nodes that are proved for all classes.
func allProved(slot int, n *fleet.Node) {
	proved(slot, n)
	n.Exact = 1<<prompt.Classes - 1
}

// hermes is a template that walks a schema by macros which call themselves, as
// those of Hermes and gpt-oss do. It follows $ref to the root, where it may
// come by again.
const hermes = `{%- macro type(s, root) -%}
{%- if '$ref' in s -%}{{ type(root, root) }}
{%- elif 'properties' in s -%}{ {%- for k, v in s.properties.items() %}{{ k }}: {{ type(v, root) }}, {% endfor -%} }
{%- elif 'items' in s -%}{{ type(s['items'], root) }}[]
{%- else -%}{{ (s.type or 'any') | tojson }}
{%- endif -%}
{%- endmacro -%}
{%- for t in tools or [] %}{{ t.function.name }}({{ type(t.function.parameters, t.function.parameters) }}){{ t | tojson }}
{% endfor -%}
{%- for m in messages %}{{ '<|im_start|>' + m.role }}
{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{{ '<|im_end|>' }}
{% endfor %}`

// roomy lets bodies be long.
func roomy(s *dataplane.Settings) { s.BodyBytes = 64 << 20 }

func user(content string) string {
	return `{"model":"m","messages":[{"role":"user","content":` + content + `}]}`
}

func withTools(parameters string) string {
	return `{"model":"m","messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f","parameters":` + parameters + `}}]}`
}

func nested(open, inside, end string, depth int) string {
	return strings.Repeat(open, depth) + inside + strings.Repeat(end, depth)
}

func many(count int, one string) string {
	return strings.TrimSuffix(strings.Repeat(one+",", count), ",")
}

// numbered is many with different ones: each %d is the number.
func numbered(count int, one string) string {
	var b strings.Builder
	for i := range count {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, one, i)
	}
	return b.String()
}

func quoted(text string) string { return `"` + text + `"` }

// TestHostileBodies: whatever a body has, the request ends soon, refused by the
// router (part of the error) or sent on (part of why its tokens are not known;
// "" if they are), and the next one is served.
func TestHostileBodies(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes minutes of it; make allocs runs it without")
	}
	message := `{"role":"user","content":"a"}`
	call := `{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}`
	for _, c := range []struct {
		name, body string
		refused    string
		inexact    string
	}{
		{"deep schema", withTools(nested(`{"items":`, `{}`, `}`, 1e5)), "within each other", ""},
		{"deep lists", withTools(`{"enum":` + nested(`[`, ``, `]`, 1e5) + `}`), "within each other", ""},
		{"schema as deep as the router reads", withTools(nested(`{"items":`, `{}`, `}`, 500)), "", "nested too deeply"},
		{"schema as deep as the router renders", withTools(nested(`{"items":`, `{}`, `}`, 60)), "", ""},
		{"schema that refers to itself", withTools(`{"properties":{"x":{"$ref":"#"}}}`), "", "nested too deeply"},
		{"schema that refers to itself twice", withTools(`{"properties":{"x":{"$ref":"#"},"y":{"$ref":"#"}}}`), "", "nested too deeply"},
		{"deep arguments", `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"` + nested("[", "", "]", 1e5) + `"}}]}]}`, "", "nested too deeply"},
		{"many properties", withTools(`{"properties":{` + numbered(3e4, `"p%d":{"type":"string"}`) + `}}`), "", ""},
		{"many properties of one name", withTools(`{"properties":{` + many(1e5, `"p":{"type":"string"}`) + `}}`), "", ""},
		{"many tools", `{"model":"m","messages":[` + message + `],"tools":[` + many(1e5, `{"type":"function","function":{"name":"f"}}`) + `]}`, "", "too m"},
		{"many arguments of the template", `{"model":"m","messages":[` + message + `],"chat_template_kwargs":{` + numbered(1e5, `"k%d":1`) + `}}`, "", ""},
		{"a million messages", `{"model":"m","messages":[` + many(1e6, `{"role":"user"}`) + `]}`, "messages", ""},
		{"as many messages as the router reads", `{"model":"m","messages":[` + many(1<<16, message) + `]}`, "", "too m"},
		{"many parts", user(`[` + many(1<<18, `{"type":"text","text":"a"}`) + `]`), "", "too m"},
		{"too many parts", user(`[` + many(1<<18+1, `{"type":"text","text":"a"}`) + `]`), "content parts", ""},
		{"many tool calls", `{"model":"m","messages":[{"role":"assistant","tool_calls":[` + many(1e5, call) + `]}]}`, "", "too m"},
		{"too many ids", `{"model":"m","prompt":[` + many(1<<22+1, "1") + `]}`, "token ids", ""},
		{"one letter", user(quoted(strings.Repeat("a", 1<<20))), "", ""},
		{"one space", user(quoted(strings.Repeat(" ", 1<<20))), "", ""},
		{"one character of four bytes", user(quoted(strings.Repeat("🙂", 1<<18))), "", ""},
		{"one escape", user(quoted(strings.Repeat(`\u0061`, 1<<18))), "", ""},
		{"backslashes", user(quoted(strings.Repeat(`\\`, 1<<19) + strings.Repeat(`\"`, 1<<18))), "", ""},
		{"NULs", user("\"a\x00b\""), "invalid", ""},
		{"escaped NULs", user(quoted(strings.Repeat(`\u0000`, 1e5))), "", ""},
		{"half a surrogate pair", user(`"a\ud800b"`), "", "half of a surrogate pair"},
		{"the other half", user(`"\udc00\ud800"`), "", "half of a surrogate pair"},
		{"half a pair in a key", withTools(`{"\ud800":1}`), "", "half of a surrogate pair"},
		{"no UTF-8", user("\"a\xff\xfeb\""), "UTF-8", ""},
		{"UTF-8 of a surrogate", user("\"\xed\xa0\x80\""), "UTF-8", ""},
		{"a long whole number", withTools(`{"maximum":` + strings.Repeat("9", 1e5) + `}`), "", "digits"},
		{"as long a number as Python reads", withTools(`{"maximum":` + strings.Repeat("9", 4300) + `}`), "", ""},
		{"a large number", withTools(`{"maximum":1e999999999,"minimum":-1e-999999999}`), "", ""},
		{"a long fraction", withTools(`{"maximum":0.` + strings.Repeat("3", 1e6) + `}`), "", ""},
		{"a long name of a model", `{"model":"` + strings.Repeat("m", 1<<20) + `","prompt":"a"}`, "does not exist", ""},
		{"a long salt", `{"model":"m","cache_salt":"` + strings.Repeat("s", 1<<20) + `","messages":[` + message + `]}`, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, setup{node: allProved, set: roomy}, startNode(t, "a", discards))
			r.exactlyWith(hermes, nil)
			cl := r.dial()
			go func() { _, _ = io.WriteString(cl, post("hostile", c.body)) }() // the router may refuse it while it comes
			got := cl.answer("POST")
			if refused := got.StatusCode != 200; refused != (c.refused != "") || !strings.Contains(got.body, c.refused) || len(got.body) > 4096 {
				t.Fatalf("got %d %.500q, want %q", got.StatusCode, got.body, c.refused)
			}
			if c.refused == "" {
				expectLevel(t, r, "hostile", c.inexact)
			}
			r.dial().alive()
			r.settled()
		})
	}
}

// expectLevel checks how a request was identified: by its tokens, or by its text
// for a reason that has a part.
func expectLevel(t *testing.T, r *router, id, inexact string) {
	t.Helper()
	rec := r.record(id)
	exact := rec.Exactness == dataplane.ExactTokens
	if exact != (inexact == "") || !strings.Contains(rec.Inexact, inexact) {
		t.Errorf("identified by %v (%s), want %q", rec.Exactness, rec.Inexact, inexact)
	}
}

// discards answers each request without keeping it.
func discards(c *conn) {
	for {
		n, found := int64(0), false
		for {
			line, err := c.r.ReadString('\n')
			if err != nil {
				return
			}
			if _, err := fmt.Sscanf(strings.ToLower(line), "content-length: %d", &n); err == nil {
				found = true
			}
			if line == "\r\n" {
				break
			}
		}
		if _, err := io.CopyN(io.Discard, c.r, n); err != nil || !found {
			return
		}
		c.send(ok("{}"))
	}
}

// TestHostileTemplates: a template that would work for ever, or fill the
// memory, is given up; the prompt is routed by its text.
func TestHostileTemplates(t *testing.T) {
	if raceEnabled {
		t.Skip("rendering is one goroutine's, and the race detector makes it ten times as long")
	}
	const forever = "{% for a in range(100000) %}{% for b in range(100000) %}"
	for name, c := range map[string]struct{ source, inexact string }{
		"loops":             {forever + "{{ a }}{% endfor %}{% endfor %}", "too many steps"},
		"empty loops":       {forever + "{% endfor %}{% endfor %}", "too many steps"},
		"a long list":       {"{% set x = range(100000)|list %}{% for i in range(100000) %}{% set x = x + x %}{{ x|length }}{% endfor %}", "too m"},
		"a long range":      {"{{ range(1000000000000)|list|length }}", "range"},
		"repeated text":     {"{{ 'x' * 10000000000 }}", "too much memory"},
		"text again":        {"{% for i in range(100000) %}{{ 'x' * 50000000 }}{% endfor %}", "too "},
		"doubled text":      {"{% set n = namespace(s='xx') %}{% for i in range(100) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s|upper|length }}", "too "},
		"replaced text":     {"{% set n = namespace(s='xx') %}{% for i in range(100) %}{% set n.s = n.s.replace('x', 'xxxx') %}{% endfor %}{{ n.s }}", "too "},
		"joined text":       {"{% set n = namespace(s='xx') %}{% for i in range(100) %}{% set n.s = [n.s, n.s, n.s]|join(n.s) %}{% endfor %}{{ n.s }}", "too "},
		"split text":        {"{% set s = 'x ' * 1000000 %}{% for i in range(100000) %}{{ s.split(' ')|length }}{% endfor %}", "too "},
		"searched text":     {"{% set s = 'x' * 1000000 %}{% set p = 'x' * 500000 ~ 'y' %}{% for i in range(100000) %}{{ p in s }}{{ s.find(p) }}{{ s.count(p) }}{% endfor %}", "too "},
		"compared text":     {"{% set s = 'x' * 1000000 %}{% set p = 'x' * 1000000 %}{% for i in range(100000) %}{{ s == p }}{% endfor %}", "too "},
		"wide text":         {"{{ 'x'.center(10000000000) }}{{ '%1000000000d' % 1 }}", "too "},
		"indented":          {"{{ messages|tojson(indent=10000000000) }}", ""},
		"macro":             {"{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}", "nested too deeply"},
		"macro of two":      {"{% macro f(x) %}{{ f(x) ~ f(x) }}{% endmacro %}{{ f(1) }}", "nested too deeply"},
		"recursive loop":    {"{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}", "nested too deeply"},
		"filter in filters": {"{% set x = range(100000) %}{% for i in range(1000) %}{{ x|map('string')|select|map('int')|sum }}{% endfor %}", "too many steps"},
		"large number":      {"{{ 10 ** 1000000000 }}", "too many digits"},
		"squared number":    {"{% set n = namespace(x=3) %}{% for i in range(100) %}{% set n.x = n.x * n.x %}{% endfor %}{{ n.x }}", "too many digits"},
		"names":             {"{% macro f() %}{{ kwargs|length }}{% endmacro %}{% set n = namespace(d={}) %}{% for i in range(100000) %}{% for k in range(9) %}{{ f(**messages[0]) }}{% endfor %}{% endfor %}", "too "},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, setup{node: allProved, set: roomy}, startNode(t, "a", discards))
			r.exactlyWith(c.source, nil)
			cl := r.dial()
			cl.send(post("bomb", user(quoted(strings.Repeat("words ", 100)))))
			if got := cl.answer("POST"); got.StatusCode != 200 {
				t.Fatalf("got %d %q", got.StatusCode, got.body)
			}
			rec := r.record("bomb")
			if rec.Exactness != dataplane.ExactText || !strings.Contains(rec.Inexact, c.inexact) {
				t.Errorf("identified by %v (%s), want by text: %s", rec.Exactness, rec.Inexact, c.inexact)
			}
			r.settled()
		})
	}
}

// blocking is a tokenizer that stands still at long texts.
type blocking struct {
	*tokenize.Tokenizer
	entered, resume chan struct{}
}

func (b *blocking) Append(ids []uint32, text []byte, s *tokenize.Scratch) []uint32 {
	if len(text) > 100_000 {
		b.entered <- struct{}{}
		<-b.resume
	}
	return b.Tokenizer.Append(ids, text, s)
}

// block gives the model a tokenizer that stands still.
func (r *router) block() *blocking {
	b := &blocking{entered: make(chan struct{}), resume: make(chan struct{})}
	r.exactlyWith(chatML, func(o *prompt.Options) {
		b.Tokenizer = o.Tokenizer.(*tokenize.Tokenizer)
		o.Tokenizer = b
	})
	return b
}

// TestHostileTextLeavesTheLoop: while a text that cannot be cut is made into
// tokens, other connections of the same loop are served.
func TestHostileTextLeavesTheLoop(t *testing.T) {
	r := start(t, setup{node: proved}, startNode(t, "a", discards))
	b := r.block()
	slow, other := r.dial(), r.dial()
	slow.send(post("slow", user(quoted(strings.Repeat("a", 200_000)))))
	<-b.entered
	for i := range 3 {
		id := fmt.Sprint("other", i)
		other.send(post(id, prompt2(id, 2000)))
		if got := other.answer("POST"); got.StatusCode != 200 {
			t.Fatalf("got %d %s", got.StatusCode, got.body)
		}
	}
	close(b.resume)
	if got := slow.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("got %d %s", got.StatusCode, got.body)
	}
	r.record("slow")
	r.settled()
}

// TestHostileWaitEnds: a prompt that a worker does not come to an end with is
// routed by its text; what the worker has of it is not touched meanwhile.
func TestHostileWaitEnds(t *testing.T) {
	r := start(t, setup{node: proved, set: func(s *dataplane.Settings) { s.IdentifyNs = int64(50e6) }}, startNode(t, "a", discards))
	b := r.block()
	c := r.dial()
	c.send(post("late", user(quoted(strings.Repeat("a", 200_000)))))
	<-b.entered
	if got := c.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("got %d %s", got.StatusCode, got.body)
	}
	expectText(t, r, "late", "not known in time")
	for i := range 20 { // the body's memory must not be used again
		c.send(post(fmt.Sprint("next", i), prompt2("next", 200_000)))
		if got := c.answer("POST"); got.StatusCode != 200 {
			t.Fatalf("got %d %s", got.StatusCode, got.body)
		}
	}
	close(b.resume)
	r.settled()
	if n := r.d.Totals().WorkFull; n == 0 {
		t.Error("the prompt that was late is not counted")
	}
}

func expectText(t *testing.T, r *router, id, inexact string) {
	t.Helper()
	if rec := r.record(id); rec.Exactness != dataplane.ExactText || !strings.Contains(rec.Inexact, inexact) {
		t.Errorf("identified by %v (%s), want by text: %s", rec.Exactness, rec.Inexact, inexact)
	}
}

// TestHostileRenderingLeavesTheLoop: a template that has much to do is rendered
// by a worker, from the start where the body says so, else when the loop's time
// for it is over; other connections are served meanwhile.
func TestHostileRenderingLeavesTheLoop(t *testing.T) {
	const slow = `{%- if messages[0].content[:4] == 'slow' %}{% for a in range(20000) %}{% endfor %}{% endif %}` + chatML
	for name, c := range map[string]struct {
		body    string
		workers int32 // call of Begin that must be a worker's
	}{
		"large body":     {user(quoted(strings.Repeat("words and ", 200_000))), 1},
		"large schema":   {withTools(`{"properties":{` + numbered(3000, `"p%d":{"type":"string"}`) + `}}`), 1},
		"large template": {user(quoted("slow " + strings.Repeat("words ", 50))), 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, setup{node: allProved, set: roomy}, startNode(t, "a", discards))
			entered, resume := make(chan struct{}), make(chan struct{})
			var calls atomic.Int32
			r.exactlyWith(slow, func(o *prompt.Options) {
				o.Clock = func() chat.Clock { // Begin asks for the time first
					if calls.Add(1) == c.workers {
						close(entered)
						<-resume
					}
					return chat.Clock{}
				}
			})
			cl := r.dial()
			cl.send(post("slow", c.body))
			<-entered
			r.dial().alive()
			other := r.dial()
			other.send(post("other", prompt1("other")))
			if got := other.answer("POST"); got.StatusCode != 200 {
				t.Fatalf("got %d %s", got.StatusCode, got.body)
			}
			close(resume)
			if got := cl.answer("POST"); got.StatusCode != 200 {
				t.Fatalf("got %d %s", got.StatusCode, got.body)
			}
			expectLevel(t, r, "slow", "")
			r.settled()
		})
	}
}

// TestHostileLength: a body of 100 MB is sent on by what the text of its
// beginning says, needs no more memory than its own a few times over, and
// leaves none behind.
func TestHostileLength(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes minutes of it; make allocs runs it without")
	}
	const size = 100 << 20
	r := start(t, setup{node: proved, alone: true, set: func(s *dataplane.Settings) { s.BodyBytes = size + 1000 }}, startNode(t, "a", discards))
	r.exactly()
	head, tail := `{"model":"m","messages":[{"role":"user","content":"`, `"}]}`
	piece := []byte(strings.Repeat("words and more ", 1<<16))
	pieces := size / len(piece)
	c := r.dial()
	before := heap()
	c.send(fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: long\r\nContent-Length: %d\r\n\r\n%s", len(head)+pieces*len(piece)+len(tail), head))
	for range pieces {
		_, _ = c.Write(piece)
	}
	c.send(tail)
	if got := c.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("got %d %s", got.StatusCode, got.body)
	}
	if rec := r.record("long"); rec.Exactness != dataplane.ExactText {
		t.Errorf("identified by %v, want by text", rec.Exactness)
	}
	r.settled()
	after := heap()
	if made := after.TotalAlloc - before.TotalAlloc; made > 8*size {
		t.Errorf("%d MB were allocated for %d MB", made>>20, size>>20)
	}
	if left := int64(after.HeapAlloc) - int64(before.HeapAlloc); left > 8<<20 {
		t.Errorf("%d MB are left", left>>20)
	}
}

func heap() (s runtime.MemStats) {
	for range 3 { // pools keep what they have for two collections
		runtime.GC()
	}
	runtime.ReadMemStats(&s)
	return s
}
