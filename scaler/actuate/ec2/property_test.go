package ec2

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"warmpath/scaler/actuate"
)

// world is EC2, two processes that scale one fleet there one after the other or side by
// side, and what they were told.
type world struct {
	t *rapid.T
	*fake
	actuators [2]*Actuator
	theirs    actuate.Instance // of another fleet
	ids       map[string]string
	calls     int
	fates     map[int]fate // by number of the call
}

func (w *world) anew(n int) {
	kind := rapid.SampledFrom([]string{"g6.xlarge", "g6.2xlarge"}).Draw(w.t, "type")
	w.actuators[n] = w.open(func(o *Options) { o.InstanceType = kind })
}

func (w *world) pick() *Actuator {
	return w.actuators[rapid.IntRange(0, 1).Draw(w.t, "process")]
}

func (w *world) key() string { return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.t, "key") }

// troubled draws what goes wrong in one call, and makes it.
func (w *world) troubled(do func()) {
	w.calls, w.fates = 0, map[int]fate{}
	most := fates
	if w.noTokens {
		most = late // what comes late to a server without tokens nobody can keep from doubling
	}
	for range rapid.IntRange(0, 2).Draw(w.t, "troubles") {
		w.fates[rapid.IntRange(1, 5).Draw(w.t, "call")] = fate(rapid.IntRange(1, int(most)-1).Draw(w.t, "fate"))
	}
	do()
	w.fates = nil
}

// count is how many instances of a key were ever made.
func (w *world) count(key string) (n int) {
	for _, s := range w.instances {
		if s.tags[tagFleet] == "blue" && s.tags[tagKey] == key {
			n++
		}
	}
	return n
}

func (w *world) create() {
	key, had := w.key(), 0
	had = w.count(key)
	i, err := w.pick().Create(w.t.Context(), actuate.Wanted{Key: key})
	switch {
	case actuate.AsRefusal(err) != nil && w.count(key) != had:
		w.t.Fatalf("Create(%q) was refused, and made one: %v", key, err)
	case err != nil:
	case i.Key != key || i.ID == "" && i.Phase != actuate.Ended:
		w.t.Fatalf("Create(%q) = %+v", key, i)
	case i.ID != "":
		if !slices.ContainsFunc(w.instances, func(s *simulated) bool { return s.id == i.ID && s.tags[tagKey] == key }) {
			w.t.Fatalf("Create(%q) = %+v, which is not there", key, i)
		}
		w.ids[key] = i.ID
	}
}

func (w *world) delete() {
	i := actuate.Instance{Key: w.key()}
	if rapid.Bool().Draw(w.t, "by id") {
		i.ID = w.ids[i.Key]
	}
	err := w.pick().Delete(w.t.Context(), i)
	if err != nil || w.lag > 0 {
		return
	}
	for _, s := range w.instances {
		if state := s.state(time.Now()); s.tags[tagFleet] == "blue" && s.tags[tagKey] == i.Key && state != "terminated" && state != "shutting-down" {
			w.t.Fatalf("Delete(%+v) succeeded, and %s is %s", i, s.id, state)
		}
	}
}

func (w *world) list() {
	all, err := w.pick().List(w.t.Context())
	if err != nil || w.lag > 0 {
		return
	}
	w.compare(all)
}

// compare wants every instance in a list that lives.
func (w *world) compare(all []actuate.Instance) {
	for _, s := range w.instances {
		if s.tags[tagFleet] != "blue" || !s.live() {
			continue
		}
		if !slices.ContainsFunc(all, func(i actuate.Instance) bool {
			return i.ID == s.id && i.Key == s.tags[tagKey] && i.Phase != actuate.Ended
		}) {
			w.t.Fatalf("%s of %q is %s, and the list is %+v", s.id, s.tags[tagKey], s.state(time.Now()), all)
		}
	}
	for _, i := range all {
		if i.ID == w.theirs.ID {
			w.t.Fatalf("the list has %+v, which is another fleet's", i)
		}
	}
}

// somebody else does something to an instance of the fleet.
func (w *world) somebody(states ...string) {
	var live []*simulated
	for _, s := range w.instances {
		if state := s.state(time.Now()); s.id != w.theirs.ID && (state == "pending" || state == "running") {
			live = append(live, s)
		}
	}
	if len(live) == 0 {
		w.t.Skip("nothing runs")
	}
	live[rapid.IntRange(0, len(live)-1).Draw(w.t, "instance")].become(states...)
}

func (w *world) actions() map[string]func(*rapid.T) {
	act := func(do func()) func(*rapid.T) { return func(t *rapid.T) { w.t = t; do() } }
	return map[string]func(*rapid.T){
		"create":  act(func() { w.troubled(w.create) }),
		"again":   act(func() { w.troubled(w.create) }),
		"delete":  act(func() { w.troubled(w.delete) }),
		"list":    act(func() { w.troubled(w.list) }),
		"restart": act(func() { w.anew(rapid.IntRange(0, 1).Draw(w.t, "process")) }),
		"wait":    act(func() { pass(time.Duration(rapid.IntRange(1, 400).Draw(w.t, "seconds")) * time.Second) }),
		"lag": act(func() {
			if w.noTokens {
				w.t.Skip("the list alone keeps keys from being doubled")
			}
			w.lag = rapid.SampledFrom([]time.Duration{0, 5 * time.Second, 2 * time.Minute, 5 * time.Minute}).Draw(w.t, "lag")
		}),
		"arrives": act(func() {
			if len(w.late) == 0 {
				w.t.Skip("nothing is on its way")
			}
			form := w.late[0]
			w.late = w.late[1:]
			w.do(form.Get("Action"), form)
		}),
		"taken back": act(func() { w.somebody("shutting-down", "terminated") }),
		"stopped":    act(func() { w.somebody("stopping", "stopped") }),
		"": func(t *rapid.T) {
			for _, key := range []string{"a", "b", "c"} {
				if live := w.live(key); len(live) > 1 {
					t.Fatalf("%q has the instances %q", key, live)
				}
			}
			if !w.instances[0].live() {
				t.Fatalf("another fleet's instance was ended")
			}
		},
	}
}

// rest ends all trouble, and everything.
func (w *world) rest() {
	w.fates, w.late = nil, nil
	pass(w.lag)
	w.anew(0)
	a := w.actuators[0]
	all, err := a.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.compare(all)
	for _, i := range all {
		if err := a.Delete(w.t.Context(), actuate.Instance{Key: i.Key, ID: i.ID}); err != nil {
			w.t.Errorf("end %+v: %v", i, err)
		}
	}
	pass(time.Minute + w.lag)
	for _, s := range w.instances[1:] {
		if s.live() {
			w.t.Errorf("%s is left, and %s", s.id, s.state(time.Now()))
		}
	}
	if all, err = a.List(w.t.Context()); err != nil || slices.ContainsFunc(all, func(i actuate.Instance) bool { return i.Phase != actuate.Ended }) {
		w.t.Errorf("at the end there are %+v, %v", all, err)
	}
}

// TestAnyOrder: whatever is asked in whatever order by two processes, whichever requests
// are lost, late, throttled or refused, and however far lists lag: no key has two instances
// that live, a refusal has made nothing, another fleet's instance lives, and in the end all
// can be found and ended.
func TestAnyOrder(t *testing.T) {
	without(t)
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			w := &world{t: rt, fake: newFake(t), ids: map[string]string{}}
			w.noTokens = rapid.Bool().Draw(rt, "no tokens")
			w.fate = func(string) fate { w.calls++; return w.fates[w.calls] }
			w.theirs = create(t, w.open(func(o *Options) { o.Fleet = "red" }), "x")
			w.anew(0)
			w.anew(1)
			rt.Repeat(w.actions())
			w.t = rt
			w.rest()
		})
	})
}
