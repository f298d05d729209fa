package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"

	"github.com/spf13/cobra"

	"warmpath/controlplane/admin"
	"warmpath/controlplane/exact"
	"warmpath/dataplane"
	"warmpath/dataplane/chat"
	"warmpath/dataplane/prompt"
)

// tokensMemoBytes is what one prompt needs to be remembered in, and more.
const tokensMemoBytes = 1 << 20

func newTokens() *cobra.Command {
	cmd := &cobra.Command{
		Use: "tokens (FILE | -)", Short: "Print a request's prompt as its engine sees it: the text, the token ids, and how exactly they are known",
		GroupID: "read", Args: cobra.ExactArgs(1),
		Long: `Render and tokenize a request body, from a file or with - from standard input, without sending it.
With --model-dir no router is needed: the folder has a model's tokenizer.json and tokenizer_config.json.`,
		Example: `  warmpath tokens --model-dir models/qwen3 request.json
  warmpath tokens --output json - < request.json`,
	}
	f := addAdminFlags(cmd, true)
	path := cmd.Flags().String("path", "/v1/chat/completions", "route that the body would be sent to")
	dir := cmd.Flags().String("model-dir", "", "folder of a model's tokenizer; then no router is asked")
	engine := cmd.Flags().String("engine", "vllm", "whose rendering to follow with --model-dir: vllm or sglang")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		body, isBody, err := bodyOf(cmd, args[0])
		if err == nil && !isBody {
			err = fmt.Errorf("read body: no file %q", args[0])
		}
		if err != nil {
			return err
		}
		if *dir == "" {
			answer, err := f.call(http.MethodPost, "/api/tokens?path="+url.QueryEscape(*path), body)
			if err != nil {
				return err
			}
			return show(cmd, f, answer, printTokens)
		}
		view, err := tokensOf(*dir, *engine, *path, body)
		if err != nil {
			return err
		}
		answer, err := json.Marshal(view)
		if err != nil {
			return err
		}
		return show(cmd, f, append(answer, '\n'), printTokens)
	}
	return cmd
}

// tokensOf tokenises a body with a model's folder alone.
func tokensOf(dir, engine, path string, body []byte) (view admin.TokensView, err error) {
	kind, ok := map[string]chat.Engine{"vllm": chat.VLLM, "sglang": chat.SGLang}[engine]
	if !ok {
		return view, fmt.Errorf("%w: --engine is %q; use vllm or sglang", errUsage, engine)
	}
	form := dataplane.FormOf(path)
	if form == prompt.FormNone {
		return view, fmt.Errorf("%w: --path is %q; use a route that bears a prompt, such as /v1/chat/completions", errUsage, path)
	}
	l, err := exact.Load(exact.Source{Model: filepath.Base(dir), Tokenizer: filepath.Join(dir, "tokenizer.json")})
	if err != nil {
		return view, err
	}
	var t dataplane.PromptTokens
	if l.Refused != "" {
		t.Verdict.Reason = l.Refused
		return admin.NewTokensView(t), nil
	}
	t.IDs, t.Text, t.Verdict, err = prompt.Text(l.Model(kind, prompt.MinUnit, prompt.NewMemo(tokensMemoBytes)), form, body)
	if err != nil {
		return view, fmt.Errorf("read body: %w", err)
	}
	if t.Verdict.Reason == "" && t.Verdict.Level == chat.LevelText {
		t.Verdict.Reason = l.Partly
	}
	return admin.NewTokensView(t), nil
}

func printTokens(w io.Writer, v *admin.TokensView) {
	fmt.Fprintf(w, "exactness\t%s\n", v.Exactness)
	if v.Reason != "" {
		fmt.Fprintf(w, "reason\t%s\n", v.Reason)
	}
	fmt.Fprintf(w, "class\t%s\n", v.Class)
	fmt.Fprintf(w, "tokens\t%d\n", len(v.IDs))
	if len(v.IDs) > 0 {
		fmt.Fprintf(w, "\n%s\n\n%v\n", v.Text, v.IDs)
	}
}
