package scan

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// chatBody is a chat request with one system and one user message.
func chatBody(rawText string) []byte {
	return []byte(`{"model": "qwen3", "stream": true, "max_tokens": 256, "messages": [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "` + rawText + `"}]}`)
}

func plainText(n int) string {
	const words = "The quick brown fox jumps over the lazy dog, and then it does so again; "
	return strings.Repeat(words, n/len(words)+1)[:n]
}

// escapedText is text in which every tenth byte is an escape's backslash.
func escapedText(n int) string {
	var t strings.Builder
	for i := 0; t.Len() < n; i++ {
		t.WriteString("word, it")
		t.WriteString([]string{`\n`, `\"`, `\n`, `\t`, `\\`}[i%5])
	}
	return t.String()
}

// unevenText has as many escapes as escapedText, at distances of 2 to 18.
func unevenText(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	var t strings.Builder
	for t.Len() < n {
		t.WriteString("word, it word, it"[:r.IntN(17)])
		t.WriteString([]string{`\n`, `\"`, `\n`, `\t`, `\\`}[r.IntN(5)])
	}
	return t.String()
}

func chineseText(n int) string {
	const words = "路由器把每个请求发送到最快能够回答它的节点,也就是已经缓存了提示前缀的节点。"
	return strings.Repeat(words, n/len(words)+1)[:n/len(words)*len(words)]
}

// mixedText mixes Chinese, ASCII, accents, emoji and escapes.
func mixedText(n int) string {
	const words = `模型 Qwen3 的上下文长度是 32768 个 token。\nDéjà vu: naïve café 🙂 "ok" — 继续,好吗?`
	quoted := strings.ReplaceAll(words, `"`, `\"`)
	return strings.Repeat(quoted, n/len(quoted)+1)[:n/len(quoted)*len(quoted)]
}

// chat4K is a conversation of several turns with a tool, as a client's library
// writes it.
func chat4K(tb testing.TB) []byte {
	type object = map[string]any
	messages := []any{object{"role": "system", "content": "You are a careful assistant for an online shop.\nAnswer briefly, and in the user's language."}}
	for i := range 6 {
		messages = append(messages,
			object{"role": "user", "content": "Where is my order \"A-" + strings.Repeat("1", i+1) + "\"?\n" + plainText(240)},
			object{"role": "assistant", "content": []any{object{"type": "text", "text": "It left the store.\n\n- " + plainText(160)}}})
	}
	tool := object{"type": "function", "function": object{"name": "lookup_order", "description": "Find an order by its number.", "parameters": object{
		"type": "object", "properties": object{"number": object{"type": "string"}, "limit": object{"type": "integer", "minimum": 1}}, "required": []string{"number"},
	}}}
	b, err := json.Marshal(object{"model": "qwen3", "stream": true, "max_tokens": 512, "temperature": 0.7, "messages": messages, "tools": []any{tool}, "user": "u-17"})
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func tokenIDsBody(n int) []byte {
	ids := make([]int, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range ids {
		ids[i] = r.IntN(150000)
	}
	list, _ := json.Marshal(ids)
	return []byte(`{"model":"qwen3","prompt":` + string(list) + `}`)
}

func benchmarkScan(b *testing.B, body []byte) {
	var s Scanner
	if _, err := s.Scan(body, true); err != nil { // warms the buffers
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		s.Reset()
		if done, err := s.Scan(body, true); !done {
			b.Fatal(err)
		}
	}
}

func BenchmarkScanPlain64K(b *testing.B)   { benchmarkScan(b, chatBody(plainText(64<<10))) }
func BenchmarkScanEscaped64K(b *testing.B) { benchmarkScan(b, chatBody(escapedText(64<<10))) }
func BenchmarkScanUneven64K(b *testing.B)  { benchmarkScan(b, chatBody(unevenText(64<<10))) }
func BenchmarkScanUTF8_64K(b *testing.B)   { benchmarkScan(b, chatBody(chineseText(64<<10))) }
func BenchmarkScanMixed64K(b *testing.B)   { benchmarkScan(b, chatBody(mixedText(64<<10))) }
func BenchmarkScanChat4K(b *testing.B)     { benchmarkScan(b, chat4K(b)) }
func BenchmarkScanTokens64K(b *testing.B)  { benchmarkScan(b, tokenIDsBody(10000)) }

// BenchmarkScanASCIIEscapes64K is Chinese text as Python's json.dumps writes it.
func BenchmarkScanASCIIEscapes64K(b *testing.B) {
	benchmarkScan(b, chatBody(strings.Repeat(`\u8def\u7531\u5668, `, 64<<10/20)))
}
