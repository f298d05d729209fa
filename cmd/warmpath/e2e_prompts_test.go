package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
)

const (
	promptsFile = "../../../shared/data/traces/prompts_8min_up_and_down.jsonl"
	promptsUsed = 200
	parallel    = 16
)

// readPrompts reads the first prompts of the trace.
func readPrompts(t *testing.T) (prompts []string) {
	t.Helper()
	f, err := os.Open(promptsFile)
	if err != nil {
		t.Skip("no trace of real prompts beside the checkout")
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() && len(prompts) < promptsUsed {
		var second struct{ Requests []struct{ Prompt string } }
		if err := json.Unmarshal(lines.Bytes(), &second); err != nil {
			t.Fatal(err)
		}
		for _, r := range second.Requests {
			prompts = append(prompts, r.Prompt)
		}
	}
	if lines.Err() != nil || len(prompts) < promptsUsed {
		t.Fatalf("%d prompts, %v", len(prompts), lines.Err())
	}
	return prompts[:promptsUsed]
}

// TestRealPrompts sends what people wrote: every engine counts the tokens that
// its own /tokenize counts for the same messages.
func TestRealPrompts(t *testing.T) {
	t.Parallel()
	prompts := readPrompts(t)
	sim := startEngines(t, 4, "--time-scale", "0.05")
	r := serve(t, settings, nodeList(sim.urls...))
	next := make(chan string)
	var wait sync.WaitGroup
	for range parallel {
		wait.Go(func() {
			for prompt := range next {
				if err := r.samePrompt(t, sim.urls[0], prompt); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, p := range prompts {
		next <- p
	}
	close(next)
	wait.Wait()
	r.settled(t)
}

// samePrompt compares the usage of an answer with the engine's own count.
func (r *serving) samePrompt(t *testing.T, engine, prompt string) error {
	a := r.try(t, chatPath, chatBody(prompt, `,"max_tokens":8`))
	if a.err != nil || a.status != http.StatusOK {
		return fmt.Errorf("prompt %.60q: status %d, error %v, body %s", prompt, a.status, a.err, a.body)
	}
	resp, err := http.Post(engine+"/tokenize", "application/json", strings.NewReader(string(chatBody(prompt, ""))))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var counted struct{ Count int }
	if err := json.NewDecoder(resp.Body).Decode(&counted); err != nil {
		return err
	}
	if counted.Count == 0 || a.prompt != counted.Count {
		return fmt.Errorf("prompt %.60q: %d tokens through the router, %d by /tokenize", prompt, a.prompt, counted.Count)
	}
	return nil
}
