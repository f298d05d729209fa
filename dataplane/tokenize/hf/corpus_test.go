//go:build hf && cgo

package hf_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the checkout.
var root = filepath.Join("..", "..", "..")

// corpus is natural text of one kind, in documents.
type corpus struct {
	name      string
	documents []string
}

// corpora gives 1.8 MB and more: real prompts where they lie beside the
// checkout, this repository's Go code, Chinese and other scripts, and Markdown
// that mixes all of them.
func corpora(t testing.TB) []corpus {
	english := upTo(900_000, prompts(t))
	code := upTo(max(700_000, 1_600_000-size(english)), goFiles(t))
	text, err := os.ReadFile(filepath.Join("testdata", "scripts.txt"))
	if err != nil {
		t.Fatal(err)
	}
	sentences := strings.Split(strings.TrimSpace(string(text)), "\n")
	random := rand.New(rand.NewPCG(1, 1))
	scripts := make([]string, 40)
	for i := range scripts {
		scripts[i] = shuffled(random, sentences, 60)
	}
	paragraphs := append([]string{}, sentences...)
	for _, document := range append(english[:min(300, len(english))], code[:min(60, len(code))]...) {
		paragraphs = append(paragraphs, document[:min(len(document), 600)])
	}
	markdown := make([]string, 60)
	for i := range markdown {
		markdown[i] = mixed(random, paragraphs)
	}
	return []corpus{
		{"English", english},
		{"Go", code},
		{"scripts", scripts},
		{"Markdown", markdown},
	}
}

// upTo keeps the first documents, at least so many bytes of them if there are.
func upTo(bytes int, documents []string) []string {
	for i := range documents {
		if bytes -= len(documents[i]); bytes <= 0 {
			return documents[:i+1]
		}
	}
	return documents
}

func size(documents []string) (bytes int) {
	for i := range documents {
		bytes += len(documents[i])
	}
	return bytes
}

// prompts are texts that people wrote to chat models, and the answers.
func prompts(t testing.TB) []string {
	file, err := os.Open(filepath.Join(root, "..", "shared", "data", "traces", "prompts_8min_up_and_down.jsonl"))
	if err != nil {
		t.Logf("no real prompts: %v", err)
		return nil
	}
	defer file.Close()
	var all []string
	for d := json.NewDecoder(file); d.More(); {
		var line struct {
			Requests []struct {
				Prompt string `json:"prompt"`
			} `json:"requests"`
		}
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		for _, r := range line.Requests {
			all = append(all, r.Prompt)
		}
	}
	return all
}

func goFiles(t testing.TB) []string {
	var all []string
	for _, pattern := range []string{"*/*.go", "*/*/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, strings.ToValidUTF8(string(text), "\uFFFD"))
		}
	}
	return all
}

// shuffled strings n sentences together, some of them cut, some in one line.
func shuffled(random *rand.Rand, sentences []string, n int) string {
	var b strings.Builder
	for range n {
		s := []rune(sentences[random.IntN(len(sentences))])
		if random.IntN(4) == 0 {
			s = s[random.IntN(len(s)/2) : len(s)/2+random.IntN(len(s)/2)]
		}
		b.WriteString(string(s))
		b.WriteString([]string{"\n", "", " ", "\n\n"}[random.IntN(4)])
	}
	return b.String()
}

// mixed is a Markdown document of paragraphs of any kind.
func mixed(random *rand.Rand, paragraphs []string) string {
	var b strings.Builder
	for i := range 24 {
		p := paragraphs[random.IntN(len(paragraphs))]
		switch random.IntN(7) {
		case 0:
			fmt.Fprintf(&b, "## %d.%d %.60s\n\n", i, random.IntN(10), firstLine(p))
		case 1:
			fmt.Fprintf(&b, "```go\n%s\n```\n\n", p)
		case 2:
			fmt.Fprintf(&b, "| %d | `%.30s` | **%d %%** |\n| --- | :-: | ---: |\n", random.IntN(1e6), firstLine(p), random.IntN(100))
		case 3:
			fmt.Fprintf(&b, "1. %s\n   - [x] _%.40s_ (see [link](https://example.org/a?b=%d&c=#d))\n", firstLine(p), firstLine(p), i)
		case 4:
			fmt.Fprintf(&b, "> %s\n>\n> $x_{%d} \\le \\frac{1}{2}$\n\n", strings.ReplaceAll(p, "\n", "\n> "), i)
		default:
			b.WriteString(p + "\n\n")
		}
	}
	return strings.ToValidUTF8(b.String(), "")
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
