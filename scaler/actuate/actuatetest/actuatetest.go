package actuatetest

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warmpath/scaler/actuate"
)

// New makes another actuator for the same fleet at the same provider, as a router does
// that was started anew. What it needs it lets go of in t's clean-up; the suite
// closes the actuator.
type New func(t *testing.T) actuate.Actuator

// Option adds to what is tested.
type Option func(*suite)

// OtherFleet gives actuators of another fleet at the same provider: neither may see or
// end the other's nodes.
func OtherFleet(other New) Option {
	return func(s *suite) { s.other = other }
}

// Refuses gives actuators whose Create must be refused for that reason, in words that
// hold all of those given.
func Refuses(name string, reason actuate.Reason, refusing New, words ...string) Option {
	return func(s *suite) { s.refusals = append(s.refusals, refusal{name, reason, refusing, words}) }
}

// Model is what nodes shall serve, if the provider needs to be told.
func Model(name string) Option {
	return func(s *suite) { s.model = name }
}

// Patience is how long a node may take to come or to go, 10 s without it, and how often
// the provider is asked, every 10 ms without it.
func Patience(most, every time.Duration) Option {
	return func(s *suite) { s.patience, s.every = most, every }
}

// prompt is how long a call may take whose context has ended.
const prompt = time.Second

type refusal struct {
	name   string
	reason actuate.Reason
	new    New
	words  []string
}

type suite struct {
	new, other      New
	refusals        []refusal
	model           string
	patience, every time.Duration
}

// Conforms runs the suite. Each of its tests has keys of its own, which were never
// used.
func Conforms(t *testing.T, newActuator New, options ...Option) {
	s := &suite{new: newActuator, patience: 10 * time.Second, every: 10 * time.Millisecond}
	for _, option := range options {
		option(s)
	}
	for _, one := range []struct {
		name string
		test func(*run)
	}{
		{"one node a key", (*run).oneNodeAKey},
		{"many at once", (*run).manyAtOnce},
		{"the whole list", (*run).wholeList},
		{"ends once", (*run).endsOnce},
		{"nodes stay when it closes", (*run).staysWhenClosed},
		{"another fleet", (*run).otherFleet},
		{"a bad key", (*run).badKey},
		{"the caller left", (*run).callerLeft},
		{"refusals", (*run).refusals},
	} {
		t.Run(one.name, func(t *testing.T) {
			r := &run{suite: s, t: t, prefix: "t" + strings.ToLower(rand.Text())[:10]}
			t.Cleanup(r.clean)
			one.test(r)
		})
	}
}

// run is one test of the suite.
type run struct {
	*suite
	t      *testing.T
	prefix string

	mu     sync.Mutex
	keys   []string // that were asked for, in our fleet
	theirs []string // in the other
}

func (r *run) open(newActuator New) actuate.Actuator {
	r.t.Helper()
	a := newActuator(r.t)
	r.t.Cleanup(func() {
		if err := a.Close(); err != nil {
			r.t.Errorf("close: %v", err)
		}
	})
	return a
}

func (r *run) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), r.patience)
	r.t.Cleanup(cancel)
	return ctx
}

// wanted is a node of this test.
func (r *run) wanted(name string) actuate.Wanted {
	key := r.prefix + "-" + name
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.keys, key) {
		r.keys = append(r.keys, key)
	}
	return actuate.Wanted{Key: key, Model: r.model}
}

// create must succeed.
func (r *run) create(a actuate.Actuator, w actuate.Wanted) actuate.Instance {
	r.t.Helper()
	i, err := a.Create(r.context(), w)
	if err != nil {
		r.t.Errorf("Create(%q): %v", w.Key, err)
		return actuate.Instance{}
	}
	if i.Key != w.Key || i.ID == "" || i.Phase != actuate.Pending && i.Phase != actuate.Running {
		r.t.Errorf("Create(%q) = %+v: want its key, an id, and a node that is to come or there", w.Key, i)
	}
	return i
}

// remove must succeed.
func (r *run) remove(a actuate.Actuator, i actuate.Instance) {
	r.t.Helper()
	if err := a.Delete(r.context(), i); err != nil {
		r.t.Errorf("Delete(%+v): %v", i, err)
	}
}

// list returns all nodes that are not Ended, by key.
func (r *run) list(a actuate.Actuator) map[string]actuate.Instance {
	r.t.Helper()
	all, err := a.List(r.context())
	if err != nil {
		r.t.Fatalf("List: %v", err)
	}
	byKey := map[string]actuate.Instance{}
	for _, i := range all {
		if i.Phase == actuate.Ended {
			continue
		}
		if was, twice := byKey[i.Key]; twice {
			r.t.Fatalf("List has %q twice: %+v and %+v", i.Key, was, i)
		}
		if i.ID == "" || i.Phase > actuate.Ended || i.Since.After(time.Now().Add(time.Minute)) {
			r.t.Errorf("List has %+v: want an id, a phase, and no time to come", i)
		}
		byKey[i.Key] = i
	}
	return byKey
}

// up returns the keys of nodes that neither end nor ended, in order.
func (r *run) up(a actuate.Actuator) []string {
	r.t.Helper()
	all := r.list(a)
	maps.DeleteFunc(all, func(_ string, i actuate.Instance) bool { return i.Phase == actuate.Ending })
	return slices.Sorted(maps.Keys(all))
}

// wantUp waits until exactly these are up: providers may take a while to list what they
// made.
func (r *run) wantUp(a actuate.Actuator, keys ...string) {
	r.t.Helper()
	slices.Sort(keys)
	var got []string
	r.eventually(func() bool { got = r.up(a); return slices.Equal(got, keys) },
		func() { r.t.Fatalf("up are %q, want %q", got, keys) })
}

func (r *run) eventually(is func() bool, otherwise func()) {
	r.t.Helper()
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for end := time.Now().Add(r.patience); !is(); <-tick.C {
		if time.Now().After(end) {
			otherwise()
			return
		}
	}
}

// clean ends what the test made, and fails if anything stays.
func (r *run) clean() {
	r.cleanFleet(r.new, r.keys)
	if r.suite.other != nil {
		r.cleanFleet(r.suite.other, r.theirs)
	}
}

func (r *run) cleanFleet(newActuator New, keys []string) {
	if len(keys) == 0 {
		return
	}
	a := newActuator(r.t)
	defer a.Close()
	for _, key := range keys {
		r.remove(a, actuate.Instance{Key: key})
	}
	var left map[string]actuate.Instance
	r.eventually(func() bool {
		left = r.list(a)
		maps.DeleteFunc(left, func(key string, _ actuate.Instance) bool { return !slices.Contains(keys, key) })
		return len(left) == 0
	}, func() { r.t.Errorf("still there after they were ended: %v", left) })
}
