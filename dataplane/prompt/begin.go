package prompt

import (
	"bytes"
	"errors"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/scan"
)

// What reading and rendering cost, in nanoseconds, beside what cutting does.
const (
	costRenderNs        = 10_000
	costStepNs          = 50    // a step of the Machine, as it counts them
	costMessageNs       = 2_000 // a message, at least
	costStructureByteNs = 8     // a byte of the body that is no text: calls, schemas, keys
	costTextBytesNs8    = 3     // 8 bytes of text, read and cut
	costGivenIDs8Ns     = 10    // 8 ids that the request brings
	arenaBytesPerNs     = 8     // memory that may be made in the time, before it is work for somebody else
)

// WholeBudget is a budget that nothing reaches, in nanoseconds.
const WholeBudget = 1 << 40

// LeastCost estimates what Begin takes at least for a request, in nanoseconds:
// if that is too long for whoever asks, somebody else should do it.
func LeastCost(body []byte, found *scan.Result) (ns int) {
	text := 0
	for i := range found.Parts {
		if found.Parts[i].Kind == scan.PartText {
			text += found.Parts[i].Span.Len()
		}
	}
	return costRenderNs + len(found.Messages)*costMessageNs + len(found.Tokens)*costGivenIDs8Ns/8 +
		(len(body)-text)*costStructureByteNs + text*costTextBytesNs8/8
}

// Begin reads and renders the prompt of a request and cuts it: Next may follow
// if the Level is not LevelText. What takes longer than about budgetNs is given
// up: then the Verdict is Unfinished, and Begin can be called again, with more
// time. body and found are borrowed until the walk ends; found is what package
// scan found in body.
func (w *Walk) Begin(form Form, body []byte, found *scan.Result, budgetNs int) Verdict {
	w.verdict = w.begin(form, body, found, budgetNs)
	return w.verdict
}

func (w *Walk) begin(form Form, body []byte, found *scan.Result, budgetNs int) Verdict {
	w.Machine.Now = w.model.now()
	limits := chat.DefaultLimits
	budgetNs = min(budgetNs, WholeBudget)
	tight := budgetNs/costStepNs < limits.Steps
	if tight {
		limits.Steps, limits.ArenaBytes = max(budgetNs/costStepNs, 1), max(min(budgetNs*arenaBytesPerNs, limits.ArenaBytes), 1)
	}
	w.Machine.Limits = limits
	w.Machine.Reset()
	switch {
	case found.PromptKind == scan.PromptTokenList:
		return Verdict{Reason: "the request may have several prompts of token ids"}
	case form == FormCompletion && found.PromptKind == scan.PromptTokens:
		return w.given(body, found.Tokens)
	case form.Unprovable() != "":
		return Verdict{Reason: form.Unprovable()}
	case w.model.Dialect == nil:
		return Verdict{Reason: "what the engine makes of requests is not known"}
	}
	v, err := w.render(form, body)
	steps, _ := w.Machine.Used()
	v.CostNs += costRenderNs + steps*costStepNs
	if err == nil {
		return v
	}
	v.Level, v.Reason = chat.LevelText, why(err)
	v.Unfinished = tight && chat.ClassOf(err) == chat.Limit
	return v
}

// given takes a prompt of token ids as it is.
func (w *Walk) given(body []byte, ids []uint32) Verdict {
	for _, key := range [...]string{`"truncate_prompt_tokens"`, `"prompt_embeds"`} {
		if bytes.Contains(body, []byte(key)) {
			return Verdict{Reason: "the engine changes the prompt: " + key}
		}
	}
	w.feed(ids)
	w.complete = true
	return Verdict{Level: chat.LevelExact, CostNs: len(ids) * costGivenIDs8Ns / 8}
}

// render makes the prompt's text and cuts it. After an error only the Class of
// the Verdict counts.
func (w *Walk) render(form Form, body []byte) (v Verdict, err error) {
	d, in := w.model.Dialect, &w.input
	err = d.Prepare(&w.Machine, form.endpoint(), body, in)
	v = Verdict{Class: in.Features, Reason: in.Reason}
	if err != nil {
		return v, err
	}
	switch {
	case in.Suffix.IsString():
		v.Reason = "the engine encodes the last message by itself"
		return v, nil
	case in.IDs.Kind() == chat.KindList: // what package scan did not take for ids
		v.Reason = "the prompt is a list that is not understood"
		return v, nil
	}
	if v.Level, err = d.Render(&w.Machine, in, &w.Rope); err != nil {
		return v, err
	}
	if in.More && v.Level == chat.LevelExact {
		v.Level, v.Reason = chat.LevelPrefix, "the request has several prompts; this is the first"
	}
	if in.SpecialTokens {
		w.Wrap(w.model.Tokenizer.Wrap())
	}
	if v.Level == chat.LevelPrefix {
		w.after, w.partial = nil, true
	}
	v.CostNs = w.Cut()
	return v, nil
}

// why is an error's reason without the package's name in front.
func why(err error) string {
	var e *chat.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return err.Error()
}

// IDs returns all ids of a request's prompt: for probes and for people, not for
// routing.
func IDs(m *Model, form Form, body []byte) ([]uint32, Verdict, error) {
	ids, _, v, err := Text(m, form, body)
	return ids, v, err
}

// Text is IDs with the prompt's text.
func Text(m *Model, form Form, body []byte) (ids []uint32, text []byte, v Verdict, err error) {
	var s scan.Scanner
	if _, err := s.Scan(body, true); err != nil {
		return nil, nil, v, err
	}
	found := s.Result()
	var w Walk
	w.Start(m, 1)
	v = w.Begin(form, body, found, WholeBudget)
	if v.Level == chat.LevelText {
		return nil, nil, v, nil
	}
	if len(w.cutter.chunks) == 0 {
		return append(ids, found.Tokens...), nil, v, nil
	}
	return w.AppendIDs(nil), w.Rope.AppendText(nil), v, nil
}
