package kube

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// absence is how long an endpoint must be gone or not ready for its node to leave.
const absence = 30 * time.Second

// errFrozen says that what is seen makes no set: the one before stands.
var errFrozen = errors.New("the nodes that were named last stand")

// node is what was told of, or will be.
type node struct {
	spec state.Spec
	uid  types.UID // of its pod
	lost time.Time // since when it is not ready or gone; zero = it is there
}

// endpoint is one address of one pod, as the slices have it together.
type endpoint struct {
	key   string // of its node: the pod, or the address
	pod   string // its name; "" = none
	uid   types.UID
	host  string
	port  int
	ready bool // else it is there, and not ready
}

// merge brings the nodes in line with the slices. It returns them, when to look again
// though nothing changes (0 = not), and what is wrong.
func (s *Source) merge(all []*discoveryv1.EndpointSlice, now time.Time) (nodes []state.Spec, again time.Duration, err error) {
	if len(all) == 0 {
		return nil, 0, fmt.Errorf("there is no EndpointSlice of %s in namespace %s: make the Service, or correct its name; %w", s.what, s.opt.Namespace, errFrozen)
	}
	found, going, err := s.endpoints(all)
	if err != nil {
		return nil, 0, err
	}
	ready := 0
	there := map[string]endpoint{}
	for _, e := range s.chosen(found) {
		there[e.key] = e
		if e.ready {
			ready++
		}
	}
	if ready > fleet.MaxSlots {
		return nil, 0, fmt.Errorf("%d endpoints are ready: use at most %d; %w", ready, fleet.MaxSlots, errFrozen)
	}
	for key, n := range s.nodes {
		switch e, here := there[key]; {
		case here && e.ready:
		case !here && going[endpoint{key: key, uid: n.uid}.one()]:
			delete(s.nodes, key)
		case n.lost.IsZero(), here && ready == 0: // it may be the cluster that does not see
			n.lost = now
		case now.Sub(n.lost) >= absence:
			delete(s.nodes, key)
		}
	}
	for _, e := range there {
		if e.ready {
			s.nodes[e.key] = &node{spec: s.node(e), uid: e.uid}
		}
	}
	s.yield()
	for _, n := range s.nodes {
		nodes = append(nodes, n.spec)
		if left := absence - now.Sub(n.lost); !n.lost.IsZero() && (again == 0 || left < again) {
			again = max(left, time.Millisecond)
		}
	}
	slices.SortFunc(nodes, func(a, b state.Spec) int { return strings.Compare(a.Name, b.Name) })
	if ready == 0 && len(there) > 0 {
		return nodes, again, fmt.Errorf("none of %d endpoints is ready; nodes that were stay", len(there))
	}
	return nodes, again, nil
}

// yield takes nodes away whose name or address another has by now.
func (s *Source) yield() {
	urls, names := map[string]string{}, map[string]string{}
	// Those that are there come first, then in order, so that the outcome is the same
	// every time.
	keys := slices.SortedFunc(maps.Keys(s.nodes), func(a, b string) int {
		return cmp.Or(s.nodes[a].lost.Compare(s.nodes[b].lost), strings.Compare(a, b))
	})
	for _, key := range keys {
		spec := &s.nodes[key].spec
		if urls[spec.URL] != "" || names[spec.Name] != "" {
			delete(s.nodes, key)
			continue
		}
		urls[spec.URL], names[spec.Name] = key, key
	}
}

// endpoints returns what the slices name, but for what terminates, of which it returns
// what one gives.
func (s *Source) endpoints(all []*discoveryv1.EndpointSlice) (found []endpoint, going map[string]bool, err error) {
	going = map[string]bool{}
	var without []string // ports of slices that have not ours
	with := false
	for _, slice := range all {
		port, fault := s.port(slice)
		if fault != "" && len(slice.Endpoints) > 0 {
			without = append(without, fault)
		}
		with = with || fault == ""
		for i := range slice.Endpoints {
			e, ok := s.endpoint(&slice.Endpoints[i], port)
			switch c := &slice.Endpoints[i].Conditions; {
			case !ok || port == 0:
			case is(c.Terminating, false):
				going[e.one()] = true
			default:
				e.ready = is(c.Ready, true)
				found = append(found, e)
			}
		}
	}
	if len(without) > 0 && !with {
		slices.Sort(without)
		return nil, nil, fmt.Errorf("port %q: the slices have %s; %w", s.opt.Port, strings.Join(slices.Compact(without), "; "), errFrozen)
	}
	// The slices of another family of addresses may not say so yet.
	found = slices.DeleteFunc(found, func(e endpoint) bool { return going[e.one()] })
	return found, going, nil
}

// one tells a pod from a later one of its name.
func (e endpoint) one() string { return e.key + " " + string(e.uid) }

func is(condition *bool, otherwise bool) bool {
	if condition == nil {
		return otherwise
	}
	return *condition
}

// port finds the nodes' port in a slice; fault says what the slice has in its place.
func (s *Source) port(slice *discoveryv1.EndpointSlice) (port int, fault string) {
	if s.number > 0 {
		return s.number, ""
	}
	var have []string
	for _, p := range slice.Ports {
		if p.Port == nil {
			continue
		}
		name := ""
		if p.Name != nil {
			name = *p.Name
		}
		have = append(have, fmt.Sprintf("%q (%d)", name, *p.Port))
		if name == s.opt.Port || s.opt.Port == "" {
			port = int(*p.Port)
		}
	}
	switch {
	case s.opt.Port == "" && len(have) > 1:
		return 0, "several, of which one must be named: " + strings.Join(have, ", ")
	case port == 0 && len(have) == 0:
		return 0, "none, so it must be given as a number"
	case port == 0:
		return 0, "only " + strings.Join(have, ", ")
	}
	return port, ""
}

// endpoint reads one entry of a slice. All its addresses mean the same; the first is
// used.
func (s *Source) endpoint(in *discoveryv1.Endpoint, port int) (endpoint, bool) {
	if len(in.Addresses) == 0 {
		return endpoint{}, false
	}
	e := endpoint{host: strings.ToLower(in.Addresses[0]), port: port}
	e.key = "address " + e.host
	if ref := in.TargetRef; ref != nil && ref.Kind == "Pod" && ref.Name != "" {
		e.pod, e.key, e.uid = ref.Name, "pod "+ref.Name, ref.UID
	}
	return e, true
}

// chosen returns one endpoint for each pod, and for each address.
func (s *Source) chosen(found []endpoint) []endpoint {
	slices.SortStableFunc(found, func(a, b endpoint) int {
		return cmp.Or(strings.Compare(a.key, b.key),
			cmp.Compare(unless(a.ready), unless(b.ready)), // a slice that lags may have it as it was
			cmp.Compare(unless(s.told(a)), unless(s.told(b))),
			cmp.Compare(unless(!strings.Contains(a.host, ":")), unless(!strings.Contains(b.host, ":"))),
			strings.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
	})
	return slices.CompactFunc(found, func(a, b endpoint) bool { return a.key == b.key })
}

// told reports whether its node is told of at that very place.
func (s *Source) told(e endpoint) bool {
	n := s.nodes[e.key]
	return n != nil && n.spec.URL == "http://"+e.at()
}

func (e endpoint) at() string { return net.JoinHostPort(e.host, strconv.Itoa(e.port)) }

// unless is 0 if it is so, else 1: what is so comes first.
func unless(so bool) int {
	if so {
		return 0
	}
	return 1
}

// node is what is told of an endpoint.
func (s *Source) node(e endpoint) state.Spec {
	n := s.opt.Node
	n.Models = slices.Clone(n.Models)
	n.URL = "http://" + e.at()
	if n.Name = e.pod; state.CheckName(e.pod) != nil {
		n.Name = addressName(e.at())
	}
	return n
}

// addressName makes a node's name of its address.
func addressName(at string) string {
	name := strings.NewReplacer("[", "", "]", "", ":", "-", "%", "-").Replace(at)
	if strings.HasPrefix(name, "-") { // of an address that begins with ::
		name = "0" + name
	}
	if len(name) > state.MaxNameBytes {
		end := fmt.Sprintf("-%x", sha256.Sum256([]byte(at)))[:9]
		name = strings.TrimRight(name[:state.MaxNameBytes-len(end)], "-.") + end
	}
	return name
}
