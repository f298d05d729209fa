package tokenbench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// sampleBytes is the length of a sample, as in most published figures.
const sampleBytes = 32 << 10

// texts are the samples by name, each of sampleBytes.
type texts struct {
	english, code, chinese, letter string
	words                          []string // of the English text
}

// loadTexts reads the samples out of the repository.
func loadTexts() (t texts, err error) {
	for _, s := range []struct {
		to       *string
		patterns []string
	}{
		{&t.english, []string{"README.md", "bench/README.md", "LICENSE"}},
		{&t.code, []string{"dataplane/*.go"}},
		{&t.chinese, []string{"dataplane/tokenize/testdata/chinese.txt"}},
	} {
		if *s.to, err = sample(s.patterns); err != nil {
			return t, err
		}
	}
	t.letter = strings.Repeat("a", sampleBytes)
	t.words = strings.Fields(t.english)
	return t, nil
}

// sample returns the first bytes of the files, repeated if they are too few.
func sample(patterns []string) (string, error) {
	var all strings.Builder
	for _, pattern := range patterns {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			return "", fmt.Errorf("no text %s: run this in the root of the repository", pattern)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return "", err
			}
			all.Write(text)
		}
	}
	text := all.String()
	text = strings.Repeat(text, 1+sampleBytes/len(text))[:sampleBytes]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text, nil
}

// prose returns about so many bytes of English whose words are known and whose
// sentences are not: no stretch of it comes twice.
func (t *texts) prose(r *rand.Rand, size int) string {
	var s strings.Builder
	for s.Len() < size {
		from := r.IntN(len(t.words) - 40)
		s.WriteString(strings.Join(t.words[from:from+20+r.IntN(20)], " "))
		s.WriteString(".\n")
	}
	return s.String()
}

// chat returns the body of a conversation of that many messages and bytes.
func (t *texts) chat(seed uint64, messages, size int) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	r := rand.New(rand.NewPCG(seed, 1))
	all := []message{{"system", t.prose(r, size/messages)}}
	for len(all) < messages {
		role := "user"
		if len(all)%2 == 0 {
			role = "assistant"
		}
		all = append(all, message{role, t.prose(r, size/messages)})
	}
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false) // clients in Python do not escape < and >
	if err := e.Encode(map[string]any{"model": "m", "stream": true, "messages": all}); err != nil {
		panic("BUG: tokenbench: " + err.Error())
	}
	return body.Bytes()
}
