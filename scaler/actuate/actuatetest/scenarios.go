package actuatetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"warmpath/scaler/actuate"
)

func (r *run) oneNodeAKey() {
	first := r.open(r.new)
	w := r.wanted("a")
	was := r.create(first, w)
	if again := r.create(first, w); again.ID != was.ID {
		r.t.Errorf("asked again: node %q, want %q", again.ID, was.ID)
	}
	second := r.open(r.new)
	if again := r.create(second, w); again.ID != was.ID {
		r.t.Errorf("asked again by another, which was made later: node %q, want %q", again.ID, was.ID)
	}
	for _, a := range []actuate.Actuator{first, second} {
		r.wantUp(a, w.Key)
		if listed := r.list(a)[w.Key]; listed.ID != was.ID {
			r.t.Errorf("listed as %q, made as %q", listed.ID, was.ID)
		}
	}
}

func (r *run) manyAtOnce() {
	const each = 3
	actuators := []actuate.Actuator{r.open(r.new), r.open(r.new)}
	var mu sync.Mutex
	var wait sync.WaitGroup
	var keys []string
	made := map[string]string{} // id → key
	for i, a := range actuators {
		for j := range each {
			w := r.wanted(fmt.Sprintf("%d-%d", i, j))
			keys = append(keys, w.Key)
			wait.Go(func() {
				i := r.create(a, w)
				mu.Lock()
				defer mu.Unlock()
				if other, twice := made[i.ID]; twice {
					r.t.Errorf("%q and %q are the same node %q", w.Key, other, i.ID)
				}
				made[i.ID] = w.Key
			})
		}
	}
	wait.Wait()
	urls := map[string]string{}
	for _, a := range actuators {
		r.wantUp(a, keys...)
		for key, i := range r.list(a) {
			if other := urls[i.URL]; i.URL != "" && other != "" && other != key {
				r.t.Errorf("%q and %q are both at %s", key, other, i.URL)
			}
			urls[i.URL] = key
			if made[i.ID] != key {
				r.t.Errorf("%q is listed as %q, which was made as %q", key, i.ID, made[i.ID])
			}
		}
	}
}

func (r *run) wholeList() {
	a := r.open(r.new)
	r.wantUp(a)
	var keys []string
	for i := range 3 {
		w := r.wanted(fmt.Sprint("n", i))
		r.create(a, w)
		keys = append(keys, w.Key)
	}
	later := r.open(r.new)
	r.wantUp(later, keys...)
	r.remove(later, actuate.Instance{Key: keys[1]})
	r.wantUp(later, keys[0], keys[2])
	r.wantUp(a, keys[0], keys[2])
}

func (r *run) endsOnce() {
	a := r.open(r.new)
	never := r.wanted("never")
	r.remove(a, actuate.Instance{Key: never.Key})
	stays, goes := r.wanted("stays"), r.wanted("goes")
	r.create(a, stays)
	i := r.create(a, goes)
	r.remove(a, i)
	r.remove(a, i) // on its way
	r.wantUp(a, stays.Key)
	r.eventually(func() bool { _, there := r.list(a)[goes.Key]; return !there },
		func() { r.t.Fatalf("not gone: %+v", r.list(a)[goes.Key]) })
	r.remove(a, i) // gone
	r.remove(r.open(r.new), i)
	r.wantUp(a, stays.Key)
}

func (r *run) staysWhenClosed() {
	a := r.new(r.t)
	w := r.wanted("a")
	was := r.create(a, w)
	if err := a.Close(); err != nil {
		r.t.Errorf("close: %v", err)
	}
	later := r.open(r.new)
	r.wantUp(later, w.Key)
	if is := r.list(later)[w.Key]; is.ID != was.ID {
		r.t.Errorf("node %q became %q", was.ID, is.ID)
	}
}

func (r *run) otherFleet() {
	if r.suite.other == nil {
		r.t.Skip("no other fleet was given")
	}
	ours, theirs := r.open(r.new), r.open(r.suite.other)
	mine := r.wanted("mine")
	r.create(ours, mine)
	their := actuate.Wanted{Key: r.prefix + "-theirs", Model: r.model}
	r.theirs = append(r.theirs, their.Key)
	i := r.create(theirs, their)
	r.wantUp(ours, mine.Key)
	r.wantUp(theirs, their.Key)
	// It may be refused, and it may be no error; it may not end the node.
	for _, not := range []actuate.Instance{i, {Key: their.Key}, {Key: mine.Key, ID: i.ID}} {
		_ = ours.Delete(r.context(), not)
		r.wantUp(theirs, their.Key)
	}
	r.remove(ours, actuate.Instance{Key: mine.Key})
	r.wantUp(ours)
	r.wantUp(theirs, their.Key)
	if is := r.list(theirs)[their.Key]; is.ID != i.ID {
		r.t.Errorf("their node %q became %q", i.ID, is.ID)
	}
}

func (r *run) badKey() {
	a := r.open(r.new)
	for _, key := range []string{"", "Has-Capitals", "1st", "a_b", "../a", "a\x00", strings.Repeat("a", actuate.MaxKeyBytes+1)} {
		_, err := a.Create(r.context(), actuate.Wanted{Key: key, Model: r.model})
		if refused := actuate.AsRefusal(err); refused == nil || refused.Reason != actuate.Settings {
			r.t.Errorf("Create(%q): %v, want a refusal for settings", key, err)
		}
	}
	r.wantUp(a)
	longest := r.wanted("a")
	longest.Key += strings.Repeat("a", actuate.MaxKeyBytes-len(longest.Key))
	r.keys = append(r.keys, longest.Key)
	r.create(a, longest)
	r.wantUp(a, longest.Key)
}

func (r *run) callerLeft() {
	a := r.open(r.new)
	there := r.wanted("there")
	i := r.create(a, there)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := r.wanted("left")
	for _, call := range []struct {
		name  string
		fails bool
		do    func() error
	}{
		{"Create", true, func() error { _, err := a.Create(ctx, w); return err }},
		{"List", true, func() error { _, err := a.List(ctx); return err }},
		{"Delete", false, func() error { return a.Delete(ctx, i) }},
	} {
		begun := time.Now()
		err := call.do()
		if took := time.Since(begun); took > prompt {
			r.t.Errorf("%s took %v although its context had ended", call.name, took)
		}
		if call.fails && err == nil {
			r.t.Errorf("%s succeeded although its context had ended", call.name)
		}
		if refused := actuate.AsRefusal(err); refused != nil {
			r.t.Errorf("%s: %v: that its caller left is no refusal of the provider's", call.name, err)
		}
	}
	// It goes on with those who stay.
	r.create(a, w)
	r.create(a, r.wanted("more"))
	r.eventually(func() bool { return slices.Contains(r.up(a), w.Key) },
		func() { r.t.Errorf("%q was asked for once more, and is not there", w.Key) })
}

func (r *run) refusals() {
	if len(r.suite.refusals) == 0 {
		r.t.Skip("no refusals were given")
	}
	for i, refusal := range r.suite.refusals {
		a := r.open(refusal.new)
		w := r.wanted(fmt.Sprint("r", i))
		_, err := a.Create(r.context(), w)
		refused := actuate.AsRefusal(err)
		if refused == nil || refused.Reason != refusal.reason {
			r.t.Errorf("%s: %v, want a refusal for %v", refusal.name, err, refusal.reason)
			continue
		}
		for _, word := range refusal.words {
			if !strings.Contains(err.Error(), word) {
				r.t.Errorf("%s: %v, want the words %q", refusal.name, err, word)
			}
		}
		// Nobody finds anything of it.
		if up := r.up(r.open(r.new)); slices.Contains(up, w.Key) {
			r.t.Errorf("%s: %q was refused, and is there", refusal.name, w.Key)
		}
	}
}
