package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"pgregory.net/rapid"

	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// parse makes a slice of words: name, ports as "http=8000", then endpoints as
// "pod@address" or "address", with a mark behind: '!' = not ready, '-' = terminating and
// serving, '?' = its conditions say nothing.
func parse(line string) *discoveryv1.EndpointSlice {
	words := strings.Fields(line)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: words[0], Namespace: "ns", Labels: map[string]string{discoveryv1.LabelServiceName: "vllm"}}}
	for _, w := range words[1:] {
		if name, number, ok := strings.Cut(w, "="); ok {
			var port int32
			_, _ = fmt.Sscan(number, &port)
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port})
			continue
		}
		s.Endpoints = append(s.Endpoints, parseEndpoint(w))
	}
	return s
}

func parseEndpoint(w string) discoveryv1.Endpoint {
	bare := strings.TrimRight(w, "!-?")
	yes, no := true, false
	e := discoveryv1.Endpoint{}
	switch w[len(bare):] {
	case "":
		e.Conditions = discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}
	case "!":
		e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &no}
	case "-":
		e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	}
	pod, address, found := strings.Cut(bare, "@")
	if !found {
		pod, address = "", bare
	}
	if pod != "" {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod, UID: types.UID(pod + "-uid")}
	}
	e.Addresses = []string{address}
	return e
}

func parseAll(text string) (all []*discoveryv1.EndpointSlice) {
	for line := range strings.SplitSeq(text, "|") {
		if strings.TrimSpace(line) != "" {
			all = append(all, parse(line))
		}
	}
	return all
}

func newSource(t interface{ Fatal(...any) }, port string) *Source {
	s, err := New(Options{Client: fake.NewClientset().DiscoveryV1().EndpointSlices("ns"), Namespace: "ns", Service: "vllm", Port: port})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func urls(nodes []state.Spec) string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name+"="+strings.TrimPrefix(n.URL, "http://"))
	}
	return strings.Join(out, " ")
}

// TestMerge: what a course of slices makes of the set. Each step is "+seconds slices =>
// nodes", or "! words" for a failure.
func TestMerge(t *testing.T) {
	for _, c := range []struct {
		name, port string
		steps      []string
	}{
		{"union", "", []string{"s1 http=8000 a@10.0.0.1 b@10.0.0.2 | s2 http=8000 c@10.0.0.3 b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000 c=10.0.0.3:8000"}},
		{"conditions unknown", "", []string{"s1 http=8000 a@10.0.0.1? => a=10.0.0.1:8000"}},
		{"never ready", "", []string{"s1 http=8000 a@10.0.0.1 b@10.0.0.2! => a=10.0.0.1:8000"}},
		{"IPv6", "8000", []string{"s1 a@fd00::1 fd00::2 ::3 => 0--3-8000=[::3]:8000 a=[fd00::1]:8000 fd00--2-8000=[fd00::2]:8000"}},
		{"both families", "", []string{
			"s1 http=8000 a@10.0.0.1 | s2 http=8000 a@fd00::1 => a=10.0.0.1:8000",
			"s1 http=8000 a@10.0.0.1- | s2 http=8000 a@fd00::1 => ",
		}},
		{"the other family first", "", []string{
			"s2 http=8000 a@fd00::1 => a=[fd00::1]:8000",
			"s1 http=8000 a@10.0.0.1 | s2 http=8000 a@fd00::1 => a=[fd00::1]:8000",
		}},
		{"no pod", "8000", []string{"s1 10.0.0.1 gpu.Example => 10.0.0.1-8000=10.0.0.1:8000 gpu.example-8000=gpu.example:8000"}},
		{"a long pod name", "8000", []string{"s1 " + strings.Repeat("p", 64) + "@10.0.0.1 => 10.0.0.1-8000=10.0.0.1:8000"}},
		{"a port by name", "api", []string{"s1 api=8000 metrics=9000 a@10.0.0.1 | s2 metrics=9000 a@10.0.0.1 => a=10.0.0.1:8000"}},
		{"a port by number", "8001", []string{"s1 http=8000 a@10.0.0.1 => a=10.0.0.1:8001"}},
		{"no such port", "api", []string{`s1 http=8000 a@10.0.0.1 => ! port "api": the slices have only "http" (8000)`}},
		{"several ports", "", []string{`s1 http=8000 metrics=9000 a@10.0.0.1 => ! several, of which one must be named: "http" (8000), "metrics" (9000)`}},
		{"no port", "", []string{`s1 a@10.0.0.1 => ! must be given as a number`}},
		{"terminates", "", []string{"s1 http=8000 a@10.0.0.1 b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000", "s1 http=8000 a@10.0.0.1- b@10.0.0.2 => b=10.0.0.2:8000"}},
		{"the last terminates", "", []string{"s1 http=8000 a@10.0.0.1 => a=10.0.0.1:8000", "s1 http=8000 a@10.0.0.1- => ", "s1 => "}},
		{"not ready for long", "", []string{
			"s1 http=8000 a@10.0.0.1 b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"s1 http=8000 a@10.0.0.1! b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"+29 s1 http=8000 a@10.0.0.1! b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"+1 s1 http=8000 a@10.0.0.1! b@10.0.0.2 => b=10.0.0.2:8000",
		}},
		{"ready again", "", []string{
			"s1 http=8000 a@10.0.0.1 b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"s1 http=8000 a@10.0.0.1! b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"+20 s1 http=8000 a@10.0.0.1 b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"+20 s1 http=8000 a@10.0.0.1! b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
		}},
		{"none is ready", "", []string{
			"s1 http=8000 a@10.0.0.1 b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"s1 http=8000 a@10.0.0.1! b@10.0.0.2! => ! none of 2 endpoints is ready",
			"+60 s1 http=8000 a@10.0.0.1! b@10.0.0.2! => ! none of 2 endpoints is ready",
			"+1 s1 http=8000 a@10.0.0.1! b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"+30 s1 http=8000 a@10.0.0.1! b@10.0.0.2 => b=10.0.0.2:8000",
		}},
		{"vanishes", "", []string{
			"s1 http=8000 a@10.0.0.1 b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"s1 http=8000 b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"+10 s1 http=8000 b@10.0.0.2 | s2 http=8000 a@10.0.0.1 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"+10 s1 http=8000 b@10.0.0.2 => a=10.0.0.1:8000 b=10.0.0.2:8000",
			"+30 s1 http=8000 b@10.0.0.2 => b=10.0.0.2:8000",
			"s1 http=8000 => b=10.0.0.2:8000",
			"+30 s1 http=8000 => ",
		}},
		{"its address is another's", "", []string{
			"s1 http=8000 a@10.0.0.1 => a=10.0.0.1:8000",
			"s1 http=8000 b@10.0.0.1 => b=10.0.0.1:8000",
		}},
		{"another address", "", []string{"s1 http=8000 web-0@10.0.0.1 => web-0=10.0.0.1:8000", "s1 http=8000 web-0@10.0.0.9 => web-0=10.0.0.9:8000"}},
		{"no slices", "", []string{"s1 http=8000 a@10.0.0.1 => a=10.0.0.1:8000", " => ! there is no EndpointSlice of vllm in namespace ns", "s1 http=8000 a@10.0.0.1 => a=10.0.0.1:8000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, now := newSource(t, c.port), time.Unix(1000, 0)
			for i, step := range c.steps {
				in, want, _ := strings.Cut(step, "=> ")
				if wait, rest, ok := strings.Cut(in, " "); ok && strings.HasPrefix(in, "+") {
					var seconds int
					_, _ = fmt.Sscan(wait[1:], &seconds)
					now, in = now.Add(time.Duration(seconds)*time.Second), rest
				}
				nodes, _, err := s.merge(parseAll(in), now)
				if words, bad := strings.CutPrefix(want, "! "); bad {
					if err == nil || !strings.Contains(err.Error(), words) {
						t.Fatalf("step %d: %v, want %q", i+1, err, words)
					}
					continue
				}
				if got := urls(nodes); err != nil || got != want {
					t.Fatalf("step %d: %q, %v, want %q", i+1, got, err, want)
				}
			}
		})
	}
}

func TestTooManyEndpoints(t *testing.T) {
	slice := parse("s1 http=8000")
	for i := range fleet.MaxSlots + 1 {
		slice.Endpoints = append(slice.Endpoints, parseEndpoint(fmt.Sprintf("p%d@10.0.%d.%d", i, i/250, i%250)))
	}
	if _, _, err := newSource(t, "").merge([]*discoveryv1.EndpointSlice{slice}, time.Now()); err == nil || !strings.Contains(err.Error(), "use at most 1024") {
		t.Errorf("too many: %v", err)
	}
}

// TestMergeAnything: whatever slices say, the nodes are valid, none has another's name or
// URL, all that is ready is there, and nothing is that terminates or was never ready.
func TestMergeAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := newSource(t, "8000"), time.Unix(1000, 0)
		everReady := map[string]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			var all []*discoveryv1.EndpointSlice
			ready, bad := map[string]bool{}, map[string]bool{}
			for i := range rapid.IntRange(0, 3).Draw(t, "slices") {
				slice := parse(fmt.Sprint("s", i))
				for range rapid.IntRange(0, 3).Draw(t, "endpoints") {
					pod := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "pod")
					address := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "fd00::1", "::1"}).Draw(t, "address")
					mark := rapid.SampledFrom([]string{"", "!", "-", "?"}).Draw(t, "mark")
					slice.Endpoints = append(slice.Endpoints, parseEndpoint(pod+"@"+address+mark))
					one := pod
					if pod == "" {
						one = address
					}
					if bad[one] = bad[one] || mark == "-"; mark == "" || mark == "?" {
						ready[one], everReady["http://"+joined(address)] = true, true
					}
				}
				all = append(all, slice)
			}
			nodes, again, err := s.merge(all, now)
			if err != nil && nodes == nil {
				continue
			}
			if again < 0 || again > absence {
				t.Fatalf("look again in %v", again)
			}
			names, places := map[string]bool{}, map[string]bool{}
			for _, n := range nodes {
				if _, err := n.Validate(); err != nil || names[n.Name] || places[n.URL] || !everReady[n.URL] {
					t.Fatalf("node %q at %q: %v, in %s", n.Name, n.URL, err, urls(nodes))
				}
				names[n.Name], places[n.URL] = true, true
				if bad[n.Name] {
					t.Fatalf("%s terminates and is in %s", n.Name, urls(nodes))
				}
			}
			if some := len(ready) > 0; some && err != nil && len(bad) == 0 {
				t.Fatalf("something is ready: %v", err)
			}
		}
	})
}

func joined(address string) string {
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	return address + ":8000"
}

func TestOptions(t *testing.T) {
	good := Options{Client: fake.NewClientset().DiscoveryV1().EndpointSlices("ns"), Namespace: "ns", Service: "vllm"}
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(*Options) {}, ""},
		{func(o *Options) { o.Service = "" }, "name either a service or a selector"},
		{func(o *Options) { o.Selector = "a=b" }, "name either a service or a selector"},
		{func(o *Options) { o.Service = "Vllm" }, `service "Vllm"`},
		{func(o *Options) { o.Service, o.Selector = "", "a in (b" }, `selector "a in (b"`},
		{func(o *Options) { o.Service, o.Selector = "", " " }, "selects everything"},
		{func(o *Options) { o.Port = "70000" }, `port "70000"`},
		{func(o *Options) { o.Port = "h_p" }, `port "h_p"`},
		{func(o *Options) { o.Namespace = "" }, `namespace ""`},
		{func(o *Options) { o.Node.Engine = "abacus" }, `engine "abacus" is not known`},
		{func(o *Options) { o.Node.Weight = -1 }, "weight"},
		{func(o *Options) { o.Client, o.Kubeconfig = nil, "testdata/none" }, `read kubeconfig "testdata/none"`},
		{func(o *Options) { o.Client, o.Context = nil, "there" }, `context "there"`},
		{func(o *Options) { o.Client = nil }, "from inside"},
	} {
		o := good
		c.change(&o)
		_, err := New(o)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	s, err := New(Options{Client: good.Client, Namespace: "ns", Selector: "team=a,gpu in (h100)", Port: "http"})
	if err != nil || s.Name() != "kubernetes:ns/gpu in (h100),team=a:http" {
		t.Errorf("it is called %q, %v", s.Name(), err)
	}
}
