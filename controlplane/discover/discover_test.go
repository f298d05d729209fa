package discover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/dataplane/fleet"
)

func TestSpecScenarios(t *testing.T) {
	runScenarios(t, "testdata/spec.txt", func(command []string, _ string) string {
		var s Spec
		if err := json.Unmarshal([]byte(strings.Join(command[1:], " ")), &s); err != nil {
			t.Fatal(err)
		}
		s, err := s.Validate()
		if err != nil {
			return "error: " + err.Error()
		}
		text, _ := json.Marshal(s)
		return string(text)
	})
}

func TestAllowedScenarios(t *testing.T) {
	runScenarios(t, "testdata/allowed.txt", func(command []string, input string) string {
		allowed, err := ParseAllowed(command[1:])
		if err != nil {
			return "error: " + err.Error()
		}
		var out strings.Builder
		for u := range strings.Lines(input) {
			u = strings.TrimSpace(u)
			err := allowed.Check(u)
			if err != nil && !errors.Is(err, ErrNotAllowed) {
				t.Errorf("%s: %v", u, err)
			}
			fmt.Fprintf(&out, "%s %v\n", u, err == nil)
		}
		return out.String()
	})
}

func spec(name string) Spec { return Spec{Name: name, URL: "http://" + name + ".example:8000"} }

func specs(n int) []Spec {
	out := make([]Spec, n)
	for i := range out {
		out[i] = spec(fmt.Sprint("n", i))
	}
	return out
}

func names(set []Spec) string {
	var out []string
	for _, s := range set {
		out = append(out, s.Source+"/"+s.Name)
	}
	return strings.Join(out, " ")
}

// All faults of a configuration are told at once.
func TestStaticFaults(t *testing.T) {
	_, err := NewStatic([]Spec{
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
		s, err := NewStatic([]Spec{spec("a"), spec("b")})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, func(set []Spec) { seen = append(seen, names(set)) }) }()
		synctest.Wait()
		if err := s.Replace([]Spec{{Name: "bad name"}}); err == nil {
			t.Error("a bad set was taken")
		}
		synctest.Wait()
		_ = s.Replace([]Spec{spec("c")})
		synctest.Wait()
		_ = s.Replace(nil)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []string{"static/a static/b", "static/c", ""}; !slices.Equal(seen, want) {
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
	added, err := a.Add(Spec{Name: "a", URL: "http://A.example:8000/", Source: "forged"})
	if err != nil || added.URL != "http://a.example:8000" || added.Source != "api" || added.Weight != 1 {
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
	if _, err := a.Add(Spec{Name: "b", URL: "http://a.example:8000"}); !errors.Is(err, ErrExists) {
		t.Errorf("another of that url: %v", err)
	}
	if _, err := a.Add(Spec{Name: "b", URL: "http://127.0.0.1:8081"}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("not allowed: %v", err)
	}
	if _, err := a.Add(Spec{Name: "b b", URL: "http://b.example:8000"}); err == nil {
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
	if gone := a.SetAllowed(fewer); len(gone) != fleet.MaxSlots-1 || names(a.Nodes()) != "api/n7" {
		t.Errorf("%d gone, left %s", len(gone), names(a.Nodes()))
	}
	if _, err := NewAPI(Allowed{}).Add(spec("a")); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("nothing is allowed by default: %v", err)
	}
}

func TestUnion(t *testing.T) {
	mark := func(source string, set ...Spec) []Spec {
		set = slices.Clone(set)
		for i := range set {
			set[i].Source = source
		}
		return set
	}
	sameURL := Spec{Name: "z", URL: spec("a").URL}
	union, dropped := Union(mark("static", spec("a"), spec("b")), nil, mark("api", spec("b"), sameURL, spec("c")))
	if names(union) != "static/a static/b api/c" || len(dropped) != 2 {
		t.Fatalf("%s; %+v", names(union), dropped)
	}
	for i, want := range []string{`"static" has a node of that name`, `"static" has a node with that url, named "a"`} {
		if !strings.Contains(dropped[i].Reason, want) {
			t.Errorf("%q lacks %q", dropped[i].Reason, want)
		}
	}
	union, dropped = Union(mark("static", specs(fleet.MaxSlots)...), mark("api", spec("a")))
	if len(union) != fleet.MaxSlots || len(dropped) != 1 || dropped[0].Spec.Name != "a" {
		t.Errorf("%d nodes, %+v", len(union), dropped)
	}
}

// failing emits one set a run and then fails.
type failing struct{ runs int }

func (f *failing) Name() string { return "failing" }

func (f *failing) Run(_ context.Context, emit func([]Spec)) error {
	f.runs++
	s := spec("f")
	s.Source = "failing"
	emit([]Spec{s})
	return errors.New("no answer")
}

func TestMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		static, err := NewStatic([]Spec{spec("a")})
		if err != nil {
			t.Fatal(err)
		}
		allowed, _ := ParseAllowed([]string{"*.example"})
		api, bad := NewAPI(allowed), &failing{}
		failures := 0
		m := Merge(func(source string, err error) {
			if source != "failing" || err == nil {
				t.Errorf("%s: %v", source, err)
			}
			failures++
		}, static, api, bad)
		ctx, cancel := context.WithCancel(t.Context())
		var seen []string
		done := make(chan error, 1)
		go func() {
			done <- m.Run(ctx, func(set []Spec) {
				seen = append(seen, names(set))
				m.Dropped() // must not lock up
			})
		}()
		last := func() string { synctest.Wait(); return seen[len(seen)-1] }
		if got := last(); got != "static/a failing/f" {
			t.Errorf("at first: %q", got)
		}
		_, _ = api.Add(spec("b"))
		_, _ = api.Add(spec("a"))
		if got := last(); got != "static/a api/b failing/f" {
			t.Errorf("after adding: %q", got)
		}
		if d := m.Dropped(); len(d) != 1 || d[0].Spec.Name != "a" || d[0].Spec.Source != "api" {
			t.Errorf("%+v", d)
		}
		_ = static.Replace(nil) // the name is free again
		if got := last(); got != "api/b api/a failing/f" {
			t.Errorf("after the clash ended: %q", got)
		}
		emissions := len(seen)
		<-time.After(5 * time.Minute)
		synctest.Wait()
		if len(seen) != emissions {
			t.Error("an unchanged set was emitted again")
		}
		if failures < 10 || failures > 20 || bad.runs != failures {
			t.Errorf("%d failures in 5 min", failures)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A source that has nothing is a full set too; without sources Run waits.
func TestMergeEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		static, _ := NewStatic(nil)
		for _, m := range []*Merged{Merge(nil), Merge(nil, static)} {
			ctx, cancel := context.WithCancel(t.Context())
			emitted := 0
			done := make(chan error, 1)
			go func() { done <- m.Run(ctx, func(set []Spec) { emitted++ }) }()
			synctest.Wait()
			cancel()
			if err := <-done; err != nil || emitted != len(m.sources) {
				t.Errorf("%d sets, %v", emitted, err)
			}
		}
	})
}

// What Validate accepts the standard library accepts, reads the same way, and
// Validate leaves alone.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"http://h:8000/v", "http://[::1]:8000", "http://10.0.0.1/", "http://h/%41", "http://a@h", "http://h:80", "HTTP://H"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Spec{Name: "n", URL: text}.Validate()
		if err != nil {
			return
		}
		again, err := s.Validate()
		if err != nil || !again.Equal(s) {
			t.Fatalf("%q became %q, then %q, %v", text, s.URL, again.URL, err)
		}
		original, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequest(http.MethodGet, s.URL+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		port := func(u *url.URL) string {
			if u.Port() == "" {
				return "80"
			}
			return u.Port()
		}
		if !strings.EqualFold(r.URL.Hostname(), original.Hostname()) || port(r.URL) != port(original) || r.URL.RawQuery != "" ||
			r.URL.Path != strings.TrimSuffix(original.Path, "/")+"/v1/models" {
			t.Fatalf("%q became %q", text, r.URL)
		}
	})
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
		s, err := Spec{Name: "n", URL: "http://" + host}.Validate()
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
