package report

import (
	"container/list"

	"warmpath/dataplane/prefix"
)

// promptsMax bounds what is remembered of one slot's prompts: with blocks of 16
// tokens, two million tokens.
const promptsMax = 1 << 17

// prompts remembers what was sent to one node with a minimal reporter: the names
// that the reporter will use for prompts or blocks, and the units of our own
// chains they stand for. The oldest go when it is full.
type prompts struct {
	byName map[uint64]*list.Element
	order  list.List // of *prompt, latest used first
	most   int
}

type prompt struct {
	name  uint64
	parts []prefix.Hash
	held  bool // the index has it for this node
}

func newPrompts(most int) *prompts {
	return &prompts{byName: map[uint64]*list.Element{}, most: most}
}

// find returns what a name stands for, nil if it is not known.
func (p *prompts) find(name uint64) *prompt {
	if e, ok := p.byName[name]; ok {
		return e.Value.(*prompt)
	}
	return nil
}

// note returns the prompt of a name, made with a copy of parts if it is new,
// and the prompt that had to go for it, nil if none had.
func (p *prompts) note(name uint64, parts []prefix.Hash) (is, gone *prompt) {
	if e, ok := p.byName[name]; ok {
		p.order.MoveToFront(e)
		return e.Value.(*prompt), nil
	}
	if p.order.Len() >= p.most {
		last := p.order.Back()
		gone = p.order.Remove(last).(*prompt)
		delete(p.byName, gone.name)
	}
	is = &prompt{name: name, parts: append([]prefix.Hash(nil), parts...)}
	p.byName[name] = p.order.PushFront(is)
	return is, gone
}
