package soak

import (
	"errors"
	"fmt"
	"time"
)

// Options of a run. The zero value of a field is its default, but for Warmpath.
type Options struct {
	Warmpath     string        // the router's executable
	Duration     time.Duration // the run lasts at least as long; default 10 minutes
	Requests     int64         // and has at least so many requests; 0 = none are asked for
	Rate         int           // requests a second at most; 0 = no bound
	Clients      int           // that send at once; default 256
	Nodes        int           // 3 or more; default 5
	Seed         uint64        // of everything that is random; default 1
	OperateEvery time.Duration // between two of: reload, drain, undrain, node removed or added; default 5 s, below 0 = never
	DisturbEvery time.Duration // between two stops of a node; default 15 s, below 0 = never
	RestartEvery time.Duration // between two hot restarts of the router; 0 = never
	Violations   int           // after which the run ends; default 1
	Config       []string      // further lines of the router's configuration
	Commit       string        // of the program that runs this
}

func (o *Options) complete() {
	if o.Duration == 0 {
		o.Duration = 10 * time.Minute
	}
	if o.Clients == 0 {
		o.Clients = 256
	}
	if o.Nodes == 0 {
		o.Nodes = 5
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	if o.OperateEvery == 0 {
		o.OperateEvery = 5 * time.Second
	}
	if o.DisturbEvery == 0 {
		o.DisturbEvery = 15 * time.Second
	}
	if o.Violations == 0 {
		o.Violations = 1
	}
}

// leastNodes lets one be stopped and another be drained or removed, with one
// left that answers.
const leastNodes = 3

// Check says what is wrong with the options.
func (o *Options) Check() error {
	var problems []error
	bad := func(wrong bool, format string, values ...any) {
		if wrong {
			problems = append(problems, fmt.Errorf(format, values...))
		}
	}
	bad(o.Warmpath == "", "check warmpath: name the router's executable")
	bad(o.Duration < time.Second, "check duration %v: use 1s or more", o.Duration)
	bad(o.Requests < 0, "check requests %d: use 0 or more", o.Requests)
	bad(o.Rate < 0, "check rate %d: use 1 or more, or 0", o.Rate)
	bad(o.Clients < 1 || o.Clients > 2000, "check clients %d: use 1 to 2000", o.Clients)
	bad(o.Nodes < leastNodes || o.Nodes > 64, "check nodes %d: use %d to 64", o.Nodes, leastNodes)
	bad(o.RestartEvery < 0, "check restart %v: use 0 or more", o.RestartEvery)
	bad(o.Violations < 1, "check violations %d: use 1 or more", o.Violations)
	return errors.Join(problems...)
}
