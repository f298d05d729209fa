package chat

import (
	"fmt"
	"strings"
	"testing"
)

func renderLimited(t *testing.T, source, vars string, limits Limits) (string, error) {
	t.Helper()
	template, err := Compile(source, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := Machine{Limits: limits}
	m.Reset()
	v, err := m.ReadJSON([]byte(vars))
	if err != nil {
		t.Fatal(err)
	}
	var out Rope
	if err := template.Render(&m, v, &out); err != nil {
		return "", err
	}
	return string(out.AppendText(nil)), nil
}

// TestLimitBounds checks each limit at its bound: the first value holds, the
// second is too little.
func TestLimitBounds(t *testing.T) {
	recursion := "{% macro f(n) %}{% if n > 1 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(20) }}"
	nesting := "{% set ns = namespace(x=[]) %}{% for i in range(18) %}{% set ns.x = [ns.x] %}{% endfor %}"
	for _, c := range []struct {
		name, source string
		enough, less Limits
	}{
		{"output", "{% for i in range(10) %}abc{% endfor %}", Limits{OutputBytes: 30}, Limits{OutputBytes: 29}},
		{"depth of macros", recursion, Limits{Depth: 20}, Limits{Depth: 19}},
		{"depth of a loop", "{% for x in [[[[]]]] recursive %}{{ loop(x) }}{% endfor %}", Limits{Depth: 5}, Limits{Depth: 3}},
		{"depth of tojson", nesting + "{{ ns.x|tojson }}", Limits{Depth: 18}, Limits{Depth: 17}},
		{"depth of text", nesting + "{{ ns.x }}", Limits{Depth: 19}, Limits{Depth: 18}},
		{"depth of equality", nesting + "{{ ns.x == [ns.x] }}", Limits{Depth: 18}, Limits{Depth: 17}},
		{"depth of order", nesting + "{{ ns.x < [ns.x] }}", Limits{Depth: 38}, Limits{Depth: 18}},
		{"depth of keys", "{% set ns = namespace(x=()) %}{% for i in range(18) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1}|length }}", Limits{Depth: 19}, Limits{Depth: 18}},
		{"depth of iterators", "{% set ns = namespace(x=[1]) %}{% for i in range(18) %}{% set ns.x = ns.x|map('string') %}{% endfor %}{{ ns.x|list }}", Limits{Depth: 19}, Limits{Depth: 17}},
		{"arena of text", "{{ ('x' * 1000000)|length }}", Limits{ArenaBytes: 1001000}, Limits{ArenaBytes: 999999}},
		{"steps of a loop", "{% for i in range(1000) %}{% endfor %}", Limits{Steps: 1100}, Limits{Steps: 999}},
		{"steps of text", "{% for i in range(10) %}{{ 'y' in x }}{% endfor %}", Limits{Steps: 100000}, Limits{Steps: 300}},
	} {
		vars := `{"x":"` + strings.Repeat("x", 100<<10) + `"}`
		if !strings.Contains(c.source, " x") {
			vars = "{}"
		}
		if _, err := renderLimited(t, c.source, vars, c.enough); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := renderLimited(t, c.source, vars, c.less); err == nil || ClassOf(err) != Limit {
			t.Errorf("%s: got %v, want a limit", c.name, err)
		}
	}
}

// TestHostileTemplates runs what would take all memory, all time or all stack.
func TestHostileTemplates(t *testing.T) {
	for _, source := range []string{
		"{{ 'x' * 10 ** 12 }}",
		"{{ [0] * 10 ** 12 }}",
		"{{ 'x' * 9223372036854775807 }}",
		"{{ 10 ** 100000 }}",
		"{% set ns = namespace(x='x') %}{% for i in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
		"{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
		"{% set ns = namespace(x=3) %}{% for i in range(100) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
		"{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
		"{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
		"{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x|tojson(indent=4) }}",
		"{% set ns = namespace(x=[1]) %}{% for i in range(5000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}{{ ns.x|first }}",
		"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
		"{% for a in range(99999) %}{{ 'abcdefghij' * 10000 }}{% endfor %}",
		"{{ '%1000000000d' % 1 }}",
		"{{ '{:1000000000}'.format('') }}",
		"{{ 'a'.center(10 ** 11) }}",
		"{{ ['a']|batch(10 ** 11, 0)|list }}",
		"{{ ''.join(range(99999)|map('string'))|replace('', 'x' * 99999) }}",
		"{% for x in [[[[]]]] recursive %}{{ loop([[x]]) }}{% endfor %}",
	} {
		_, err := renderLimited(t, source, "{}", Limits{})
		if err == nil || ClassOf(err) != Limit && ClassOf(err) != Inexact {
			t.Errorf("%s: got %v, want a limit", source, err)
		}
	}
}

// TestHostileSources compiles what is nested too deeply, or too long.
func TestHostileSources(t *testing.T) {
	for _, source := range []string{
		"{{ " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + " }}",
		"{{ " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + " }}",
		"{{ " + strings.Repeat("-", 1000) + "1 }}",
		"{{ " + strings.Repeat("not ", 1000) + "1 }}",
		"{{ x" + strings.Repeat(".a", 1000) + " }}",
		"{{ x" + strings.Repeat("|e", 1000) + " }}",
		"{{ x" + strings.Repeat(" - 1", 1000) + " }}",
		"{{ x" + strings.Repeat(" if x else 1", 1000) + " }}",
		"{{ x" + strings.Repeat("[0", 1000) + strings.Repeat("]", 1000) + " }}",
		strings.Repeat("{% if x %}", 1000) + strings.Repeat("{% endif %}", 1000),
		strings.Repeat("{% for x in y %}", 1000) + strings.Repeat("{% endfor %}", 1000),
		strings.Repeat(" ", mostSource+1),
	} {
		if _, err := Compile(source, Options{}); err == nil || ClassOf(err) != Unsupported {
			t.Errorf("%.40s: got %v, want it refused", source, err)
		}
	}
	if _, err := Compile(strings.Repeat(" ", mostSource), Options{}); err != nil {
		t.Errorf("at the bound: %v", err)
	}
}

// TestErrorsSayWhere checks that errors name template, line and construct.
func TestErrorsSayWhere(t *testing.T) {
	_, err := Compile("a\n\n{% for x in y %}\n{% wat %}{% endfor %}", Options{Name: "qwen"})
	if want := `chat: unsupported: qwen: template line 4: the tag "wat"`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	template, err := Compile("a\n{{ x.y\n.z }}", Options{Name: "qwen"})
	if err != nil {
		t.Fatal(err)
	}
	var m Machine
	var out Rope
	err = template.Render(&m, m.Dict(0), &out)
	if want := `chat: raised: qwen: template line 2: 'x' is undefined`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if got := string(out.AppendText(nil)); got != "a\n" {
		t.Errorf("output up to the error is %q", got)
	}
}
