package message

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"warmpath/scaler/actuate"
)

func TestAnswersThatAreRight(t *testing.T) {
	list := &Request{Action: List}
	nodes, err := list.Answer([]byte(` {"nodes": [
		{"key":"a","id":"i-1","phase":"running","url":"http://10.0.0.1:8000","detail":"é","since":"2026-01-02T03:04:05+01:00","sequence":7},
		{"id":"i-2","phase":"pending"}, {"id":"i-3","phase":"ending"}, {"key":"b","phase":"ended"}]}
	`))
	want := []Node{
		{
			Instance: actuate.Instance{
				Key: "a", ID: "i-1", Phase: actuate.Running, URL: "http://10.0.0.1:8000", Detail: "é",
				Since: time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC),
			},
			Sequence: 7, Ordered: true,
		},
		{Instance: actuate.Instance{ID: "i-2"}},
		{Instance: actuate.Instance{ID: "i-3", Phase: actuate.Ending}},
		{Instance: actuate.Instance{Key: "b", Phase: actuate.Ended}},
	}
	if err != nil || len(nodes) != len(want) {
		t.Fatalf("%+v, %v", nodes, err)
	}
	for i := range want {
		nodes[i].Since = nodes[i].Since.UTC()
		if want[i].Since.IsZero() {
			nodes[i].Since = time.Time{}
		}
		if nodes[i] != want[i] {
			t.Errorf("%+v, want %+v", nodes[i], want[i])
		}
	}
	if nodes, err := (&Request{Action: Delete, Key: "a"}).Answer([]byte(`{"nodes":[]}`)); err != nil || len(nodes) != 0 {
		t.Errorf("%v, %v", nodes, err)
	}
	for _, reason := range []actuate.Reason{actuate.Settings, actuate.Credential, actuate.Quota, actuate.Capacity} {
		_, err := list.Answer([]byte(`{"refused":{"reason":"` + reason.String() + `","message":"none left"}}`))
		if r := actuate.AsRefusal(err); r == nil || r.Reason != reason || r.Err.Error() != "none left" {
			t.Errorf("%v: %v", reason, err)
		}
	}
}

func TestAnswersThatAreWrong(t *testing.T) {
	const node = `{"key":"a","id":"i","phase":"running"}`
	for _, c := range []struct{ action, answer, want string }{
		{List, ``, "ends in the middle, or is empty"},
		{List, `{"nodes":[`, "nodes ends in the middle"},
		{List, `null`, "the JSON is null: want an object"},
		{List, `[]`, "the JSON is []: want an object"},
		{List, `{}`, `neither "nodes" nor "refused"`},
		{List, `{"nodes":[],"refused":{"reason":"quota"}}`, `"nodes" and "refused"`},
		{List, `{"nodes":[],"nodes":[` + node + `]}`, "nodes is there twice"},
		{List, `{"Nodes":[]}`, "Nodes is not known: use nodes, refused"},
		{List, `{"nodes":null}`, "nodes is null: want a list"},
		{List, `{"nodes":{}}`, "nodes is {}: want a list"},
		{List, `{"nodes":[]} {}`, "something follows"},
		{List, `{"nodes":[]}]`, "something follows"},
		{List, `{"nodes":[7]}`, "nodes[0] is 7: want an object"},
		{List, `{"nodes":[` + node + `,{"key":"b","id":"j"}]}`, `nodes[1].phase is ""`},
		{List, `{"nodes":[{"key":"a","id":"i","phase":"Running"}]}`, `nodes[0].phase is "Running": use pending`},
		{List, `{"nodes":[{"key":"a","phase":"running"}]}`, "nodes[0].id is missing"},
		{List, `{"nodes":[{"phase":"ended"}]}`, "nodes[0].key is missing"},
		{List, `{"nodes":[{"key":"A","id":"i","phase":"running"}]}`, `nodes[0].key: key "A"`},
		{List, `{"nodes":[{"key":"a","id":7,"phase":"running"}]}`, "nodes[0].id is 7: want a string"},
		{List, `{"nodes":[{"key":"a","id":"i","phase":"running","url":null}]}`, "nodes[0].url is null: want a string; what has no value is left out"},
		{List, `{"nodes":[{"key":"a","id":"i","phase":"running","url":"10.0.0.1:80"}]}`, "nodes[0].url"},
		{List, `{"nodes":[{"key":"a","id":"i","phase":"running","url":"http://u:p@h"}]}`, "nodes[0].url"},
		{List, `{"nodes":[{"key":"a","id":"i","phase":"running","since":"today"}]}`, `nodes[0].since is "today"`},
		{List, `{"nodes":[{"key":"a","id":"i","phase":"running","sequence":-1}]}`, "nodes[0].sequence is -1"},
		{List, `{"nodes":[{"key":"a","id":"i","phase":"running","sequence":null}]}`, "nodes[0].sequence is null"},
		{List, `{"nodes":[{"key":"a","id":"i","phase":"running","name":"x"}]}`, "nodes[0].name is not known: use detail, id, key"},
		{List, `{"nodes":[{"key":"a","id":"` + strings.Repeat("i", 1025) + `","phase":"running"}]}`, "nodes[0].id has 1025 bytes"},
		{List, `{"nodes":[` + node + `,` + node + `]}`, `nodes[0] and nodes[1] have the same key "a"`},
		{List, `{"nodes":[` + node + `,{"id":"i","phase":"running"}]}`, `the same id "i"`},
		{List, `{"refused":{"reason":"mood","message":"x"}}`, `refused.reason is "mood": use settings`},
		{List, `{"refused":"no"}`, `refused is "no": want an object`},
		{Create, `{"nodes":[]}`, "answer to create: nodes is empty"},
		{Create, `{"nodes":[` + node + `,{"key":"b","id":"j","phase":"running"}]}`, "2 nodes: want one"},
		{Create, `{"nodes":[{"key":"b","id":"j","phase":"running"}]}`, `nodes[0].key is "b": want "a"`},
		{Delete, `{"nodes":[{"key":"b","id":"j","phase":"ending"}]}`, `nodes[0].key is "b": want "a"`},
	} {
		nodes, err := (&Request{Action: c.action, Key: "a"}).Answer([]byte(c.answer))
		if err == nil || !strings.Contains(err.Error(), c.want) || nodes != nil || actuate.AsRefusal(err) != nil {
			t.Errorf("%s: %v, %v, want %q", c.answer, nodes, err, c.want)
		}
	}
}

// Whatever an answer is, it is nodes or a reason why it is none, and what is taken
// reads the same as encoding/json would.
func TestAnyAnswer(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		`{`, `}`, `[`, `]`, `,`, `:`, `"nodes"`, `"refused"`, `"key"`, `"id"`, `"phase"`, `"running"`, `"a"`, `"b"`, `null`, `7`, ` `, "\xff",
		`{"nodes":[`, `{"key":"a","id":"i","phase":"running"}`, `{"key":"b","id":"j","phase":"ended"}`, `]}`, `{"refused":{"reason":"quota"}}`,
	})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces"), "")
		nodes, err := (&Request{Action: List}).Answer([]byte(text))
		if err != nil {
			if !utf8.ValidString(err.Error()) || len(err.Error()) > 6000 {
				t.Errorf("%q: %q", text, err)
			}
			return
		}
		var plain struct {
			Nodes []struct{ Key, ID, Phase string }
		}
		if err := json.Unmarshal([]byte(text), &plain); err != nil || len(plain.Nodes) != len(nodes) {
			t.Fatalf("%q: %v, %+v", text, err, nodes)
		}
		for i, n := range nodes {
			if n.Key != plain.Nodes[i].Key || n.ID != plain.Nodes[i].ID || n.Phase.String() != plain.Nodes[i].Phase {
				t.Errorf("%q: %+v", text, n)
			}
		}
	})
}

func TestCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, most := rapid.String().Draw(t, "s"), rapid.IntRange(0, 20).Draw(t, "most")
		got := Cut(s, most)
		if !utf8.ValidString(got) || len(got) > most+len("…") || len(s) <= most && got != s {
			t.Errorf("Cut(%q, %d) = %q", s, most, got)
		}
	})
}
