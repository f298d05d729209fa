package engine

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestTokenize(t *testing.T) {
	for text, want := range map[string][]uint32{
		"":         {},
		"\x01":     {1},
		"\x01\x02": {513},
		"abcd":     {0x64636261 % VocabularySize},
		"abcde":    {0x64636261 % VocabularySize, 'e'},
	} {
		if got := Tokenize([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("Tokenize(%q) = %v, want %v", text, got, want)
		}
	}
}

// FuzzNextTurnExtends checks what prefix caching rests on: whatever was said,
// the tokens of the next turn begin with prompt and answer of this turn.
func FuzzNextTurnExtends(f *testing.F) {
	f.Add("be brief", "hello", "more", uint8(5))
	f.Add("", "x", "", uint8(0))
	f.Add("ü", "日本", "\n", uint8(64))
	f.Fuzz(func(t *testing.T, system, user, next string, answer uint8) {
		turn := []Message{{"system", system}, {"user", user}}
		prompt := Tokenize(RenderChat(turn, []byte(`[{"type":"function"}]`), true))
		start := answerStart(prompt)
		text := fourByteAnswers.words(start, 0, int64(answer))
		all := append(slices.Clone(prompt), fourByteAnswers.wordIDs(start, 0, int64(answer))...)
		turn = append(turn, Message{"assistant", text}, Message{"user", next})
		if got := Tokenize(RenderChat(turn, []byte(`[{"type":"function"}]`), true)); !slices.Equal(got[:len(all)], all) {
			t.Fatalf("turn 2 starts with %v, want %v", got[:len(all)], all)
		}
	})
}

func TestAnswerWordsAreOneToken(t *testing.T) {
	seen := map[uint32]bool{}
	for i, w := range fourByteAnswers.text {
		if len(w) != TokenBytes || seen[fourByteAnswers.ids[i]] || strings.ContainsAny(w, `"\<`) {
			t.Errorf("word %q is not four plain bytes of its own", w)
		}
		seen[fourByteAnswers.ids[i]] = true
	}
	start := answerStart([]uint32{1, 2, 3})
	used := map[int]bool{}
	for i := range 500 {
		used[answerWord(start, i)] = true
	}
	if len(used) < 50 {
		t.Errorf("an answer of 500 words uses only %d different ones", len(used))
	}
}

func TestRenderChatPadsToTokens(t *testing.T) {
	text := RenderChat([]Message{{"user", "hello"}}, nil, true)
	if want := []byte("<|im_start|>user\n\n\n\nhello<|im_end|>\n<|im_start|>assistant\n\n\n"); !bytes.Equal(text, want) {
		t.Errorf("rendered %q", text)
	}
}
