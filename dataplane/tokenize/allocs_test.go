package tokenize

import (
	"strings"
	"testing"
)

func TestAppendAllocsNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("left out: the race detector allocates")
	}
	for _, name := range []string{"qwen", "llama3", "o200k", "deepseek", "gpt2 with prefix", "two sets"} {
		tokenizer := tiny(t, name)
		var s Scratch
		for kind, text := range map[string]string{
			"plain":        strings.Repeat("The server has 12 nodes; it doesn't sleep.\n", 20),
			"chinese":      "分词的结果必须与引擎完全一致，近似的办法只会让缓存白白落空。",
			"marks":        strings.Repeat("e\u0301\u0323 \u0958", 20),
			"invalid":      "a\xffb",
			"long words":   strings.Repeat("abc", 500) + " " + strings.Repeat("xy", 60),
			"added tokens": "<|im_start|>user\nwho?<|im_end|> word",
		} {
			raw := []byte(text)
			ids := make([]uint32, 0, 4096)
			tokenizer.Append(ids, raw, &s)
			if n := testing.AllocsPerRun(20, func() { tokenizer.Append(ids, raw, &s) }); n != 0 {
				t.Errorf("%s, %s: %v allocations", name, kind, n)
			}
		}
	}
}

func TestCutsAllocNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("left out: the race detector allocates")
	}
	tokenizer := tiny(t, "qwen")
	text := []byte(strings.Repeat(".", 600) + ` and <|im_end|> "quotes\\`)
	n := testing.AllocsPerRun(20, func() {
		tokenizer.NextCut(text, 512)
		tokenizer.NextCutEscaped(text, 512)
		tokenizer.FindAdded(text, 0)
		tokenizer.Solid(2258)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
