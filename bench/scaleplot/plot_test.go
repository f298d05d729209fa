package scaleplot

import (
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"warmpath/bench/scenario"
)

// TestWriteDraws draws two reports and reads the picture.
func TestWriteDraws(t *testing.T) {
	var reports []*scenario.Report
	for i := range 2 {
		r := &scenario.Report{Scaler: "law", Workload: "day", GPUHours: float64(i), SLOAttainment: .99, Seconds: make([]scenario.Second, 7200)}
		for s := range r.Seconds {
			r.Seconds[s] = scenario.Second{Arrived: int32(s % 50), Attained: int32(s % 49)}
		}
		for s := 10; s < 7200; s += 10 {
			r.Points = append(r.Points, scenario.Point{AtSeconds: float64(s), Ready: 5 + i, Starting: s % 3})
		}
		reports = append(reports, r)
	}
	file := filepath.Join(t.TempDir(), "p.png")
	if err := Write(file, reports); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[any]bool{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			seen[picture.At(x, y)] = true
		}
	}
	for i := range reports {
		if !seen[colours[i]] {
			t.Errorf("no line in the colour of report %d", i)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	if err := Write("p.png", nil); err == nil {
		t.Error("no error without reports")
	}
	r := &scenario.Report{Points: make([]scenario.Point, 1)}
	if err := Write("p.svg", []*scenario.Report{r}); err == nil {
		t.Error("no error for another kind of picture")
	}
}
