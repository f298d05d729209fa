package scan

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// The dumb twin: a tree of values built with encoding/json, read by rules
// written down a second time, without any thought of speed.

// node is one JSON value and where it lies.
type node struct {
	kind       byte // '{', '[', '"', '0', 'b' (true, false), 'n'
	text       string
	yes        bool
	members    map[string]*node // by decoded key, the last one wins
	elements   []*node
	start, end int
}

// twinParse builds the tree of a valid body.
func twinParse(body []byte) *node {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return twinValue(body, d)
}

func twinValue(body []byte, d *json.Decoder) *node {
	start := int(d.InputOffset())
	for bytes.IndexByte([]byte(" \t\r\n,:"), body[start]) >= 0 {
		start++
	}
	n := &node{start: start}
	token, err := d.Token()
	if err != nil {
		panic("BUG: twin: " + err.Error())
	}
	switch v := token.(type) {
	case json.Delim:
		n.kind = byte(v)
		n.members = map[string]*node{}
		for d.More() {
			if v == '{' {
				key, err := d.Token()
				if err != nil {
					panic("BUG: twin: " + err.Error())
				}
				n.members[key.(string)] = twinValue(body, d)
			} else {
				n.elements = append(n.elements, twinValue(body, d))
			}
		}
		if _, err := d.Token(); err != nil {
			panic("BUG: twin: " + err.Error())
		}
	case string:
		n.kind, n.text = '"', v
	case json.Number:
		n.kind, n.text = '0', v.String()
	case bool:
		n.kind, n.yes = 'b', v
	default:
		n.kind = 'n'
	}
	n.end = int(d.InputOffset())
	return n
}

func (n *node) member(key string) *node {
	if m := n.members[key]; m != nil {
		return m
	}
	return &node{}
}

// all reports whether n is a list with elements, each of the kind given.
func (n *node) all(kind byte) bool {
	for _, e := range n.elements {
		if e.kind != kind {
			return false
		}
	}
	return n.kind == '[' && len(n.elements) > 0
}

// picture is a Result with ranges and spans resolved, fit for comparing.
type picture struct {
	Model                      string
	HasModel                   bool
	Stream                     Tri
	MaxTokens, PrefixLen       int64
	User, CacheSalt, SessionID string
	Tools                      Span
	System, Prompt             []partPicture
	PromptKind                 PromptKind
	Tokens                     []uint32
	Messages                   []messagePicture
}

type messagePicture struct {
	Role  string
	Span  Span
	Parts []partPicture
}

type partPicture struct {
	Kind    PartKind
	Escaped bool
	Span    Span
	Text    string // decoded; of a PartText only
}

func twinPicture(body []byte) picture {
	top := twinParse(body)
	p := picture{
		Model: top.member("model").text, HasModel: top.member("model").kind == '"',
		MaxTokens: top.member("max_completion_tokens").integer(math.MaxInt64), PrefixLen: top.member("prefix_len").integer(math.MaxInt64),
		User: top.member("user").str(), CacheSalt: top.member("cache_salt").str(), SessionID: top.member("session_id").str(),
	}
	if !p.HasModel {
		p.Model = ""
	}
	if p.MaxTokens < 0 {
		p.MaxTokens = top.member("max_tokens").integer(math.MaxInt64)
	}
	if s := top.member("stream"); s.kind == 'b' {
		p.Stream = False
		if s.yes {
			p.Stream = True
		}
	}
	if t := top.member("tools"); t.kind == '[' {
		p.Tools = t.span()
	}
	p.System = top.member("system").content(body)
	if len(p.System) == 0 {
		p.System = top.member("instructions").content(body)
	}
	p.Messages = top.member("messages").items(body)
	if p.Messages == nil {
		p.Messages = top.member("input").items(body)
	}
	if !p.prompt(body, top.member("prompt")) {
		p.prompt(body, top.member("input"))
	}
	return p
}

// prompt reads one of the forms of a prompt.
func (p *picture) prompt(body []byte, n *node) bool {
	ids := func(n *node) (ids []uint32, ok bool) {
		for _, e := range n.elements {
			v := e.integer(math.MaxUint32)
			if v < 0 {
				return nil, false
			}
			ids = append(ids, uint32(v))
		}
		return ids, true
	}
	switch {
	case n.kind == '"':
		p.Prompt, p.PromptKind = n.content(body), PromptText
		return true
	case n.all('"'):
		for _, e := range n.elements {
			p.Prompt = append(p.Prompt, e.content(body)...)
		}
		p.PromptKind = PromptTexts
		return true
	case n.all('0'):
		list, ok := ids(n)
		if ok {
			p.Tokens, p.PromptKind = list, PromptTokens
		}
		return ok
	case n.all('['):
		for _, e := range n.elements {
			if _, ok := ids(e); !ok {
				return false
			}
		}
		p.Tokens, _ = ids(n.elements[0])
		p.PromptKind = PromptTokenList
		return true
	}
	return false
}

func (n *node) span() Span { return Span{uint32(n.start), uint32(n.end)} }

func (n *node) str() string {
	if n.kind == '"' {
		return n.text
	}
	return ""
}

func (n *node) integer(most uint64) int64 {
	v, err := strconv.ParseUint(n.text, 10, 63)
	if n.kind != '0' || err != nil || v > most {
		return -1
	}
	return int64(v)
}

func (n *node) textPart(body []byte) partPicture {
	inner := Span{uint32(n.start + 1), uint32(n.end - 1)}
	return partPicture{PartText, bytes.IndexByte(inner.Of(body), '\\') >= 0, inner, n.text}
}

// content reads a string or a list of content parts.
func (n *node) content(body []byte) (parts []partPicture) {
	if n.kind == '"' {
		return []partPicture{n.textPart(body)}
	}
	for _, e := range n.elements {
		kind, text := e.member("type").str(), e.member("text")
		if (kind == "text" || kind == "input_text" || kind == "output_text") && text.kind == '"' {
			parts = append(parts, text.textPart(body))
		} else {
			parts = append(parts, partPicture{Kind: PartOther, Span: e.span()})
		}
	}
	return parts
}

// items reads a list of messages or input items.
func (n *node) items(body []byte) (messages []messagePicture) {
	if !n.all('{') {
		return nil
	}
	for _, e := range n.elements {
		messages = append(messages, messagePicture{e.member("role").str(), e.span(), e.member("content").content(body)})
	}
	return messages
}

// pictureOf resolves what the Scanner found.
func pictureOf(body []byte, r *Result) picture {
	text := func(s Span) string { return string(AppendUnescaped(nil, s.Of(body))) }
	parts := func(at Range) (p []partPicture) {
		for _, part := range r.Parts[at.Start:at.End] {
			q := partPicture{Kind: part.Kind, Escaped: part.Escaped, Span: part.Span}
			if part.Kind == PartText {
				q.Text = text(part.Span)
			}
			p = append(p, q)
		}
		return p
	}
	p := picture{
		Model: text(r.Model), HasModel: r.HasModel, Stream: r.Stream, MaxTokens: r.MaxTokens, PrefixLen: r.PrefixLen,
		User: text(r.User), CacheSalt: text(r.CacheSalt), SessionID: text(r.SessionID), Tools: r.Tools,
		System: parts(r.System), Prompt: parts(r.Prompt), PromptKind: r.PromptKind,
		Tokens: append([]uint32(nil), r.Tokens...),
	}
	for _, m := range r.Messages {
		p.Messages = append(p.Messages, messagePicture{text(m.Role), m.Span, parts(m.Parts)})
	}
	return p
}
