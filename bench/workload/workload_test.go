package workload

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestDayIsWhatItSays compares a day with its parameters.
func TestDayIsWhatItSays(t *testing.T) {
	d := NewDay("day", 1)
	d.PeakPerSecond = 4
	w := d.Make()
	perHour := make([]float64, 24)
	uncached, seen := 0.0, map[uint32]bool{}
	last := int64(0)
	for i := range w.Requests {
		r := &w.Requests[i]
		if r.AtNs < last || r.AtNs >= w.SpanNs || r.Prompt < 1 || r.Output < 1 || len(r.Contents) > int(r.Prompt+r.Output)/BlockTokens {
			t.Fatalf("request %d: %+v after %d", i, *r, last)
		}
		last = r.AtNs
		perHour[r.AtNs/3600e9]++
		fresh := int(r.Prompt)
		for b, c := range r.Contents {
			if int(c) >= w.Contents || c == 0 {
				t.Fatalf("request %d: content %d of %d", i, c, w.Contents)
			}
			if seen[c] && b < int(r.Prompt)/BlockTokens {
				fresh -= BlockTokens
			}
			seen[c] = true
		}
		uncached += float64(fresh)
	}
	least, most := math.Inf(1), 0.0
	for _, n := range perHour {
		least, most = min(least, n/3600), max(most, n/3600)
	}
	n := float64(len(w.Requests))
	t.Logf("%d requests, %.1f to %.1f a second in an hour, %.0f uncached tokens, %d contents", len(w.Requests), least, most, uncached/n, w.Contents)
	if math.Abs(most/d.PeakPerSecond-1) > .1 || most/least < 4.5 || most/least > 6.5 {
		t.Errorf("load is %.1f to %.1f a second, want the peak with a trough of a sixth", least, most)
	}
}

func BenchmarkDay(b *testing.B) {
	for b.Loop() {
		NewDay("day", 1).Make()
	}
}

func TestDayIsDeterministic(t *testing.T) {
	d := NewDay("day", 3)
	d.Hours, d.NoiseSigma, d.NoiseSeconds = 1, .2, 600
	if a, b := d.Make(), d.Make(); !reflect.DeepEqual(a, b) {
		t.Error("two days of one seed differ")
	}
	a := d.Make()
	d.Seed++
	if reflect.DeepEqual(a.Requests, d.Make().Requests) {
		t.Error("two seeds make the same day")
	}
}

// TestChangesAreSharp wants a step to double the load at once.
func TestChangesAreSharp(t *testing.T) {
	d := NewDay("step", 2)
	d.Hours, d.PeakToTrough, d.Changes = 2, 1, []Change{{Name: "step", From: 1, By: 2}}
	w := d.Make()
	count := func(from, to float64) float64 {
		n := w.before(int64(to*3600e9)) - w.before(int64(from*3600e9))
		return float64(n) / (to - from) / 3600
	}
	before, just, after := count(.5, 1), count(1, 1+1.0/60), count(1.5, 2)
	if math.Abs(before/50-1) > .05 || math.Abs(just/100-1) > .08 || math.Abs(after/100-1) > .05 {
		t.Errorf("%.1f, %.1f, %.1f a second before, just after and after a step from 50 to 100", before, just, after)
	}
	if cut := w.Until(3600e9); len(cut.Marks) != 0 || cut.SpanNs != 3600e9 || len(cut.Requests) != w.before(3600e9) {
		t.Errorf("cut at the step: %d marks, %d requests", len(cut.Marks), len(cut.Requests))
	}
}

func TestTraces(t *testing.T) {
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	azure := write("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.6805900,396,109\n")
	w, err := Azure(azure, 4)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{0, 1e9, 2e9, 3e9, 4e9, 5e9, 6e9, 7e9} {
		if got := w.Requests[i]; got.AtNs != want || got.Prompt != []int32{374, 396}[i/4] {
			t.Errorf("request %d: %+v, want it at %d", i, got, want)
		}
	}
	mooncake := write("m.jsonl", `{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 0, "input_length": 600, "output_length": 6, "hash_ids": [0, 3]}
{"timestamp": 3000, "input_length": 600, "output_length": 6, "hash_ids": [0, 3]}
`)
	if w, err = Mooncake(mooncake, 2); err != nil {
		t.Fatal(err)
	}
	var at []int64
	var contents [][]uint32
	for _, r := range w.Requests {
		at, contents = append(at, r.AtNs), append(contents, r.Contents)
	}
	if want := []int64{0, 75e7, 15e8, 225e7, 3e9, 375e7}; !reflect.DeepEqual(at, want) {
		t.Errorf("arrivals at %v, want %v", at, want)
	}
	if want := [][]uint32{{1, 2}, {4, 5}, {1}, {4}, {1}, {4}}; !reflect.DeepEqual(contents, want) || w.Contents != 6 {
		t.Errorf("contents %v below %d, want %v", contents, w.Contents, want)
	}
	for _, file := range []string{"nowhere", write("bad.csv", "a,b,c\nx,1,2\n"), write("short.csv", "a,b,c\n")} {
		if _, err := Azure(file, 1); err == nil {
			t.Errorf("no error for %s", filepath.Base(file))
		}
	}
	if _, err := Mooncake(write("bad.jsonl", "{"), 1); err == nil {
		t.Error("no error for a trace that is no JSON")
	}
}
