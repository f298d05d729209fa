package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	talkers     = 6 // conversations at a time
	talkTurns   = 5
	talkEvery   = 20 // answers between two printed lines
	talkPause   = 700 * time.Millisecond
	answerBytes = 1 << 20
)

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// tallyOfTalk is what the demo's traffic has seen.
type tallyOfTalk struct {
	mu                                sync.Mutex
	answers, stayed, later, cached, n int
	failed                            int
}

// sendTraffic holds a few multi-turn conversations until ctx ends, and says
// now and then how they went.
func sendTraffic(ctx context.Context, url string, out io.Writer) {
	var seen tallyOfTalk
	var wait sync.WaitGroup
	for i := range talkers {
		wait.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				talk(ctx, url, i, n, &seen, out)
			}
		})
	}
	wait.Wait()
}

// talk is one conversation: every turn sends all of it again, and more.
func talk(ctx context.Context, url string, talker, n int, seen *tallyOfTalk, out io.Writer) {
	system := fmt.Sprintf("You are assistant %d of six. ", talker) + strings.Repeat("Keep to the facts and be brief. ", 20)
	history := []message{{"system", system}}
	lastNode := ""
	for turn := range talkTurns {
		history = append(history, message{"user", fmt.Sprintf("Conversation %d.%d, question %d: %s", talker, n, turn, strings.Repeat("tell me more about it, ", 6))})
		node, text, cached, prompt, err := ask(ctx, url, history)
		if ctx.Err() != nil {
			return
		}
		seen.add(err, turn > 0, node == lastNode, cached, prompt, out)
		lastNode = node
		history = append(history, message{"assistant", text})
		select {
		case <-ctx.Done():
			return
		case <-time.After(talkPause/2 + rand.N(talkPause)):
		}
	}
}

func (t *tallyOfTalk) add(err error, later, stayed bool, cached, prompt int, out io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed++
		fmt.Fprintln(out, "traffic:", err)
		return
	}
	t.answers++
	t.cached += cached
	t.n += prompt
	if later {
		t.later++
		if stayed {
			t.stayed++
		}
	}
	if t.answers%talkEvery == 0 {
		fmt.Fprintf(out, "traffic: %d answers, %d of %d later turns on the node of the turn before, %d of %d prompt tokens from cache, %d failed\n",
			t.answers, t.stayed, t.later, t.cached, t.n, t.failed)
	}
}

func ask(ctx context.Context, url string, history []message) (node, text string, cached, prompt int, err error) {
	body, err := json.Marshal(map[string]any{"model": demoModel, "max_tokens": 24, "messages": history})
	if err != nil {
		return "", "", 0, 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", "", 0, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", "", 0, 0, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, answerBytes))
	if err != nil {
		return "", "", 0, 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return "", "", 0, 0, fmt.Errorf("%s: %s", resp.Status, raw)
	}
	var a struct {
		Choices []struct{ Message message }
		Usage   struct {
			PromptTokens        int `json:"prompt_tokens"`
			PromptTokensDetails *struct {
				CachedTokens int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(raw, &a); err != nil || len(a.Choices) == 0 {
		return "", "", 0, 0, fmt.Errorf("read answer: %w", err)
	}
	if d := a.Usage.PromptTokensDetails; d != nil {
		cached = d.CachedTokens
	}
	return resp.Header.Get("X-Routed-To"), a.Choices[0].Message.Content, cached, a.Usage.PromptTokens, nil
}
