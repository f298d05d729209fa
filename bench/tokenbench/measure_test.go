package tokenbench

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"
)

// A small measurement ends, and every line is a result.
func TestMeasure(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes minutes of it; make allocs runs it without")
	}
	t.Chdir("../..")
	var out bytes.Buffer
	err := Measure(t.Context(), Options{Runs: 1, Duration: time.Nanosecond}, &out)
	if errors.Is(err, ErrNoModel) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for d := json.NewDecoder(&out); ; lines++ {
		var r Result
		if err := d.Decode(&r); err == io.EOF {
			break
		} else if err != nil || r.Subject == "" || r.NsPerOp <= 0 || r.Tokens < r.Bytes/20 {
			t.Fatalf("%+v: %v", r, err)
		}
	}
	if lines != 10 {
		t.Errorf("%d results, want 10", lines)
	}
}

func TestNoModel(t *testing.T) {
	if err := Measure(t.Context(), Options{Model: t.TempDir()}, io.Discard); !errors.Is(err, ErrNoModel) {
		t.Errorf("got %v", err)
	}
}

// The samples are as long as they say, and the prose of two conversations
// differs.
func TestTexts(t *testing.T) {
	t.Chdir("../..")
	all, err := loadTexts()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{all.english, all.code, all.chinese, all.letter} {
		if len(s) > sampleBytes || len(s) < sampleBytes-4 {
			t.Errorf("%.20q has %d bytes", s, len(s))
		}
	}
	if one, other := all.chat(1, 4, 4000), all.chat(2, 4, 4000); bytes.Equal(one, other) || !json.Valid(one) || len(one) < 4000 {
		t.Errorf("%.60q, %.60q", one, other)
	}
}
