package state

import (
	"fmt"
	"slices"
	"testing"
)

// What is expected is published at once when it changes, and only then.
func TestExpectSeen(t *testing.T) {
	s := New(DefaultSettings())
	many := make([]string, MaxModels+10)
	for i := range many {
		many[i] = fmt.Sprintf("m%05d", i)
	}
	for i, c := range []struct {
		models  []string
		any     bool
		want    []string
		publish bool
	}{
		{nil, false, nil, false},
		{[]string{"b", "a", "", "b"}, false, []string{"a", "b"}, true},
		{[]string{"a", "b"}, false, []string{"a", "b"}, false},
		{[]string{"a", "b"}, true, []string{"a", "b"}, true},
		{nil, true, nil, true},
		{many, true, many[:MaxModels], true},
		{nil, false, nil, true},
	} {
		given := slices.Clone(c.models)
		next, effects := Step(s, ExpectSeen{NowNs: int64(i + 1), Models: c.models, Any: c.any})
		published := len(effects) == 1 && effects[0] == Effect(Publish{}) && next.Version == s.Version+1
		if published != c.publish || len(effects) > 1 || !slices.Equal(next.Expected.Models, c.want) || next.Expected.Any != c.any {
			t.Errorf("step %d: expected %+v, effects %v", i, next.Expected, effects)
		}
		if !slices.Equal(given, c.models) {
			t.Errorf("step %d changed its event: %v", i, c.models)
		}
		s = next
	}
}
