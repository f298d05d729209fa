package prompt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"warmpath/dataplane/chat"
)

// TestGivenIDs: ids that a request brings are its prompt. Of several prompts
// the length of all is never claimed.
func TestGivenIDs(t *testing.T) {
	ids := make([]uint32, 40)
	for i := range ids {
		ids[i] = uint32(1000 + i)
	}
	list := "[" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ","), "[]") + "]"
	m := testModel(t, loadTokenizer(t, tiny), 1<<20)
	for _, c := range []struct {
		name, prompt string
		level        chat.Level
		tokens       int
	}{
		{"one", list, chat.LevelExact, 40},
		{"one in a list", "[" + list + "]", chat.LevelText, 0},
		{"two", "[" + list + ",[1,2,3]]", chat.LevelText, 0},
		{"none", "[]", chat.LevelText, 0},
		{"none in a list", "[[]]", chat.LevelText, 0},
		{"mixed", `[1,"a"]`, chat.LevelText, 0},
		{"negative", "[-1]", chat.LevelText, 0},
		{"two texts", `["one","two"]`, chat.LevelPrefix, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := []byte(`{"model":"m","prompt":` + c.prompt + `}`)
			var w Walk
			w.Start(m, 7)
			v := w.Begin(FormCompletion, b, found(t, b), WholeBudget)
			if v.Level != c.level || (v.Reason == "") != (c.level == chat.LevelExact) {
				t.Fatalf("%s (%s), want %s", v.Level, v.Reason, c.level)
			}
			if c.tokens > 0 && (w.Count() != c.tokens || !slices.Equal(w.Units(), unitsOf(7, ids))) {
				t.Errorf("%d tokens in %d units, want %d", w.Count(), len(w.Units()), c.tokens)
			}
		})
	}
}
