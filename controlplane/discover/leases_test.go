package discover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// TestLeases: a node stays while it renews, leaves within a tenth of the length after
// it has stopped, or at once when it says so.
func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, said := NewLeases(30*time.Second, Allowed{}), make(log, 10)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx, said) }()
		said.want(t, "nodes")
		register := func(s state.Spec) {
			t.Helper()
			if _, err := l.Register(s); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		register(spec("a"))
		said.want(t, "nodes a")
		register(spec("b"))
		said.want(t, "nodes a b")
		for range 6 {
			<-time.After(10 * time.Second)
			register(spec("b"))
			synctest.Wait()
			if time.Since(began) > 33*time.Second {
				break
			}
		}
		said.want(t, "nodes b")
		changed := spec("b")
		changed.Region = "north"
		register(changed)
		said.want(t, "nodes b")
		if !l.Release("b") || l.Release("b") {
			t.Error("a lease is released once")
		}
		said.want(t, "nodes")
		if len(said) != 0 {
			t.Errorf("and then: %q", <-said)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// TestLeasesOfAStoppedRouter: while it did not run it was told of no renewal.
func TestLeasesOfAStoppedRouter(t *testing.T) {
	l := NewLeases(30*time.Second, Allowed{})
	if _, err := l.Register(spec("a")); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	l.expire(now.Add(5*time.Minute), 5*time.Minute)
	if names(l.load()) != "a" {
		t.Fatal("the node was taken away for a time in which nobody could renew")
	}
	l.expire(now.Add(5*time.Minute+31*time.Second), 0)
	if names(l.load()) != "" {
		t.Fatal("the node stays without a lease")
	}
}

func TestLeasesRefuse(t *testing.T) {
	allowed, err := ParseAllowed([]string{"*.example"})
	if err != nil {
		t.Fatal(err)
	}
	l := NewLeases(time.Minute, allowed)
	register := func(s state.Spec) error { _, err := l.Register(s); return err }
	for i := range fleet.MaxSlots {
		if err := register(spec(fmt.Sprint("n", i))); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		spec state.Spec
		is   error
		says string
	}{
		"renewed":     {spec("n0"), nil, ""},
		"another url": {state.Spec{Name: "n0", URL: "http://other.example"}, ErrExists, "wait until its lease ends"},
		"another":     {state.Spec{Name: "x", URL: spec("n1").URL}, ErrExists, `as "n1"`},
		"not allowed": {state.Spec{Name: "x", URL: "http://10.0.0.1"}, ErrNotAllowed, "node_urls_allowed"},
		"one more":    {spec("x"), ErrFull, "at most"},
		"no name":     {state.Spec{URL: "http://x.example"}, nil, "the name is empty"},
	} {
		err := register(c.spec)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || c.is != nil && !errors.Is(err, c.is)):
			t.Errorf("%s: %v, want %v that says %q", name, err, c.is, c.says)
		}
	}
	if allowed, err = ParseAllowed([]string{"n7.example"}); err != nil {
		t.Fatal(err)
	}
	if gone := l.SetAllowed(allowed); len(gone) != fleet.MaxSlots-1 || names(l.load()) != "n7" {
		t.Errorf("%d nodes have left, and %s stay", len(gone), names(l.load()))
	}
}
