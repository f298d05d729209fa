package laws

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"warmpath/bench/scenario"
	"warmpath/scaler"
)

// Spec is one law in the registry.
type Spec struct {
	Name   string
	Family string // laws of one family are compared, and the best speaks for it
	// Low and High bound the knob; the higher it is, the fewer nodes there are.
	Low, High float64
	Log       bool    // the knob is a ratio: halves are geometric
	Whole     bool    // the knob is a whole number
	Start     float64 // what the knob is without tuning
	// New makes the law. It, Foresee or Study is set.
	New func(knob float64, s scenario.Setup) scenario.Law
	// Fixed says that the knob is minus the number of nodes, from the start on.
	Fixed bool
	// Foresee makes the plan of a law that knows the future.
	Foresee foreseer
	// Study makes Foresee from the configuration; it may run it.
	Study func(ctx context.Context, cfg *scenario.Config) (foreseer, error)
}

// foreseer makes a plan.
type foreseer func(knob float64, cfg *scenario.Config) []scenario.Wanted

// studied returns the law with what it learns of the configuration beforehand.
func (s Spec) studied(ctx context.Context, cfg *scenario.Config) (_ Spec, err error) {
	if s.Study != nil {
		s.Foresee, err = s.Study(ctx, cfg)
		s.Study = nil
	}
	return s, err
}

// specs are all laws, in the order in which they are shown.
var specs = []Spec{
	{
		Name: "hpa_busy", Family: "hpa", Low: .2, High: .999, Start: .7,
		New: func(knob float64, s scenario.Setup) scenario.Law { return newHPA("hpa_busy", busyShare, knob, s) },
	},
	{
		Name: "hpa_running", Family: "hpa", Low: .01, High: 1, Log: true, Start: .25,
		New: func(knob float64, s scenario.Setup) scenario.Law { return newHPA("hpa_running", runningShare, knob, s) },
	},
	{
		Name: "keda_waiting", Family: "keda", Low: .005, High: 50, Log: true, Start: 1,
		New: func(knob float64, s scenario.Setup) scenario.Law { return newKEDA("keda_waiting", false, knob, s) },
	},
	{
		Name: "keda_work", Family: "keda", Low: .5, High: 100, Log: true, Start: 16,
		New: func(knob float64, s scenario.Setup) scenario.Law { return newKEDA("keda_work", true, knob, s) },
	},
	{Name: "warmpath", Family: "warmpath", Low: 1, High: 1, Start: 1, New: newPlanned},
	{Name: "oracle", Family: "oracle", Low: .01, High: 1000, Log: true, Start: 10, Study: studyLadder},
	{Name: "oracle_flat", Family: "oracle", Low: -64, High: -1, Whole: true, Start: -24, Foresee: flat},
	{Name: "oracle_linear", Family: "foresight", Low: .3, High: 1.2, Start: .75, Foresee: foresee(linear, 30)},
	{Name: "oracle_linear_slow", Family: "foresight", Low: .3, High: 1.2, Start: .75, Foresee: foresee(linear, 120)},
	{Name: "oracle_root", Family: "foresight", Low: -4, High: 1, Start: -1, Foresee: foresee(root, 30)},
	{Name: "oracle_root_slow", Family: "foresight", Low: -4, High: 1, Start: -1, Foresee: foresee(root, 120)},
}

// Find returns the laws that a name stands for: itself, or a family. "static" is a
// fixed fleet to be tuned, "static:N" one of N nodes.
func Find(name string, most int) ([]Spec, error) {
	if number, ok := strings.CutPrefix(name, "static:"); ok {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 || n > most {
			return nil, fmt.Errorf("find scaler %q: %q is no number of nodes from 1 to %d", name, number, most)
		}
		s := static(n)
		s.Name, s.Low, s.High, s.Start = name, -float64(n), -float64(n), -float64(n)
		return []Spec{s}, nil
	}
	if name == "static" {
		return []Spec{static(most)}, nil
	}
	var found []Spec
	for _, s := range specs {
		if s.Name == name || s.Family == name {
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("find scaler %q: no such law; use one of %s", name, strings.Join(Names(), ", "))
	}
	return found, nil
}

// Names returns what Find knows, families and their laws.
func Names() []string {
	names := []string{"static", "static:N"}
	for _, s := range specs {
		for _, name := range []string{s.Family, s.Name} {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Run runs a configuration under the law with its knob at a setting.
func (s *Spec) Run(cfg scenario.Config, knob float64) (*scenario.Report, error) {
	cfg = cfg.WithDefaults()
	if s.Whole {
		knob = math.Round(knob)
	}
	known, err := s.studied(context.Background(), &cfg)
	if err != nil {
		return nil, err
	}
	if known.Foresee != nil {
		cfg.Foreseen = known.Foresee(knob, &cfg)
		r, err := scenario.Run(cfg, nil)
		if err == nil {
			r.Scaler = fmt.Sprintf("%s %.4g", s.Name, knob)
		}
		return r, err
	}
	if s.Fixed {
		cfg.StartNodes = int(-knob)
	}
	return scenario.Run(cfg, s.New(knob, cfg.Setup()))
}

// static is a fleet of a fixed size.
func static(most int) Spec {
	return Spec{
		Name: "static", Family: "static", Low: -float64(most), High: -1, Whole: true, Fixed: true, Start: -float64(most),
		New: func(knob float64, s scenario.Setup) scenario.Law {
			return &fixed{replicas{spec: int(-knob), most: s.MaxNodes}}
		},
	}
}

// fixed keeps a number of nodes: those that die are made again.
type fixed struct{ replicas }

func (f *fixed) Name() string { return fmt.Sprintf("static %d", f.spec) }

func (f *fixed) IntervalSeconds() float64 { return hpaSyncSeconds }

func (f *fixed) Decide(s *scaler.Signals) scenario.Orders { return f.orders(s) }
