package message

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// fields say what becomes of each name of an object; at is where the value is.
type fields map[string]func(value json.RawMessage, at string) error

// object reads an object whose names are all known and there once. encoding/json takes
// names in any case and the last of two that are alike, so that two readers see two
// answers.
func object(data []byte, at string, known fields) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := opens(dec, '{', data, at); err != nil {
		return err
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return broken(err, at)
		}
		name, _ := token.(string) // the decoder takes nothing else there
		take, ok := known[name]
		switch {
		case !ok:
			return fmt.Errorf("%s is not known: use %s", under(at, short([]byte(name))), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case seen[name]:
			return fmt.Errorf("%s is there twice", under(at, name))
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return broken(err, under(at, name))
		}
		if err := take(value, under(at, name)); err != nil {
			return err
		}
	}
	return closes(dec, at)
}

// list reads a list.
func list(data []byte, at string, take func(value json.RawMessage, at string) error) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := opens(dec, '[', data, at); err != nil {
		return err
	}
	for i := 0; dec.More(); i++ {
		var value json.RawMessage
		where := fmt.Sprintf("%s[%d]", at, i)
		if err := dec.Decode(&value); err != nil {
			return broken(err, where)
		}
		if err := take(value, where); err != nil {
			return err
		}
	}
	return closes(dec, at)
}

var kinds = map[json.Delim]string{'{': "an object", '[': "a list"}

func opens(dec *json.Decoder, want json.Delim, data []byte, at string) error {
	token, err := dec.Token()
	if err != nil {
		return broken(err, at)
	}
	if token != want {
		return fmt.Errorf("%s is %s: want %s", where(at), short(data), kinds[want])
	}
	return nil
}

// closes wants the end, and nothing after it.
func closes(dec *json.Decoder, at string) error {
	if _, err := dec.Token(); err != nil {
		return broken(err, at)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: something follows its end: want one value and nothing else", where(at))
	}
	return nil
}

func broken(err error, at string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s ends in the middle, or is empty", where(at))
	}
	return fmt.Errorf("%s: %w", where(at), err)
}

// text is a field that must be a string.
func text(to *string) func(json.RawMessage, string) error {
	return func(value json.RawMessage, at string) error {
		if len(value) == 0 || value[0] != '"' {
			return fmt.Errorf("%s is %s: want a string; what has no value is left out", at, short(value))
		}
		if err := json.Unmarshal(value, to); err != nil {
			return broken(err, at)
		}
		return nil
	}
}

func under(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func where(at string) string {
	if at == "" {
		return "the JSON"
	}
	return at
}

// short shows the beginning of a value.
func short(value []byte) string { return Cut(string(bytes.TrimSpace(value)), 40) }
