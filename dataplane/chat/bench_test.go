package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// longConversation is the body of a request with 22 messages of about size
// bytes together: English text with newlines and quotes, so that it has
// escapes.
func longConversation(size int) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	line := "The quick brown fox said \"no\" and jumps over the lazy dog, again.\n"
	messages := []message{{"system", "You are a helpful assistant."}}
	for i := range 21 {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		messages = append(messages, message{role, strings.Repeat(line, size/22/len(line)+1)})
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	vars := map[string]any{"messages": messages, "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "date_string": "26 Jul 2024"}
	if err := encoder.Encode(vars); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// benchTemplates are templates of this repository, and those of others if they
// were fetched.
var benchTemplates = []string{"chatml_think", "chatml_tools", "qwen3", "qwen2_5", "llama3_2", "deepseek_v3", "mistral_nemo", "gemma3"}

func BenchmarkRender(b *testing.B) {
	for _, name := range benchTemplates {
		source, _, ok := templateSource(name)
		if !ok {
			continue
		}
		template, err := Compile(source, Options{})
		if err != nil {
			b.Fatal(err)
		}
		for _, size := range []int{2 << 10, 34 << 10, 550 << 10} {
			body := longConversation(size)
			b.Run(fmt.Sprintf("%s/%dKB", name, size>>10), func(b *testing.B) {
				m := Machine{Now: goldenNow}
				var out Rope
				b.ReportAllocs()
				for b.Loop() {
					m.Reset()
					out.Reset()
					vars, err := m.ReadJSON(body)
					if err == nil {
						err = template.Render(&m, vars, &out)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkReadJSON(b *testing.B) {
	for _, size := range []int{2 << 10, 34 << 10, 550 << 10} {
		body := longConversation(size)
		b.Run(fmt.Sprintf("%dKB", size>>10), func(b *testing.B) {
			var m Machine
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				m.Reset()
				if _, err := m.ReadJSON(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	source, _, _ := templateSource("chatml_tools")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(source, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
