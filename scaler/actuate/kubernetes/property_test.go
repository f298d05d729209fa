package kubernetes

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"warmpath/kubeclient"
	"warmpath/scaler/actuate"
)

// fate is what becomes of a request.
type fate int

const (
	fine    fate = iota
	lost         // it never arrives
	unheard      // it is done, and the answer is lost
	late         // it arrives when the caller has gone
	refused
	fates
)

// errDied is what a process sees of the world once it is dead.
var errDied = errors.New("the process died")

// world is a cluster, an actuator that may die between any two requests, and what it was
// asked for.
type world struct {
	t *rapid.T
	*cluster
	a *Actuator

	calls  int
	fates  map[int]fate // by number of the call
	diesAt int          // at that call; 0 = never
	late   []*http.Request

	own      []types.UID
	baseline int
	created  map[string]bool // Create succeeded
	asked    map[string]bool // Create was called
	ended    map[string]bool // Delete was called
}

// RoundTrip implements http.RoundTripper.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	w.calls++
	if w.diesAt > 0 && w.calls > w.diesAt {
		return nil, errDied
	}
	switch w.fates[w.calls] {
	case lost:
		return nil, errors.New("connection reset")
	case unheard:
		_, _ = w.cluster.RoundTrip(r)
		return nil, errors.New("connection reset before the answer")
	case late:
		if r.Method != http.MethodGet {
			w.late = append(w.late, kept(r))
			return nil, errors.New("no answer in time")
		}
	case refused:
		answer := httptest.NewRecorder()
		answer.Header().Set("Content-Type", "application/json")
		answer.WriteHeader(http.StatusForbidden)
		_, _ = answer.WriteString(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"you may not"}`)
		return answer.Result(), nil
	}
	return w.cluster.RoundTrip(r)
}

// anew starts another process in place of the one that runs.
func (w *world) anew() {
	a, err := New(Options{
		Namespace: place, Name: "web", Fleet: "fleet", Port: "http",
		Client: client(w.t, "http://cluster", w),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.a, w.diesAt = a, 0
}

// troubled draws what goes wrong in one call of the actuator's, does it, and starts
// another process if that one died.
func (w *world) troubled(do func() error) error {
	w.calls, w.fates = 0, map[int]fate{}
	switch rapid.IntRange(0, 3).Draw(w.t, "trouble") {
	case 0:
		w.diesAt = rapid.IntRange(1, 16).Draw(w.t, "dies after")
		w.fates[w.diesAt] = rapid.SampledFrom([]fate{fine, unheard, late}).Draw(w.t, "the last")
	case 1:
		w.fates[rapid.IntRange(1, 16).Draw(w.t, "call")] = fate(rapid.IntRange(1, int(fates)-1).Draw(w.t, "fate"))
	}
	err := do()
	if w.diesAt > 0 && w.calls > w.diesAt {
		w.anew()
	}
	w.fates, w.diesAt = nil, 0
	return err
}

// bound is the node that has the pod, and whether the pod is the user's.
func (w *world) bound(uid types.UID) (n *node, own bool) {
	if slices.Contains(w.own, uid) {
		return nil, true
	}
	m := w.configs["warmpath-deployment-web"]
	if m == nil {
		return nil, false
	}
	r, err := decodeRecord(m.Data[recordKey])
	if err != nil {
		w.t.Fatalf("the record: %v", err)
	}
	for i := range r.Nodes {
		if r.Nodes[i].UID == uid {
			return &r.Nodes[i], false
		}
	}
	return nil, slices.Contains(r.Own, uid)
}

// judge sees each pod that is told to end: none of the user's, and none that serves
// unless its node was told to.
func (w *world) judge(p *corev1.Pod, by string) {
	n, own := w.bound(p.UID)
	// Of pods that have just come in the place of others the record says which shall be the
	// user's. Until they serve one is as good as the other, for the controller as well.
	fresh := !slices.Contains(w.own, p.UID) && !(pod{Pod: p}).ready()
	switch {
	case own && fresh:
	case own:
		w.t.Fatalf("the %s ended pod %s, which is the user's, ready %v", by, p.Name, (pod{Pod: p}).ready())
	case n != nil && !w.ended[n.Key] && (pod{Pod: p}).ready():
		w.t.Fatalf("the %s ended pod %s of %q, which nobody ended", by, p.Name, n.Key)
	}
}

// pods of the cluster that meet the condition, in the order of their names.
func (w *world) pick(what string, is func(pod) bool) *corev1.Pod {
	var fit []*corev1.Pod
	for _, p := range sorted(w.pods) {
		if is(pod{Pod: p}) {
			fit = append(fit, p)
		}
	}
	if len(fit) == 0 {
		w.t.Skip("no pod")
	}
	return fit[rapid.IntRange(0, len(fit)-1).Draw(w.t, what)]
}

func (w *world) key() string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(w.t, "key")
}

// has reports whether the record has the key.
func (w *world) has(key string) bool {
	m := w.configs["warmpath-deployment-web"]
	if m == nil {
		return false
	}
	r, err := decodeRecord(m.Data[recordKey])
	if err != nil {
		w.t.Fatalf("the record: %v", err)
	}
	return r.find(key) != nil
}

func (w *world) create(key string) error {
	w.asked[key] = true
	had := w.has(key)
	i, err := w.a.Create(w.t.Context(), actuate.Wanted{Key: key})
	if err == nil {
		w.created[key] = true
		if i.Key != key || i.ID != "deployment/inference/web/"+key {
			w.t.Fatalf("Create(%q) = %+v", key, i)
		}
	}
	if actuate.AsRefusal(err) != nil && !had && w.has(key) {
		w.t.Fatalf("Create(%q) was refused (%v), and the record has it", key, err)
	}
	return err
}

// toEnd reports whether the controller has pods to end, or may be asked to.
func (w *world) toEnd() bool {
	s := w.replicaSets["web"]
	return len(w.late) > 0 || len(w.of(s.UID)) > int(*w.deployments["web"].Spec.Replicas)
}

func (w *world) actions() map[string]func(*rapid.T) {
	act := func(do func()) func(*rapid.T) {
		return func(t *rapid.T) { w.t = t; do() }
	}
	return map[string]func(*rapid.T){
		"create": act(func() {
			if key := w.key(); !w.ended[key] { // keys are used once
				_ = w.troubled(func() error { return w.create(key) })
			}
		}),
		"delete": act(func() {
			key := w.key()
			w.ended[key] = true
			_ = w.troubled(func() error { return w.a.Delete(w.t.Context(), actuate.Instance{Key: key}) })
		}),
		"list": act(func() {
			_ = w.troubled(func() error { _, err := w.a.List(w.t.Context()); return err })
		}),
		"arrives": act(func() {
			if len(w.late) == 0 {
				w.t.Skip("nothing is on its way")
			}
			r := w.late[0]
			w.late = w.late[1:]
			_, _ = w.cluster.RoundTrip(r)
		}),
		"control": act(w.control),
		"settle":  act(w.settle),
		"run": act(func() {
			// If the one that shall end gets ready between a lowering and the controller's
			// work, one that is not is ended in its place: that nobody can prevent.
			w.run(w.pick("pod", func(p pod) bool {
				return !w.toEnd() || !p.active() || p.Status.Phase == corev1.PodPending
			}))
		}),
		"unready": act(func() {
			if w.toEnd() { // likewise
				w.t.Skip("the controller has pods to end")
			}
			setReady(w.pick("pod", pod.ready), corev1.ConditionFalse)
		}),
		"evict": act(func() {
			p := w.pick("pod", pod.active)
			if i := slices.Index(w.own, p.UID); i >= 0 {
				w.own = slices.Delete(w.own, i, i+1)
			}
			w.evict(p)
		}),
		"quota": act(func() { w.quota = rapid.IntRange(0, 6).Draw(w.t, "quota") }),
		"": func(t *rapid.T) {
			w.t = t
			w.bound("") // the record can be read: no key and no pod twice
		},
	}
}

// rest ends all trouble, finishes what was asked, and looks at what is left.
func (w *world) rest() {
	w.fates, w.late, w.quota = nil, nil, 0
	w.anew()
	for key := range w.ended {
		w.finish(func() error { return w.a.Delete(w.t.Context(), actuate.Instance{Key: key}) })
	}
	var all []actuate.Instance
	for range 12 {
		w.settle()
		w.finish(func() (err error) { all, err = w.a.List(w.t.Context()); return err })
	}
	var keys []string
	urls := map[string]bool{}
	for _, i := range all {
		if i.Phase != actuate.Running || urls[i.URL] || !w.asked[i.Key] || w.ended[i.Key] {
			w.t.Errorf("at rest there is %+v", i)
		}
		urls[i.URL] = true
		keys = append(keys, i.Key)
	}
	for key := range w.created {
		if !w.ended[key] && !slices.Contains(keys, key) {
			w.t.Errorf("%q was made, and only %q are there", key, keys)
		}
	}
	if want := w.baseline + len(keys); int(*w.deployments["web"].Spec.Replicas) != want || len(w.pods) != want {
		w.t.Errorf("at rest there are %d replicas and %d pods, want %d and the nodes %q", *w.deployments["web"].Spec.Replicas, len(w.pods), w.baseline, keys)
	}
	for _, uid := range w.own {
		if !slices.ContainsFunc(sorted(w.pods), func(p *corev1.Pod) bool { return p.UID == uid }) {
			w.t.Errorf("the user's pod %s is gone", uid)
		}
	}
	if w.t.Failed() {
		w.t.Log(w.configs["warmpath-deployment-web"].Data[recordKey])
	}
}

// finish calls do until it succeeds, as the scaler would.
func (w *world) finish(do func() error) {
	var err error
	for range 20 {
		if err = do(); err == nil {
			return
		}
		w.settle()
	}
	w.t.Fatalf("it does not come to an end: %v", err)
}

// TestAnyOrder: whatever is asked in whatever order, whichever requests are lost, refused
// or late, and wherever the process dies: no key has two pods and no pod two keys,
// nothing that serves is ended unless it was told to, the user's pods stay, and at rest
// replicas are what they should be.
func TestAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			w := &world{t: rt, cluster: newCluster(t), created: map[string]bool{}, asked: map[string]bool{}, ended: map[string]bool{}}
			w.baseline = rapid.IntRange(0, 2).Draw(rt, "baseline")
			w.deploy(Deployment, "web", int32(w.baseline))
			for _, p := range sorted(w.pods) {
				w.own = append(w.own, p.UID)
			}
			w.killed = w.judge
			w.anew()
			for _, key := range []string{"a", "b", "c"}[:rapid.IntRange(0, 3).Draw(rt, "nodes")] {
				if err := w.create(key); err != nil {
					rt.Fatal(err)
				}
			}
			if rapid.Bool().Draw(rt, "they serve") {
				w.settle()
			}
			rt.Repeat(w.actions())
			w.t = rt
			w.rest()
		})
	})
}

// TestSomebodyElseScales: replicas that others add are theirs from then on; what they
// take is put back while there are nodes.
func TestSomebodyElseScales(t *testing.T) {
	c := newCluster(t)
	c.deploy(Deployment, "web", 1)
	a := open(t, c.inMemory(), nil)
	create(t, a, "a", "b")
	c.settle()
	scaled := func(n int32) {
		d := c.deployments["web"]
		*d.Spec.Replicas = n
		d.Generation, d.ResourceVersion = d.Generation+1, c.next()
		c.settle()
		for range 3 {
			list(t, a)
			c.settle()
		}
	}
	for _, step := range []struct{ to, want, baseline int }{{5, 5, 3}, {2, 5, 3}, {5, 5, 3}} {
		scaled(int32(step.to))
		if got := int(*c.deployments["web"].Spec.Replicas); got != step.want || baseline(t, c) != step.baseline {
			t.Errorf("scaled to %d by hand there are %d replicas and a baseline of %d, want %d and %d", step.to, got, baseline(t, c), step.want, step.baseline)
		}
	}
	remove(t, a, "a", "b")
	c.settle()
	scaled(1)
	if got := *c.deployments["web"].Spec.Replicas; got != 1 || baseline(t, c) != 1 {
		t.Errorf("without nodes, scaled to 1 by hand, there are %d replicas and a baseline of %d", got, baseline(t, c))
	}
}

func baseline(t *testing.T, c *cluster) int {
	t.Helper()
	r, err := decodeRecord(c.configs["warmpath-deployment-web"].Data[recordKey])
	if err != nil {
		t.Fatal(err)
	}
	return r.Baseline
}

func open(t *testing.T, client *kubeclient.Client, change func(*Options)) *Actuator {
	t.Helper()
	o := Options{Client: client, Namespace: place, Name: "web", Fleet: "fleet", Port: "http"}
	if change != nil {
		change(&o)
	}
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func create(t *testing.T, a *Actuator, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, err := a.Create(t.Context(), actuate.Wanted{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(t *testing.T, a *Actuator, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := a.Delete(t.Context(), actuate.Instance{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
}

// list returns "key phase detail" of each node, by key.
func list(t *testing.T, a *Actuator) map[string]string {
	t.Helper()
	all, err := a.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, i := range all {
		said[i.Key] = fmt.Sprint(i.Phase, " ", i.Detail)
	}
	return said
}
