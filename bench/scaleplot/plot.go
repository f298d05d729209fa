package scaleplot

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"warmpath/bench/scenario"
)

// colours are told apart by those who do not see all colours, too (Okabe and Ito).
var colours = []color.Color{
	color.RGBA{0, 114, 178, 255},
	color.RGBA{213, 94, 0, 255},
	color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255},
	color.RGBA{86, 180, 233, 255},
	color.RGBA{230, 159, 0, 255},
}

// Size of a picture and how many points a line has at most.
const (
	width, height = 24 * vg.Centimeter, 20 * vg.Centimeter
	dots          = 110 // an inch
	mostPoints    = 480
)

// Write draws the reports as a PNG file.
func Write(file string, reports []*scenario.Report) (err error) {
	if len(reports) == 0 || len(reports[0].Points) == 0 {
		return errors.New("plot: no report has a series")
	}
	if ext := filepath.Ext(file); ext != ".png" {
		return fmt.Errorf("plot: %s ends in %q: name a .png", file, ext)
	}
	panels := [][]*plot.Plot{{load(reports[0])}, {nodes(reports)}, {attainment(reports)}}
	panels[0][0].Title.Text = "Workload " + reports[0].Workload
	panels[2][0].X.Label.Text = "hours"
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dots))
	parts := plot.Align(panels, draw.Tiles{Rows: len(panels), Cols: 1, PadY: 4 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter}, draw.New(canvas))
	for i := range panels {
		panels[i][0].Draw(parts[i][0])
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(f); err != nil {
		return fmt.Errorf("plot %s: %w", file, err)
	}
	return nil
}

// panel is an empty plot with a grid.
func panel(label string) *plot.Plot {
	p := plot.New()
	p.Y.Label.Text = label
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	return p
}

// line adds one line; its name is in the legend unless it is "".
func line(p *plot.Plot, i int, name string, points plotter.XYs) {
	l := &plotter.Line{XYs: points, LineStyle: plotter.DefaultLineStyle}
	l.Color, l.Width = colours[i%len(colours)], vg.Points(1.2)
	p.Add(l)
	if name != "" {
		p.Legend.Add(name, l)
	}
}

// every is how many points of a series become one.
func every(points []scenario.Point) int { return max(1, (len(points)+mostPoints-1)/mostPoints) }

// sample makes one value of each few points of a report, from where it is measured.
func sample(r *scenario.Report, value func(part []scenario.Point, from, to float64) float64) (list plotter.XYs) {
	n := every(r.Points)
	for i := 0; i+n <= len(r.Points); i += n {
		part := r.Points[i : i+n]
		from, to := 0.0, part[n-1].AtSeconds
		if i > 0 {
			from = r.Points[i-1].AtSeconds
		}
		if v := value(part, from, to); !math.IsNaN(v) {
			list = append(list, plotter.XY{X: to / 3600, Y: v})
		}
	}
	return list
}

func load(r *scenario.Report) *plot.Plot {
	p := panel("requests/s")
	line(p, 0, "", sample(r, func(_ []scenario.Point, from, to float64) float64 {
		perSecond, _ := r.Window(from, to)
		return perSecond
	}))
	return p
}

func nodes(reports []*scenario.Report) *plot.Plot {
	p := panel("nodes, starting ones included")
	for i, r := range reports {
		name := fmt.Sprintf("%s: %.0f GPU-hours", r.Scaler, r.GPUHours)
		line(p, i, name, sample(r, func(part []scenario.Point, _, _ float64) float64 {
			sum := 0
			for _, at := range part {
				sum += at.Ready + at.Starting + at.Draining
			}
			return float64(sum) / float64(len(part))
		}))
	}
	return p
}

func attainment(reports []*scenario.Report) *plot.Plot {
	p := panel("first tokens in time, %")
	p.Legend.Top = false
	least := 100.0
	for i, r := range reports {
		points := sample(r, func(_ []scenario.Point, from, to float64) float64 {
			perSecond, share := r.Window(from, to)
			if perSecond == 0 {
				return math.NaN()
			}
			least = min(least, 100*share)
			return 100 * share
		})
		line(p, i, fmt.Sprintf("%s: %.2f %%", r.Scaler, 100*r.SLOAttainment), points)
	}
	p.Y.Min, p.Y.Max = math.Floor(max(0, least-1)), 100.5
	return p
}
