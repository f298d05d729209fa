package chat

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestOutputBorrows checks that messages get into the output without a copy,
// still escaped.
func TestOutputBorrows(t *testing.T) {
	body := []byte(`{"messages":[{"role":"user","content":"  Say \"hi\"\n "},{"role":"assistant","content":"plain text"}]}`)
	template, err := Compile("{% for m in messages %}{{ '<' + m.role + '>' + m.content|trim ~ '</>' }}{% endfor %}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var m Machine
	var out Rope
	vars, err := m.ReadJSON(body)
	if err == nil {
		err = template.Render(&m, vars, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	inBody := func(b []byte) bool {
		i := bytes.Index(body, b)
		return i >= 0 && &body[i] == &b[0]
	}
	borrowed := 0
	for _, s := range out.Segments {
		if len(s.Bytes) > 4 && inBody(s.Bytes) {
			borrowed++
		}
		if s.Escaped && string(s.Bytes) != `Say \"hi\"` {
			t.Errorf("escaped segment %q", s.Bytes)
		}
	}
	if borrowed != 3 { // two contents and "assistant"
		t.Errorf("%d segments lie in the body: %v", borrowed, out.Segments)
	}
	if got, want := string(out.AppendText(nil)), "<user>Say \"hi\"</><assistant>plain text</>"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if out.Size() < len(out.AppendText(nil)) {
		t.Errorf("size %d is less than the text", out.Size())
	}
}

// TestUses checks what a template says about itself.
func TestUses(t *testing.T) {
	template, err := Compile("{% set a = 1 %}{{ a }}{{ tools }}{% macro m(p) %}{{ p }}{{ inner }}{% endmacro %}{% if strftime_now is defined and false %}{{ strftime_now('%d') }}{% endif %}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"tools": true, "inner": true, "a": false, "p": false, "other": false} {
		if template.Uses(name) != want {
			t.Errorf("Uses(%q) is %v", name, !want)
		}
	}
	var m Machine
	var out Rope
	if err := template.Render(&m, m.Dict(0), &out); err != nil {
		t.Fatal(err)
	}
	if !template.UsesTime() || m.UsedTime() {
		t.Errorf("UsesTime %v, UsedTime %v: want it mentioned and not used", template.UsesTime(), m.UsedTime())
	}
}

// TestDictTwin compares dicts of all sizes with a list of pairs.
func TestDictTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var m Machine
		d := m.Dict(random.IntN(4))
		type pair struct{ key, value string }
		var twin []pair
		for range random.IntN(80) {
			key, value := strconv.Itoa(random.IntN(50)), strconv.Itoa(random.IntN(1000))
			m.Set(d, key, m.Copy(value))
			found := false
			for i := range twin {
				if twin[i].key == key {
					twin[i].value, found = value, true
				}
			}
			if !found {
				twin = append(twin, pair{key, value})
			}
		}
		if d.Len() != len(twin) {
			t.Fatalf("%d members, want %d", d.Len(), len(twin))
		}
		for i, p := range twin {
			key, value := d.Entry(i)
			got, ok := d.Get(p.key)
			if !key.Is(p.key) || !value.Is(p.value) || !ok || !got.Is(p.value) {
				t.Fatalf("member %d is %q: %q, want %v", i, m.Bytes(key), m.Bytes(value), p)
			}
		}
		if _, ok := d.Get("none"); ok {
			t.Fatal("a key that was never set")
		}
	}
}

// TestMachineIsReused checks that a second use has nothing of the first, and
// that memory grows no more.
func TestMachineIsReused(t *testing.T) {
	template, err := Compile("{{ x|default('gone') }}{{ x|tojson if x }}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var m Machine
	for i := range 50 {
		m.Reset()
		vars := m.Dict(1)
		want := "gone"
		if i%2 == 0 {
			list := m.List()
			for n := range i * 10 {
				m.Append(list, Int(int64(n)))
			}
			m.Set(vars, "x", list)
			m.Set(vars, "x", m.Copy("é"))
			want = `é"é"`
		}
		var out Rope
		if err := template.Render(&m, vars, &out); err != nil {
			t.Fatal(err)
		}
		if got := string(out.AppendText(nil)); got != want {
			t.Fatalf("use %d: got %q, want %q", i, got, want)
		}
	}
}

// FuzzRender compiles and renders anything: it must end, within its limits.
func FuzzRender(f *testing.F) {
	for _, name := range benchTemplates {
		if source, own, ok := templateSource(name); ok && own {
			f.Add(source, `{"messages":[{"role":"user","content":"a\n"},{"role":"assistant","content":"b"}],"tools":[{"a":1}]}`)
		}
	}
	for _, seed := range []string{
		"{% for x in messages recursive %}{{ loop(x) }}{% endfor %}",
		"{% macro m(a, b=a) %}{{ caller(a) }}{% endmacro %}{% call(x) m(1) %}{{ x }}{% endcall %}",
		"{{ messages|selectattr('role', 'eq', 'user')|map(attribute='content')|join(',')|replace('a', 'b') }}",
		"{{ '%5.2f' % 1.5 }}{{ '{:>5}'.format(1) }}{{ messages[::-1][0].content.split('\\n', 1)|last }}",
		"{% set ns = namespace(a=[]) %}{% for i in range(3) %}{% set ns.a = ns.a + [i] %}{% endfor %}{{ ns.a|sort|tojson(indent=2) }}",
	} {
		f.Add(seed, `{"messages":[{"role":"user","content":"a\\\u00e9\n"},[[1]],2.5,null]}`)
	}
	f.Fuzz(func(t *testing.T, source, vars string) {
		template, err := Compile(source, Options{})
		if err != nil {
			if ClassOf(err) != Unsupported {
				t.Fatalf("class %v: %v", ClassOf(err), err)
			}
			return
		}
		m := Machine{Limits: Limits{Steps: 20000, Depth: 40, OutputBytes: 1 << 20, ArenaBytes: 4 << 20}, Now: goldenNow}
		m.Reset()
		v, err := m.ReadJSON([]byte(vars))
		if err != nil || v.Kind() != KindDict {
			return
		}
		var out Rope
		if err := template.Render(&m, v, &out); err == nil {
			out.AppendText(nil)
		}
	})
}

// TestRenderAllocs checks that a warm Machine renders plain messages without
// allocating, for templates of the kinds that Llama 3 and Qwen 3 have.
func TestRenderAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	body := longConversation(34 << 10)
	for _, name := range []string{"chatml_think", "chatml_tools", "header_date", "qwen3", "qwen2_5", "llama3_2", "deepseek_v3"} {
		source, _, ok := templateSource(name)
		if !ok {
			continue
		}
		template, err := Compile(source, Options{})
		if err != nil {
			t.Fatal(err)
		}
		m := Machine{Now: goldenNow}
		var out Rope
		allocs := testing.AllocsPerRun(50, func() {
			m.Reset()
			out.Reset()
			vars, err := m.ReadJSON(body)
			if err == nil {
				err = template.Render(&m, vars, &out)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}
