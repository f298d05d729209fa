package tokenize

import (
	"encoding/json"
	"fmt"
	"slices"
)

// preTokenizer is what a byte-level encoder must know of that part.
type preTokenizer struct {
	split       splitter
	prefixSpace bool
	cuts        cutClass
}

// preTokenizers are the known ones: the patterns of their Splits in order, with
// digitsStep for the pre-tokenizer Digits, and whether ByteLevel at the end
// splits by GPT-2's pattern.
var preTokenizers = []struct {
	steps    []string
	useRegex bool
	split    splitter
	cuts     cutClass
}{
	{[]string{cl100kPattern}, false, splitCl100k, cutAll},
	{[]string{qwenPattern}, false, splitQwen, cutAll},
	{[]string{o200kPattern}, false, splitO200k, cutAll},
	{[]string{tekkenPattern}, false, splitTekken, cutAll},
	{[]string{deepseekNumbers, deepseekCJK, deepseekWords}, false, splitDeepseek, cutAll},
	{nil, true, splitGPT2, cutSpace | cutSymbol},
	{[]string{digitsStep}, true, splitDigitsGPT2, cutSpace | cutSymbol},
}

const digitsStep = "each digit by itself"

// step is one pre-tokenizer of any of the types understood.
type step struct {
	Type  string            `json:"type"`
	Steps []json.RawMessage `json:"pretokenizers"`

	Pattern struct {
		Regex  string `json:"Regex"`
		String string `json:"String"`
	} `json:"pattern"`
	Behavior string `json:"behavior"`
	Invert   bool   `json:"invert"`

	AddPrefixSpace bool  `json:"add_prefix_space"`
	TrimOffsets    bool  `json:"trim_offsets"` // of offsets only
	UseRegex       *bool `json:"use_regex"`

	IndividualDigits bool `json:"individual_digits"`
}

// loadPreTokenizer recognises a pre-tokenizer of a byte-level model.
func loadPreTokenizer(raw json.RawMessage) (*preTokenizer, error) {
	const what = "pre_tokenizer"
	if absent(raw) {
		return nil, &Unsupported{what, "there is none"}
	}
	list := []json.RawMessage{raw}
	var outer step
	if err := strict(what, raw, &outer); err != nil {
		return nil, err
	}
	if outer.Type == "Sequence" {
		list = outer.Steps
	}
	var steps []string
	for i, part := range list {
		var s step
		at := fmt.Sprintf("%s.pretokenizers[%d]", what, i)
		if outer.Type != "Sequence" {
			at = what
		}
		if err := strict(at, part, &s); err != nil {
			return nil, err
		}
		if s.Type == "ByteLevel" && i == len(list)-1 {
			return matchSteps(at, steps, &s)
		}
		name, err := s.name(at)
		if err != nil {
			return nil, err
		}
		steps = append(steps, name)
	}
	return nil, &Unsupported{what, "does not end with ByteLevel"}
}

// name is how preTokenizers has a step before the last.
func (s *step) name(at string) (string, error) {
	switch {
	case s.Type == "Split" && s.Pattern.Regex != "" && s.Behavior == "Isolated" && !s.Invert:
		return s.Pattern.Regex, nil
	case s.Type == "Digits" && s.IndividualDigits:
		return digitsStep, nil
	}
	return "", &Unsupported{at, fmt.Sprintf("%s is understood only as a Split by a Regex, Isolated and not inverted, or as Digits, individual", s.Type)}
}

func matchSteps(at string, steps []string, last *step) (*preTokenizer, error) {
	useRegex := last.UseRegex == nil || *last.UseRegex
	for _, known := range preTokenizers {
		if known.useRegex != useRegex || !slices.Equal(known.steps, steps) {
			continue
		}
		p := &preTokenizer{split: known.split, prefixSpace: last.AddPrefixSpace, cuts: known.cuts}
		if p.prefixSpace {
			if len(steps) > 0 {
				return nil, &Unsupported{at + ".add_prefix_space", "is set, with other pre-tokenizers before it"}
			}
			p.cuts &= cutSpace // a part that begins otherwise would get a space
		}
		return p, nil
	}
	return nil, &Unsupported{"pre_tokenizer", fmt.Sprintf("no splitter is written for the patterns %q with use_regex %v", steps, useRegex)}
}

// nfcNormalizer is the normalizer NFC.
type nfcNormalizer struct{}

func (nfcNormalizer) normalize(piece []byte, inert bool, s *Scratch) []byte {
	if inert {
		return piece
	}
	if _, inert = inspect(piece); inert {
		return piece
	}
	s.normal = appendNFC(s.normal[:0], piece, s)
	return s.normal
}

// loadNormalizer reads the normalizer of a byte-level model; nil is none.
func loadNormalizer(what string, raw json.RawMessage) (normalizer, error) {
	if absent(raw) {
		return nil, nil
	}
	var part struct {
		Type        string            `json:"type"`
		Normalizers []json.RawMessage `json:"normalizers"`
	}
	if err := strict(what, raw, &part); err != nil {
		return nil, err
	}
	switch part.Type {
	case "NFC":
		return nfcNormalizer{}, nil
	case "Sequence":
		var all normalizer
		for i, raw := range part.Normalizers {
			one, err := loadNormalizer(fmt.Sprintf("%s.normalizers[%d]", what, i), raw)
			if err != nil {
				return nil, err
			}
			if one != nil {
				all = one // NFC twice is NFC
			}
		}
		return all, nil
	}
	return nil, &Unsupported{what, fmt.Sprintf("%s is not NFC", part.Type)}
}

// loadByteDecoder checks that ids are meant to be decoded as bytes.
func loadByteDecoder(raw json.RawMessage) error {
	if absent(raw) {
		return nil
	}
	kind, err := typeOf("decoder", raw)
	if err == nil && kind != "ByteLevel" {
		err = &Unsupported{"decoder", fmt.Sprintf("%s is not ByteLevel, so the model may not be either", kind)}
	}
	return err
}

// postProcessor is a post-processor of any of the types understood.
type postProcessor struct {
	Type       string            `json:"type"`
	Processors []json.RawMessage `json:"processors"`

	Single []struct {
		SpecialToken *struct {
			ID     string `json:"id"`
			TypeID int    `json:"type_id"`
		} `json:"SpecialToken"`
		Sequence *struct {
			ID     string `json:"id"`
			TypeID int    `json:"type_id"`
		} `json:"Sequence"`
	} `json:"single"`
	Pair          json.RawMessage `json:"pair"`
	SpecialTokens map[string]struct {
		ID     string   `json:"id"`
		IDs    []uint32 `json:"ids"`
		Tokens []string `json:"tokens"`
	} `json:"special_tokens"`

	AddPrefixSpace bool `json:"add_prefix_space"` // of ByteLevel: all three are
	TrimOffsets    bool `json:"trim_offsets"`     // about offsets only
	UseRegex       bool `json:"use_regex"`
}

// loadPostProcessor returns what is put around the ids of a text.
func loadPostProcessor(what string, raw json.RawMessage) (before, after []uint32, err error) {
	if absent(raw) {
		return nil, nil, nil
	}
	var p postProcessor
	if err := strict(what, raw, &p); err != nil {
		return nil, nil, err
	}
	switch p.Type {
	case "ByteLevel":
		return nil, nil, nil
	case "Sequence":
		for i, raw := range p.Processors {
			first, last, err := loadPostProcessor(fmt.Sprintf("%s.processors[%d]", what, i), raw)
			if err != nil {
				return nil, nil, err
			}
			before, after = slices.Concat(first, before), slices.Concat(after, last)
		}
		return before, after, nil
	case "TemplateProcessing":
		return p.template(what)
	}
	return nil, nil, &Unsupported{what, fmt.Sprintf("%s is none of ByteLevel, TemplateProcessing and Sequence", p.Type)}
}

// template reads the form of a single text: special tokens around sequence A.
func (p *postProcessor) template(what string) (before, after []uint32, err error) {
	seen := false
	for i, item := range p.Single {
		at := fmt.Sprintf("%s.single[%d]", what, i)
		switch {
		case item.Sequence != nil && item.Sequence.ID == "A" && !seen:
			seen = true
		case item.SpecialToken != nil:
			token, ok := p.SpecialTokens[item.SpecialToken.ID]
			if !ok {
				return nil, nil, &Unsupported{at, fmt.Sprintf("%q is not among special_tokens", item.SpecialToken.ID)}
			}
			if seen {
				after = append(after, token.IDs...)
			} else {
				before = append(before, token.IDs...)
			}
		default:
			return nil, nil, &Unsupported{at, "is neither a special token nor the one sequence A"}
		}
	}
	if !seen {
		return nil, nil, &Unsupported{what + ".single", "has no sequence A"}
	}
	return before, after, nil
}
