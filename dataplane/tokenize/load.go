package tokenize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Unsupported says why a tokenizer.json was refused: something in it could
// change ids in a way that is not reproduced here.
type Unsupported struct {
	What string // the place in the file, like "pre_tokenizer.pretokenizers[0]"
	Why  string // what stands there, and what it would do or what is understood
}

func (u *Unsupported) Error() string {
	return "tokenizer.json: " + u.What + ": " + u.Why + "; its token ids cannot be reproduced"
}

// file is a tokenizer.json.
type file struct {
	Version       string          `json:"version"`
	Truncation    json.RawMessage `json:"truncation"`
	Padding       json.RawMessage `json:"padding"`
	AddedTokens   []addedRecord   `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         json.RawMessage `json:"model"`
}

// addedRecord is an added token in the file.
type addedRecord struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"` // for decoding only
}

// Load reads a tokenizer.json. It returns an [*Unsupported] error for one whose
// ids it could not reproduce exactly, and another error for what is no such
// file. It takes some hundred milliseconds; data is not kept.
func Load(data []byte) (*Tokenizer, error) {
	var f file
	if err := strict("(top level)", data, &f); err != nil {
		var any json.RawMessage
		if broken := json.Unmarshal(data, &any); broken != nil {
			return nil, fmt.Errorf("tokenizer.json: no valid JSON: %w", broken)
		}
		return nil, err
	}
	if f.Version != "1.0" {
		return nil, &Unsupported{"version", fmt.Sprintf("%q is not 1.0", f.Version)}
	}
	if !absent(f.Truncation) || !absent(f.Padding) {
		return nil, &Unsupported{"truncation, padding", "change ids; set both to null, as engines do before they encode"}
	}
	load := loadByteLevel
	if isSentencePiece(&f) {
		load = loadSentencePiece
	}
	t, err := load(&f)
	if err != nil {
		return nil, err
	}
	if t.before, t.after, err = loadPostProcessor("post_processor", f.PostProcessor); err != nil {
		return nil, err
	}
	return t, nil
}

// loadByteLevel builds the tokenizers whose encoder is byteLevel.
func loadByteLevel(f *file) (*Tokenizer, error) {
	pre, err := loadPreTokenizer(f.PreTokenizer)
	if err != nil {
		return nil, err
	}
	normalizer, err := loadNormalizer("normalizer", f.Normalizer)
	if err != nil {
		return nil, err
	}
	if err := loadByteDecoder(f.Decoder); err != nil {
		return nil, err
	}
	model, err := loadBPE(f.Model)
	if err != nil {
		return nil, err
	}
	if err := model.checkPlain(); err != nil {
		return nil, err
	}
	encoder, err := newByteLevel(model, pre)
	if err != nil {
		return nil, err
	}
	added, size, err := resolveAdded(f.AddedTokens, model.vocab)
	if err != nil {
		return nil, err
	}
	form := func(content string) string { return content }
	if normalizer != nil {
		form = func(content string) string { return string(appendNFC(nil, []byte(content), &Scratch{})) }
	}
	t := &Tokenizer{
		encoder: encoder, normalizer: normalizer,
		added:  newAddedTokens(added, normalizer != nil, form),
		pieces: newPieceTable(model.vocab, size),
	}
	t.cuts = newCutter(pre.cuts, &t.added)
	return t, nil
}

// resolveAdded gives the added tokens the ids that the reference gives them:
// that of the vocabulary's entry, else the next free one. A file that says
// otherwise is refused, for it is not clear which of the two is meant. size is
// one more than the largest id.
func resolveAdded(records []addedRecord, vocab map[string]uint32) (tokens []*addedToken, size int, err error) {
	next := uint32(len(vocab)) // for what the vocabulary lacks
	for _, id := range vocab {
		size = max(size, int(id)+1)
	}
	contents, ids := map[string]bool{}, map[uint32]bool{}
	for i, r := range records {
		what := fmt.Sprintf("added_tokens[%d]", i)
		id, inVocab := vocab[r.Content]
		if !inVocab {
			id = next
		}
		next = max(next, id+1)
		switch {
		case r.Content == "":
			return nil, 0, &Unsupported{what, "has no content"}
		case r.ID != id:
			return nil, 0, &Unsupported{what, fmt.Sprintf("%q has id %d, but would be given %d", r.Content, r.ID, id)}
		case contents[r.Content] || ids[id]:
			return nil, 0, &Unsupported{what, fmt.Sprintf("%q or its id %d stands there twice", r.Content, id)}
		case r.SingleWord && r.Normalized:
			return nil, 0, &Unsupported{what, fmt.Sprintf("%q is single_word and normalized", r.Content)}
		}
		contents[r.Content], ids[id] = true, true
		size = max(size, int(id)+1)
		tokens = append(tokens, &addedToken{
			content: r.Content, id: id,
			singleWord: r.SingleWord, lstrip: r.LStrip, rstrip: r.RStrip, normalized: r.Normalized,
		})
	}
	if err := checkSwallowing(tokens); err != nil {
		return nil, 0, err
	}
	if size > maxIDs {
		return nil, 0, &Unsupported{"model.vocab", fmt.Sprintf("ids go up to %d, more than %d", size-1, maxIDs-1)}
	}
	return tokens, size, nil
}

// checkSwallowing refuses a token that swallows the white space after it
// together with one that begins with white space: the reference gives that
// space to both.
func checkSwallowing(tokens []*addedToken) error {
	var swallows, begins string
	for _, token := range tokens {
		if token.rstrip {
			swallows = token.content
		}
		if class, _ := classAt([]byte(token.content), 0); class&space != 0 {
			begins = token.content
		}
	}
	if swallows != "" && begins != "" {
		return &Unsupported{"added_tokens", fmt.Sprintf("%q has rstrip, and %q begins with white space", swallows, begins)}
	}
	return nil
}

// absent reports whether a part of the file is missing or null.
func absent(raw json.RawMessage) bool {
	return len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null"
}

// strict decodes a part of the file, and refuses fields that are not known.
func strict(what string, raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return &Unsupported{what, err.Error()}
	}
	if _, err := decoder.Token(); err != io.EOF {
		return &Unsupported{what, "something follows it"}
	}
	return nil
}

// typeOf returns the "type" of a part of the file.
func typeOf(what string, raw json.RawMessage) (string, error) {
	var part struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &part); err != nil {
		return "", &Unsupported{what, err.Error()}
	}
	return part.Type, nil
}
