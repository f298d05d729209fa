package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"

	"warmpath/scenariotest"
)

func TestSpecScenarios(t *testing.T) {
	scenariotest.Run(t, "testdata/spec.txt", func(t *testing.T, c scenariotest.Case) string {
		var s state.Spec
		if err := json.Unmarshal([]byte(strings.Join(c.Command()[1:], " ")), &s); err != nil {
			t.Fatal(err)
		}
		s, err := validate(s)
		if err != nil {
			return "error: " + err.Error()
		}
		text, _ := json.Marshal(s)
		return string(text)
	})
}

func TestAllowedScenarios(t *testing.T) {
	scenariotest.Run(t, "testdata/allowed.txt", func(t *testing.T, c scenariotest.Case) string {
		allowed, err := ParseAllowed(c.Command()[1:])
		if err != nil {
			return "error: " + err.Error()
		}
		var out strings.Builder
		for _, u := range c.Input[1:] {
			err := allowed.Check(u)
			if err != nil && !errors.Is(err, ErrNotAllowed) {
				t.Errorf("%s: %v", u, err)
			}
			fmt.Fprintf(&out, "%s %v\n", u, err == nil)
		}
		return out.String()
	})
}

func spec(name string) state.Spec {
	return state.Spec{Name: name, URL: "http://" + name + ".example:8000"}
}

func specs(n int) []state.Spec {
	out := make([]state.Spec, n)
	for i := range out {
		out[i] = spec(fmt.Sprint("n", i))
	}
	return out
}

func names(set []state.Spec) string {
	var out []string
	for _, s := range set {
		out = append(out, s.Name)
	}
	return strings.Join(out, " ")
}

// hears takes the sets of a source that does not fail.
type hears func([]state.Spec)

func (h hears) Emit(set []state.Spec) { h(set) }
func (h hears) Failed(err error)      { panic(err) }

// All faults of a configuration are told at once.
func TestStaticFaults(t *testing.T) {
	_, err := NewStatic([]state.Spec{
		spec("a"), spec("a"), {Name: "b", URL: "http://A.example:8000/"}, {Name: "/", URL: "http://h"}, {Name: "c", URL: "ftp://h"},
	})
	for _, want := range []string{`node "a" stands twice`, `nodes "a" and "b" have the same url`, `node name "/"`, `"ftp"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
	if _, err := NewStatic(specs(fleet.MaxSlots)); err != nil {
		t.Error(err)
	}
	if _, err := NewStatic(specs(fleet.MaxSlots + 1)); err == nil {
		t.Error("more nodes than slots")
	}
}

func TestStaticReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewStatic([]state.Spec{spec("a"), spec("b")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, hears(func(set []state.Spec) { seen = append(seen, names(set)) })) }()
		synctest.Wait()
		if err := s.Replace([]state.Spec{{Name: "bad name"}}); err == nil {
			t.Error("a bad set was taken")
		}
		synctest.Wait()
		_ = s.Replace([]state.Spec{spec("c")})
		synctest.Wait()
		_ = s.Replace(nil)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []string{"a b", "c", ""}; !slices.Equal(seen, want) {
			t.Errorf("%q", seen)
		}
	})
}

func TestAPI(t *testing.T) {
	allowed, err := ParseAllowed([]string{"*.example:8000"})
	if err != nil {
		t.Fatal(err)
	}
	a := NewAPI(allowed)
	added, err := a.Add(state.Spec{Name: "a", URL: "http://A.example:8000/"})
	if err != nil || added.URL != "http://a.example:8000" || added.Weight != 1 {
		t.Errorf("%+v, %v", added, err)
	}
	if _, err := a.Add(spec("a")); err != nil {
		t.Errorf("the same again: %v", err)
	}
	other := spec("a")
	other.MaxInFlight = 3
	if _, err := a.Add(other); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "remove it first") {
		t.Errorf("another of that name: %v", err)
	}
	if _, err := a.Add(state.Spec{Name: "b", URL: "http://a.example:8000"}); !errors.Is(err, ErrExists) {
		t.Errorf("another of that url: %v", err)
	}
	if _, err := a.Add(state.Spec{Name: "b", URL: "http://127.0.0.1:8081"}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("not allowed: %v", err)
	}
	if _, err := a.Add(state.Spec{Name: "b b", URL: "http://b.example:8000"}); err == nil {
		t.Error("a bad name")
	}
	if a.Remove("b") || !a.Remove("a") || a.Remove("a") || len(a.Nodes()) != 0 {
		t.Error("remove")
	}
	for _, s := range specs(fleet.MaxSlots) {
		if _, err := a.Add(s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Add(spec("more")); !errors.Is(err, ErrFull) {
		t.Errorf("beyond the bound: %v", err)
	}
	fewer, _ := ParseAllowed([]string{"n7.example"})
	if gone := a.SetAllowed(fewer); len(gone) != fleet.MaxSlots-1 || names(a.Nodes()) != "n7" {
		t.Errorf("%d gone, left %s", len(gone), names(a.Nodes()))
	}
	if gone := a.SetAllowed(Allowed{}); len(gone) != 0 {
		t.Errorf("an empty list takes %d nodes away", len(gone))
	}
	if _, err := NewAPI(Allowed{}).Add(spec("a")); err != nil {
		t.Errorf("an empty list allows every node that an operator names: %v", err)
	}
}

// The dumb twin of Allowed for networks is package net.
func FuzzAllowed(f *testing.F) {
	f.Add("10.0.0.0/8", "10.1.2.3")
	f.Add("fd00::/8", "fd00::1")
	f.Add("*.example:80", "a.example")
	f.Fuzz(func(t *testing.T, pattern, host string) {
		allowed, err := ParseAllowed([]string{pattern})
		if err != nil {
			return
		}
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		s, err := state.Spec{Name: "n", URL: "http://" + host}.Validate()
		if err != nil {
			return
		}
		got := allowed.Check(s.URL) == nil
		u, _ := url.Parse(s.URL)
		_, network, err := net.ParseCIDR(pattern)
		address, addressErr := netip.ParseAddr(u.Hostname())
		if err != nil || addressErr != nil || address.Is4In6() || strings.HasPrefix(pattern, "::") {
			return
		}
		if want := network.Contains(net.IP(address.AsSlice())); got != want {
			t.Fatalf("%q allows %q: %v, net says %v", pattern, s.URL, got, want)
		}
	})
}
