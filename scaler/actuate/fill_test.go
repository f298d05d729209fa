package actuate

import (
	"slices"
	"strings"
	"testing"
)

func TestFill(t *testing.T) {
	values := map[string]string{"port": "9000", "key": "a-1", "host": "[fd00::7]", "model": "m/{port}"}
	for text, want := range map[string]string{
		"":                                "",
		"--port={port}":                   "--port=9000",
		"{port+1000}":                     "10000",
		"tcp://{host}:{port+1}":           "tcp://[fd00::7]:9001",
		"{model} {key}":                   "m/{port} a-1", // what was filled in is not filled again
		`{"endpoint":"tcp://*:{port+5}"}`: `{"endpoint":"tcp://*:9005"}`,
		"{}{Port}{port+}{port +1}{nope}":  "{}{Port}{port+}{port +1}{nope}",
		"{key+1}{port+123456}":            "{key+1}{port+123456}",
	} {
		if got := Fill(text, values); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestCheckPlaceholders(t *testing.T) {
	for text, words := range map[string]string{
		"{port}{port+7}{key} {} {Nope} ${}": "",
		"{prot}":                            "unknown placeholder {prot}: use {port}, {key}",
		"{prot+1}":                          "unknown placeholder {prot+1}",
		"{key+1}":                           "only {port}",
	} {
		err := CheckPlaceholders(text, "port", "key")
		if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := PortsAhead("{port} {port+7} {key} x{port+1000}"); !slices.Equal(got, []int{7, 1000}) {
		t.Errorf("%v", got)
	}
}
