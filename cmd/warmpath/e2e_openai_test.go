package main

import (
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// python returns an interpreter that has the OpenAI client, "" if there is none.
func python() string {
	venv, err := filepath.Abs("../../.cache/venv/bin/python")
	if err != nil {
		return ""
	}
	for _, p := range []string{venv, "python3"} {
		if exec.Command(p, "-c", "import openai").Run() == nil {
			return p
		}
	}
	return ""
}

// aborts is how many answers the engines gave up because the client left.
func aborts(t *testing.T, sim *engines) (n int64) {
	t.Helper()
	for _, s := range sim.states(t) {
		n += s.Aborted
	}
	return n
}

func TestPythonClient(t *testing.T) {
	t.Parallel()
	p := python()
	need(t, p != "", "the OpenAI client for Python (scripts/setup.sh installs it)")
	sim := startEngines(t, 3, "--time-scale", "0.2")
	r := serve(t, settings, nodeList(sim.urls...))
	out, errs, code := command(t, "", p, "testdata/openai_client.py", r.url, "sim")
	if code != 0 {
		t.Fatalf("code %d: %s%s", code, out, errs)
	}
	t.Log(strings.TrimSpace(out))
	eventually(t, time.Second, "the engine gave up the answer that the client left", func() bool { return aborts(t, sim) == 1 })
	r.settled(t)
}

// TestGoClient does with the OpenAI client for Go what the script does with
// that for Python.
func TestGoClient(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 3, "--time-scale", "0.2")
	r := serve(t, settings, nodeList(sim.urls...))
	client := openai.NewClient(option.WithBaseURL(r.url+"/v1/"), option.WithAPIKey("any"), option.WithMaxRetries(0), option.WithHTTPClient(r.client))
	ctx := t.Context()
	chat := func(max int64, messages ...openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
		return openai.ChatCompletionNewParams{Model: "sim", Messages: messages, MaxTokens: openai.Int(max)}
	}
	t.Run("models", func(t *testing.T) {
		page, err := client.Models.List(ctx)
		if err != nil || len(page.Data) != 1 || page.Data[0].ID != "sim" {
			t.Fatalf("%+v, %v", page, err)
		}
	})
	t.Run("chat", func(t *testing.T) {
		a, err := client.Chat.Completions.New(ctx, chat(8, openai.UserMessage("Say something.")))
		if err != nil || a.Choices[0].Message.Content == "" || a.Usage.CompletionTokens != 8 {
			t.Fatalf("%+v, %v", a, err)
		}
	})
	t.Run("stream", func(t *testing.T) {
		p := chat(12, openai.UserMessage("Say something slowly."))
		p.StreamOptions.IncludeUsage = openai.Bool(true)
		s := client.Chat.Completions.NewStreaming(ctx, p)
		var all openai.ChatCompletionAccumulator
		for s.Next() {
			all.AddChunk(s.Current())
		}
		if s.Err() != nil || all.Choices[0].Message.Content == "" || all.Usage.CompletionTokens != 12 {
			t.Fatalf("%+v, %v", all.ChatCompletion, s.Err())
		}
	})
	t.Run("completions", func(t *testing.T) {
		a, err := client.Completions.New(ctx, openai.CompletionNewParams{
			Model: "sim", Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Once upon a time")}, MaxTokens: openai.Int(6),
		})
		if err != nil || a.Choices[0].Text == "" || a.Usage.CompletionTokens != 6 {
			t.Fatalf("%+v, %v", a, err)
		}
	})
	t.Run("errors", func(t *testing.T) {
		p := chat(1, openai.UserMessage("x"))
		p.Model = "no-such-model"
		_, err := client.Chat.Completions.New(ctx, p)
		wantAPIError(t, err, http.StatusNotFound, "model_not_found")
		_, err = client.Chat.Completions.New(ctx, chat(-1, openai.UserMessage("x")))
		wantAPIError(t, err, http.StatusBadRequest, "")
	})
	t.Run("conversation", func(t *testing.T) {
		messages := []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(strings.Repeat("Answer briefly and name your source. ", 40))}
		var home string
		var cached int64
		for turn, question := range []string{"What is it?", "And then?", "And at last?"} {
			messages = append(messages, openai.UserMessage(question))
			var raw *http.Response
			a, err := client.Chat.Completions.New(ctx, chat(16, messages...), option.WithResponseInto(&raw))
			if err != nil {
				t.Fatal(err)
			}
			node, now := raw.Header.Get("X-Routed-To"), a.Usage.PromptTokensDetails.CachedTokens
			if turn > 0 && (node != home || now <= cached) {
				t.Errorf("turn %d: on %s with %d cached tokens, the one before on %s with %d", turn+1, node, now, home, cached)
			}
			home, cached = node, now
			messages = append(messages, openai.AssistantMessage(a.Choices[0].Message.Content))
		}
	})
	t.Run("leaving early", func(t *testing.T) {
		s := client.Chat.Completions.NewStreaming(ctx, chat(20_000, openai.UserMessage("Talk for long.")))
		if !s.Next() {
			t.Fatal(s.Err())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Second, "the engine gave up the answer that the client left", func() bool { return aborts(t, sim) == 1 })
	})
	r.settled(t)
}

func wantAPIError(t *testing.T, err error, status int, code string) {
	t.Helper()
	var e *openai.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is not one of the API", err)
	}
	if e.StatusCode != status || e.Message == "" || code != "" && e.Code != code {
		t.Errorf("status %d, code %q, message %q; want %d, %q", e.StatusCode, e.Code, e.Message, status, code)
	}
}
