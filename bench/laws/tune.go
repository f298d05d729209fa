package laws

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"warmpath/bench/scenario"
)

// Tuned is a law at the cheapest setting that attains the target.
type Tuned struct {
	Spec   Spec
	Knob   float64
	Report *scenario.Report
	Runs   int
	// Attained says that the target was attained; else Report is of the setting that
	// came nearest to it.
	Attained bool
}

// tuneRuns is how many settings are tried.
const tuneRuns = 9

// Tune finds by bisection the cheapest setting of a law that attains the target of a
// configuration. Attainment need not fall evenly with the knob, so of all that were
// tried the cheapest counts. progress may be nil.
func Tune(ctx context.Context, s Spec, cfg scenario.Config, progress func(*scenario.Report)) (*Tuned, error) {
	cfg = cfg.WithDefaults()
	s, err := s.studied(ctx, &cfg)
	if err != nil {
		return nil, fmt.Errorf("tune %s: %w", s.Name, err)
	}
	t := &Tuned{Spec: s}
	try := func(knob float64) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("tune %s: %w", s.Name, err)
		}
		r, err := s.Run(cfg, knob)
		if err != nil {
			return false, fmt.Errorf("tune %s at %.4g: %w", s.Name, knob, err)
		}
		t.Runs++
		if progress != nil {
			progress(r)
		}
		attained := r.SLOAttainment >= cfg.Target.Attainment
		if t.better(r, attained) {
			t.Knob, t.Report, t.Attained = knob, r, attained
		}
		return attained, nil
	}
	low, high := s.Low, s.High
	for range tuneRuns {
		if low == high {
			break
		}
		middle := s.between(low, high)
		attained, err := try(middle)
		if err != nil {
			return nil, err
		}
		if attained {
			low = middle
		} else {
			high = middle
		}
		if s.Whole && high-low <= 1 {
			break
		}
	}
	if !t.Attained { // the ends of the range were not tried
		if _, err := try(s.Low); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// better reports whether a run goes before the best until then.
func (t *Tuned) better(r *scenario.Report, attained bool) bool {
	switch {
	case t.Report == nil || attained != t.Attained:
		return t.Report == nil || attained
	case attained:
		return r.GPUHours < t.Report.GPUHours
	default:
		return r.SLOAttainment > t.Report.SLOAttainment
	}
}

func (s *Spec) between(low, high float64) float64 {
	switch {
	case s.Log:
		return math.Sqrt(low * high)
	case s.Whole:
		return math.Floor((low + high) / 2)
	default:
		return (low + high) / 2
	}
}

// At runs a law at one setting.
func At(s Spec, knob float64, cfg scenario.Config) (*Tuned, error) {
	r, err := s.Run(cfg, knob)
	if err != nil {
		return nil, fmt.Errorf("run %s at %.4g: %w", s.Name, knob, err)
	}
	return &Tuned{Spec: s, Knob: knob, Report: r, Runs: 1, Attained: r.SLOAttainment >= cfg.WithDefaults().Target.Attainment}, nil
}

// Comparison says how laws are compared.
type Comparison struct {
	Tune     bool                   // each at the cheapest setting that attains the target, else as it starts
	Parallel int                    // runs at once; 0 = 1
	Progress func(*scenario.Report) // is told of each run of the tuning, by any goroutine; may be nil
}

// Compare runs families of laws and returns of each the law that needs the fewest
// GPU-hours, in the order of the families. It ends with ctx, after the run under way.
func Compare(ctx context.Context, families [][]Spec, cfg scenario.Config, c Comparison) ([]*Tuned, error) {
	done := make([][]*Tuned, len(families))
	var group errgroup
	group.limit(max(1, c.Parallel))
	for i, family := range families {
		done[i] = make([]*Tuned, len(family))
		for j, s := range family {
			group.run(func() (err error) {
				if err := ctx.Err(); err != nil {
					return err
				}
				if c.Tune {
					done[i][j], err = Tune(ctx, s, cfg, c.Progress)
				} else {
					done[i][j], err = At(s, s.Start, cfg)
				}
				return err
			})
		}
	}
	if err := group.wait(); err != nil {
		return nil, err
	}
	best := make([]*Tuned, len(families))
	for i := range done {
		for _, t := range done[i] {
			if best[i] == nil || best[i].better(t.Report, t.Attained) {
				best[i] = t
			}
		}
	}
	return best, nil
}

// errgroup runs functions, so many at once, and keeps what went wrong.
type errgroup struct {
	wg    sync.WaitGroup
	slots chan struct{}
	mu    sync.Mutex
	errs  []error
}

func (g *errgroup) limit(n int) { g.slots = make(chan struct{}, n) }

func (g *errgroup) run(f func() error) {
	g.slots <- struct{}{}
	g.wg.Go(func() {
		defer func() { <-g.slots }()
		if err := f(); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.errs = append(g.errs, err)
		}
	})
}

func (g *errgroup) wait() error {
	g.wg.Wait()
	return errors.Join(g.errs...)
}
