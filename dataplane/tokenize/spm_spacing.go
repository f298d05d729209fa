package tokenize

import (
	"encoding/json"
	"fmt"
)

// spacing is what a file of this family says about spaces.
type spacing struct {
	normalizes bool // the normalizer spells them ▁
	prepends   bool // and puts one in front of every piece
	metaspace  bool // the pre-tokenizer spells them so
	prefix     prefixRule
	split      bool
}

// spaceStep is a normalizer or pre-tokenizer of any of the types understood.
type spaceStep struct {
	Type          string            `json:"type"`
	Normalizers   []json.RawMessage `json:"normalizers"`
	Pretokenizers []json.RawMessage `json:"pretokenizers"`

	Prepend string `json:"prepend"`
	Pattern struct {
		String string `json:"String"`
		Regex  string `json:"Regex"`
	} `json:"pattern"`
	Content  string `json:"content"`
	Behavior string `json:"behavior"`
	Invert   bool   `json:"invert"`

	Replacement    string  `json:"replacement"`
	PrependScheme  *string `json:"prepend_scheme"`
	AddPrefixSpace *bool   `json:"add_prefix_space"`
	Split          *bool   `json:"split"`
	StrRep         *string `json:"str_rep"` // nothing reads it
}

// loadSpacing reads the normalizer and the pre-tokenizer.
func loadSpacing(f *file) (*spacing, error) {
	spaces := &spacing{}
	if err := eachStep("normalizer", f.Normalizer, spaces.normalizer); err != nil {
		return nil, err
	}
	if err := eachStep("pre_tokenizer", f.PreTokenizer, spaces.preTokenizer); err != nil {
		return nil, err
	}
	if !spaces.normalizes && !spaces.metaspace {
		return nil, &Unsupported{"normalizer", "neither it nor the pre_tokenizer writes ▁ for a space, nor does ByteLevel end the latter"}
	}
	if spaces.prepends && !spaces.normalizes {
		return nil, &Unsupported{"normalizer", "Prepend is understood only together with Replace"}
	}
	if spaces.prepends {
		if spaces.prefix != prefixNever {
			return nil, &Unsupported{"pre_tokenizer.prepend_scheme", "puts a space in front, and the normalizer Prepend does so too"}
		}
		spaces.prefix = prefixEach
	}
	return spaces, nil
}

// eachStep gives the parts of a Sequence, or the one that there is.
func eachStep(what string, raw json.RawMessage, take func(what string, s *spaceStep) error) error {
	if absent(raw) {
		return nil
	}
	var s spaceStep
	if err := strict(what, raw, &s); err != nil {
		return err
	}
	if s.Type != "Sequence" {
		return take(what, &s)
	}
	for i, part := range s.Normalizers {
		if err := eachStep(fmt.Sprintf("%s.normalizers[%d]", what, i), part, take); err != nil {
			return err
		}
	}
	for i, part := range s.Pretokenizers {
		if err := eachStep(fmt.Sprintf("%s.pretokenizers[%d]", what, i), part, take); err != nil {
			return err
		}
	}
	return nil
}

func (p *spacing) normalizer(what string, s *spaceStep) error {
	switch {
	case s.Type == "Prepend" && s.Prepend == string(metaspace) && !p.prepends:
		p.prepends = true
	case s.Type == "Replace" && s.Pattern.String == " " && s.Content == string(metaspace):
		p.normalizes = true
	default:
		return &Unsupported{what, fmt.Sprintf("%s is understood only as Prepend of ▁, once, or as Replace of \" \" by ▁", s.Type)}
	}
	return nil
}

func (p *spacing) preTokenizer(what string, s *spaceStep) error {
	switch {
	case s.Type == "Split" && s.Pattern.String == " " && p.normalizes:
		return nil // there are no spaces left to split at
	case s.Type == "Metaspace" && s.Replacement == string(metaspace) && !p.metaspace:
		p.metaspace = true
		p.split = s.Split == nil || *s.Split
		return p.scheme(what, s)
	}
	return &Unsupported{what, fmt.Sprintf("%s is understood only as Metaspace with ▁, once, or as Split at spaces that the normalizer leaves none of", s.Type)}
}

// scheme reads when Metaspace puts a space in front. The older setting
// add_prefix_space can only agree: the reference does not load what says no
// without never.
func (p *spacing) scheme(what string, s *spaceStep) error {
	scheme := "always"
	if s.PrependScheme != nil {
		scheme = *s.PrependScheme
	}
	rule, ok := map[string]prefixRule{"always": prefixAbsent, "first": prefixFirst, "never": prefixNever}[scheme]
	if !ok {
		return &Unsupported{what + ".prepend_scheme", fmt.Sprintf("%q is none of always, first and never", scheme)}
	}
	if s.AddPrefixSpace != nil && !*s.AddPrefixSpace && rule != prefixNever {
		return &Unsupported{what + ".add_prefix_space", "is false, but prepend_scheme is " + scheme}
	}
	p.prefix = rule
	return nil
}

// metaspaceNormalizer spells spaces ▁ and may put one in front.
type metaspaceNormalizer struct{ prepends bool }

func (n metaspaceNormalizer) normalize(piece []byte, _ bool, s *Scratch) []byte {
	s.normal = n.append(s.normal[:0], piece)
	return s.normal
}

func (n metaspaceNormalizer) append(dst, text []byte) []byte {
	if n.prepends {
		dst = append(dst, string(metaspace)...)
	}
	for _, b := range text {
		if b == ' ' {
			dst = append(dst, string(metaspace)...)
		} else {
			dst = append(dst, b)
		}
	}
	return dst
}
