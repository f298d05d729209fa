package tokenbench

import (
	"bytes"
	"context"
	"fmt"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
	"warmpath/dataplane/prompt"
	"warmpath/dataplane/scan"
	"warmpath/dataplane/tokenize"
)

const (
	unitTokens = 16 // vLLM's default block
	nodes      = 16
	lookUnits  = 64 // units between two looks at the index, as the data plane does it
	longTokens = 128 << 10
	memoBytes  = 256 << 20
)

// appends measures the tokenizer by itself: with all words known, and with none,
// for which it is loaded anew each time.
func (m *measurement) appends(ctx context.Context) error {
	var s tokenize.Scratch
	var ids []uint32
	for _, t := range []struct{ name, text string }{{"English", m.texts.english}, {"code", m.texts.code}, {"Chinese", m.texts.chinese}} {
		text := []byte(t.text)
		err := m.measure(ctx, subject{name: "32 KB of " + t.name + ", words known", text: t.text, op: func() int {
			ids = m.tok.Append(ids[:0], text, &s)
			return len(ids)
		}})
		if err != nil {
			return err
		}
		var fresh *tokenize.Tokenizer
		err = m.measure(ctx, subject{
			name: "32 KB of " + t.name + ", no word known", text: t.text,
			prepare: func() {
				if fresh, err = tokenize.Load(m.file); err != nil {
					panic("BUG: tokenbench: a tokenizer loads only once: " + err.Error())
				}
			},
			op: func() int {
				ids = fresh.Append(ids[:0], text, &s)
				return len(ids)
			},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// letter measures what is worst for merging: one endless word.
func (m *measurement) letter(ctx context.Context) error {
	var s tokenize.Scratch
	var ids []uint32
	text := []byte(m.texts.letter)
	return m.measure(ctx, subject{name: "32 KB of one letter", text: m.texts.letter, op: func() int {
		ids = m.tok.Append(ids[:0], text, &s)
		return len(ids)
	}})
}

// walks measures the way from a request's body to who holds its prompt.
func (m *measurement) walks(ctx context.Context) error {
	short := m.newWalker(m.texts.chat(1, 3, 4<<10), 0)
	if err := m.measure(ctx, subject{name: "body of 4 KB to its units, words known", bytes: len(short.body), text: short.text, op: short.walk}); err != nil {
		return err
	}
	fresh := m.newWalker(m.texts.chat(1, 3, 4<<10), memoBytes)
	if err := m.measure(ctx, subject{
		name: fmt.Sprintf("body of 4 KB never seen, words known, to the decision at %d nodes", nodes), bytes: len(fresh.body),
		prepare: fresh.vary, op: fresh.decide,
	}); err != nil {
		return err
	}
	body := m.texts.chat(2, 40, longTokens*9/2)
	long := m.newWalker(body, memoBytes)
	for range 3 { // about as many tokens as wanted
		long = m.newWalker(m.texts.chat(2, 40, len(body)*longTokens/long.walk()), memoBytes)
		body = long.body
	}
	long.hold()
	return m.measure(ctx, subject{name: fmt.Sprintf("body of %dk tokens seen before, to the match at %d nodes", longTokens>>10, nodes), bytes: len(long.body), text: long.text, op: long.walk})
}

// walker does what the data plane does to identify one prompt.
type walker struct {
	body    []byte
	text    string // rendered
	model   *prompt.Model
	scanner scan.Scanner
	walked  prompt.Walk
	index   *index.Index
	live    index.SlotSet
	units   []uint32
	credits []uint32
	varied  uint64
}

func (m *measurement) newWalker(body []byte, memoBytes int64) *walker {
	w := &walker{
		body: body, model: m.loaded.Model(chat.VLLM, unitTokens, prompt.NewMemo(memoBytes)),
		index: index.New(index.Options{MemoryBytes: index.MinMemoryBytes}),
		units: make([]uint32, nodes), credits: make([]uint32, nodes),
	}
	for slot := range nodes {
		w.live.Add(slot)
	}
	_, text, v, err := prompt.Text(w.model, prompt.FormChat, body)
	if err != nil || v.Level != chat.LevelExact {
		panic(fmt.Sprintf("BUG: tokenbench: a conversation is not exact: %v %v", v, err))
	}
	w.text = string(text)
	return w
}

// hold has all nodes hold the prompt, each one a longer part of it.
func (w *walker) hold() {
	w.walk()
	units, writer := w.walked.Units(), w.index.Writer()
	for slot := range nodes {
		for i, h := range units[:len(units)*(slot+1)/nodes] {
			writer.Stored(slot, index.Device, uint64(h)^uint64(slot), units[i:i+1])
		}
	}
}

// vary makes the first message begin as none did before.
func (w *walker) vary() {
	const digits = 8
	start := bytes.Index(w.body, []byte(`"content":"`)) + len(`"content":"`)
	w.varied++
	copy(w.body[start:start+digits], fmt.Sprintf("%0*d", digits, w.varied))
}

// walk identifies the whole prompt, as is done for the speculative entries even
// if nobody holds it. It returns the number of tokens.
func (w *walker) walk() int { return w.identify(false) }

// decide identifies as much of the prompt as a decision needs: up to the first
// units that nobody holds.
func (w *walker) decide() int { return w.identify(true) }

// identify scans, renders, cuts, makes units and matches them.
func (w *walker) identify(stop bool) int {
	w.scanner.Reset()
	if _, err := w.scanner.Scan(w.body, true); err != nil {
		panic("BUG: tokenbench: " + err.Error())
	}
	found := w.scanner.Result()
	var held index.Walk
	held.Start(w.index, &w.live, w.units, w.credits)
	w.walked.Start(w.model, prefix.ChainStart(1, []byte(w.model.Name), nil, nil))
	w.walked.Begin(prompt.FormChat, w.body, found, prompt.WholeBudget)
	looked := 0
	for !w.walked.Complete() {
		w.walked.Next(prompt.WholeBudget, lookUnits)
		units := w.walked.Units()
		if !held.Extend(units[looked:]) && stop {
			break
		}
		looked = len(units)
	}
	held.Finish()
	return w.walked.Count()
}
