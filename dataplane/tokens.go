package dataplane

import (
	"fmt"

	"warmpath/dataplane/prompt"
	"warmpath/dataplane/scan"
)

// PromptTokens is a request's prompt as an engine sees it.
type PromptTokens struct {
	IDs     []uint32
	Text    []byte // rendered; empty where the request gives ids
	Verdict prompt.Verdict
}

// Tokens renders and tokenises the body of a request to path, as a request is
// before it is routed. The error is the one that a client would get. Any
// goroutine may call it; no loop is held up.
func (d *Dataplane) Tokens(path string, body []byte) (t PromptTokens, err error) {
	form := FormOf(path)
	if form == prompt.FormNone {
		return t, &ExplainError{Status: errNoSuchPath.status, Message: errNoSuchPath.message, Code: errNoSuchPath.code}
	}
	var s scan.Scanner
	if _, bad := s.Scan(body, true); bad != nil {
		a := scanAnswer(bad)
		return t, &ExplainError{Status: a.status, Message: a.message, Code: a.code}
	}
	snap, found := d.opt.Fleet.Load(), s.Result()
	at := snap.Default
	if found.HasModel {
		at = snap.ModelIndex(scan.AppendUnescaped(nil, found.Model.Of(body)))
	}
	if at < 0 {
		a := errUnknownModel(found.Model.Of(body))
		return t, &ExplainError{Status: a.status, Message: a.message, Code: a.code}
	}
	name := snap.Models[at].Name
	if base := snap.Models[at].Base; base != "" {
		name = base
	}
	m := d.exact.Load().of(name)
	if m == nil {
		t.Verdict.Reason = fmt.Sprintf("model %q has no tokenizer that is known exactly", name)
		return t, nil
	}
	t.IDs, t.Text, t.Verdict, err = prompt.Text(m, form, body)
	return t, err
}

// FormOf is how requests to a path bear their prompt.
func FormOf(path string) prompt.Form { return promptPaths[path] }
