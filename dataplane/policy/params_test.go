package policy

import (
	"errors"
	"math"
	"strings"
	"testing"
)

// TestDefaultsAreAccepted passes every default and every bound explicitly.
func TestDefaultsAreAccepted(t *testing.T) {
	for _, name := range Names() {
		defaults := Params{}
		for _, info := range Keys(name) {
			defaults[info.Name] = info.Default
			if info.Doc == "" || strings.Contains(info.Doc, "\n") {
				t.Errorf("%s: document %s in one line, have %q", name, info.Name, info.Doc)
			}
			good, bad := []any{info.Default}, []any{nil, true, "", []int{1}, math.NaN(), math.Inf(1), math.Inf(-1)}
			if info.Kind == KindChoice {
				good, bad = append(good, info.Choices[len(info.Choices)-1]), append(bad, 0, "x")
			} else {
				good, bad = append(good, info.Min, info.Max), append(bad, info.Min-1, info.Max+1, uint64(math.MaxUint64))
			}
			for _, value := range good {
				if _, err := New(name, Params{info.Name: value}); err != nil {
					t.Errorf("%s: refused %s=%v: %v", name, info.Name, value, err)
				}
			}
			for _, value := range bad {
				var problem *ParamError
				if _, err := New(name, Params{info.Name: value}); !errors.As(err, &problem) || problem.Key != info.Name {
					t.Errorf("%s: took %s=%v, or did not name it: %v", name, info.Name, value, err)
				}
			}
		}
		p := mustNew(t, name, defaults)
		if p.Name() != name {
			t.Errorf("policy %q calls itself %q", name, p.Name())
		}
	}
	if Names()[0] != Default {
		t.Errorf("first policy is %q, the default is %q", Names()[0], Default)
	}
	if Keys("none") != nil || Keys("random") == nil {
		t.Error("Keys does not tell an unknown policy from one without parameters")
	}
}

// TestPoliciesShareNoParameters builds one policy twice.
func TestPoliciesShareNoParameters(t *testing.T) {
	plain := mustNew(t, "cost", nil).(*cost)
	mustNew(t, "cost", Params{"pressure": 0.1, "batch": float32(0.5), "island_tokens": uint32(7)})
	if plain.pressure != 0.7 || plain.batch != 0.1 || plain.islandTokens != 1024 {
		t.Errorf("a second policy changed the first: %+v", plain)
	}
}

func TestUnknownModelIsABug(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.HasPrefix(text, "BUG: ") {
			t.Errorf("panic %q, want one that starts with BUG:", text)
		}
	}()
	s, req, match, loads, in := benchFleet(2)
	req.Model = 1
	mustNew(t, "cost", nil).Prepare(s).Decide(req, match, loads, in, &Decision{})
}
