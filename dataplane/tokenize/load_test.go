package tokenize

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// smallFile is a complete file with the bytes as its vocabulary and two merges.
func smallFile() map[string]any {
	vocab := map[string]any{}
	for b, r := range byteRunes {
		vocab[string(r)] = b
	}
	vocab["ab"], vocab["abc"] = 256, 257
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil,
		"added_tokens": []any{map[string]any{"id": 258, "content": "<end>", "special": true}},
		"normalizer":   map[string]any{"type": "NFC"},
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{
			map[string]any{"type": "Split", "pattern": map[string]any{"Regex": qwenPattern}, "behavior": "Isolated", "invert": false},
			map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
		}},
		"post_processor": map[string]any{"type": "ByteLevel", "trim_offsets": false},
		"decoder":        map[string]any{"type": "ByteLevel"},
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": "", "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
			"vocab": vocab, "merges": []any{[]any{"a", "b"}, []any{"ab", "c"}},
		},
	}
}

// set replaces the value at a path like "model.vocab.ab" or "added_tokens.0.id".
func set(t *testing.T, at any, path string, value any) {
	t.Helper()
	key, rest, more := strings.Cut(path, ".")
	switch v := at.(type) {
	case map[string]any:
		switch {
		case more:
			set(t, v[key], rest, value)
		case value == "(gone)":
			delete(v, key)
		default:
			v[key] = value
		}
	case []any:
		i := int(key[0] - '0')
		if !more {
			v[i] = value
			return
		}
		set(t, v[i], rest, value)
	default:
		t.Fatalf("no %q in %v", path, at)
	}
}

func TestLoadRefuses(t *testing.T) {
	split := func(changes map[string]any) map[string]any {
		s := map[string]any{"type": "Split", "pattern": map[string]any{"Regex": qwenPattern}, "behavior": "Isolated", "invert": false}
		for k, v := range changes {
			s[k] = v
		}
		return s
	}
	token := func(id int, content string, flags ...string) map[string]any {
		r := map[string]any{"id": id, "content": content}
		for _, f := range flags {
			r[f] = true
		}
		return r
	}
	for _, c := range []struct {
		path  string
		value any
		what  string // of the error
		why   string // a part of it
	}{
		{"version", "2.0", "version", `"2.0"`},
		{"truncation", map[string]any{"max_length": 5}, "truncation, padding", "null"},
		{"padding", map[string]any{}, "truncation, padding", "null"},
		{"surprise", 1, "(top level)", "surprise"},
		{"model.surprise", 1, "model", "surprise"},
		{"model.type", "WordPiece", "model.type", "WordPiece"},
		{"model.dropout", 0.1, "model.dropout", "random"},
		{"model.continuing_subword_prefix", "##", "model.continuing_subword_prefix", "##"},
		{"model.end_of_word_suffix", "</w>", "model.end_of_word_suffix", "</w>"},
		{"model.byte_fallback", true, "model.byte_fallback", "byte-level"},
		{"model.vocab", map[string]any{}, "model.vocab", "empty"},
		{"model.vocab.a", "(gone)", "model.vocab", "0x61"},
		{"model.vocab.abc", "(gone)", "model.merges[1]", `"ab" and "c"`},
		{"model.vocab.zz", 97, "model.vocab", "same id"},
		{"model.vocab.zz", maxIDs, "model.vocab", "2097152"},
		{"model.vocab.zz", -1, "model", "-1"},
		{"model.merges", []any{"a b c"}, "model", "two entries"},
		{"model.merges", []any{[]any{"a", 1}}, "model", "merges"},
		{"normalizer", map[string]any{"type": "NFKC"}, "normalizer", "NFKC"},
		{"normalizer", map[string]any{"type": "Sequence", "normalizers": []any{map[string]any{"type": "Lowercase"}}}, "normalizer.normalizers[0]", "Lowercase"},
		{"pre_tokenizer.pretokenizers.0", split(map[string]any{"pattern": map[string]any{"Regex": `\w+`}}), "pre_tokenizer", `\\w+`},
		{"pre_tokenizer.pretokenizers.0", split(map[string]any{"behavior": "Removed"}), "pre_tokenizer.pretokenizers[0]", "Isolated"},
		{"pre_tokenizer.pretokenizers.0", split(map[string]any{"invert": true}), "pre_tokenizer.pretokenizers[0]", "inverted"},
		{"pre_tokenizer.pretokenizers.0", map[string]any{"type": "Digits", "individual_digits": false}, "pre_tokenizer.pretokenizers[0]", "Digits"},
		{"pre_tokenizer.pretokenizers.1.use_regex", true, "pre_tokenizer", "use_regex true"},
		{"pre_tokenizer.pretokenizers.1.add_prefix_space", true, "pre_tokenizer.pretokenizers[1].add_prefix_space", "before it"},
		{"post_processor", map[string]any{"type": "Bert"}, "post_processor", "Bert"},
		{"decoder", map[string]any{"type": "WordPiece"}, "decoder", "WordPiece"},
		{"added_tokens.0.id", 300, "added_tokens[0]", "258"},
		{"added_tokens.0.content", "", "added_tokens[0]", "no content"},
		{"added_tokens", []any{token(258, "x1"), token(259, "x1")}, "added_tokens[1]", "twice"},
		{"added_tokens", []any{token(258, "x1", "single_word", "normalized")}, "added_tokens[0]", "single_word"},
		{"added_tokens", []any{token(258, "x1", "rstrip"), token(259, "\n")}, "added_tokens", "white space"},
	} {
		f := smallFile()
		set(t, f, c.path, c.value)
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Load(data)
		var u *Unsupported
		if !errors.As(err, &u) {
			t.Errorf("%s = %v: got %v, want it refused", c.path, c.value, err)
			continue
		}
		if u.What != c.what || !strings.Contains(u.Why, c.why) {
			t.Errorf("%s = %v: got %v, want %s … %s", c.path, c.value, u, c.what, c.why)
		}
	}
}

func TestLoadTemplateRefuses(t *testing.T) {
	special := map[string]any{"<end>": map[string]any{"id": "<end>", "ids": []any{258}, "tokens": []any{"<end>"}}}
	piece := func(kind, id string) any { return map[string]any{kind: map[string]any{"id": id, "type_id": 0}} }
	for _, c := range []struct {
		single []any
		what   string
	}{
		{[]any{}, "post_processor.single"},
		{[]any{piece("Sequence", "B")}, "post_processor.single[0]"},
		{[]any{piece("Sequence", "A"), piece("Sequence", "A")}, "post_processor.single[1]"},
		{[]any{piece("SpecialToken", "<start>"), piece("Sequence", "A")}, "post_processor.single[0]"},
		{[]any{piece("SpecialToken", "<end>"), piece("Sequence", "A"), piece("SpecialToken", "<end>")}, ""},
	} {
		f := smallFile()
		f["post_processor"] = map[string]any{"type": "TemplateProcessing", "single": c.single, "pair": []any{}, "special_tokens": special}
		data, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		tokenizer, err := Load(data)
		if c.what == "" {
			if before, after := tokenizer.Wrap(); err != nil || len(before) != 1 || len(after) != 1 || before[0] != 258 || after[0] != 258 {
				t.Errorf("got %v, %v, %v", before, after, err)
			}
			continue
		}
		var u *Unsupported
		if !errors.As(err, &u) || u.What != c.what {
			t.Errorf("%v: got %v, want %s refused", c.single, err, c.what)
		}
	}
}

func TestLoadNoJSON(t *testing.T) {
	for _, data := range []string{"", "{", `{"version": "1.0"} x`, "\x00", `{"model": }`} {
		_, err := Load([]byte(data))
		var u *Unsupported
		if err == nil || errors.As(err, &u) || !strings.Contains(err.Error(), "no valid JSON") {
			t.Errorf("%q: got %v", data, err)
		}
	}
}

// FuzzLoad replaces a part of a file: Load must refuse what it does not
// understand, and what it accepts must encode.
func FuzzLoad(f *testing.F) {
	for _, seed := range [][2]string{
		{"normalizer", `null`},
		{"normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"}]}`},
		{"pre_tokenizer", `{"type":"ByteLevel","add_prefix_space":true}`},
		{"pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"ByteLevel"}]}`},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}}],"special_tokens":{}}`},
		{"added_tokens", `[{"id":258,"content":"<a>","lstrip":true},{"id":259,"content":"b","rstrip":true,"normalized":true}]`},
		{"added_tokens", `[{"id":97,"content":"a","single_word":true}]`},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":["a a"]}`},
		{"model", `{"type":"BPE","byte_fallback":true,"unk_token":"u","vocab":{"u":0,"▁":1},"merges":[]}`},
		{"decoder", `{"type":"Sequence","decoders":[]}`},
		{"version", `1`},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	text := []byte("ab abc <a> <end>  b\n12 e\u0301 中 \x00\xff'S")
	f.Fuzz(func(t *testing.T, part string, value []byte) {
		file := smallFile()
		file[part] = json.RawMessage(value)
		data, err := json.Marshal(file)
		if err != nil {
			return
		}
		tokenizer, err := Load(data)
		if err != nil {
			return
		}
		var s Scratch
		ids := tokenizer.Append(nil, text, &s)
		for _, id := range ids {
			if int(id) >= tokenizer.VocabSize() {
				t.Errorf("id %d of %d", id, tokenizer.VocabSize())
			}
			tokenizer.Solid(id)
		}
		tokenizer.Decode(ids)
		checkCuts(t, tokenizer, text)
		for from := 0; ; {
			_, end, _, ok := tokenizer.FindAdded(text, from)
			if !ok {
				break
			}
			if end <= from {
				t.Fatalf("FindAdded(%d) ends at %d", from, end)
			}
			from = end
		}
	})
}
