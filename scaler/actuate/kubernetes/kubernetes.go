package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpath/scaler/actuate"
)

// autoscalersEvery is how often is looked for an autoscaler of the same workload.
const autoscalersEvery = time.Minute

// mostWaits bounds how often Delete waits for a step.
const mostWaits = 8

// Actuator makes nodes of one workload's replicas. Any goroutine may call its methods,
// which take turns at the cluster.
type Actuator struct {
	opt    Options
	record string // name of the ConfigMap
	turn   chan struct{}

	// Whoever has the turn has these.
	since map[types.UID]time.Time // when a pod was first seen with its cost
	skip  map[types.UID]bool      // pods that cannot be annotated
	sure  bool                    // the last write of the scale was answered

	mu          sync.Mutex
	autoscalers time.Time // when it was looked for them; guarded by mu
	said        said      // guarded by mu
	missing     time.Time // since when lists do not find the workload; zero = they do; guarded by mu
}

var _ actuate.Actuator = (*Actuator)(nil)

// New checks the options and contacts nobody: whether the workload is there, Create and
// List tell.
func New(opt Options) (*Actuator, error) {
	if err := opt.check(); err != nil {
		return nil, fmt.Errorf("actuator kubernetes: %w", err)
	}
	return &Actuator{
		opt: opt, record: recordName(opt.Kind, opt.Name), turn: make(chan struct{}, 1),
		since: map[types.UID]time.Time{}, skip: map[types.UID]bool{}, said: said{},
	}, nil
}

// Close implements actuate.Actuator: the nodes stay.
func (a *Actuator) Close() error { return nil }

// name is the workload's, for people.
func (a *Actuator) name() string { return a.opt.Kind + " " + a.opt.Namespace + "/" + a.opt.Name }

// id names a node. It does not name its pod, as that may be replaced.
func (a *Actuator) id(key string) string {
	return strings.Join([]string{a.opt.Kind, a.opt.Namespace, a.opt.Name, key}, "/")
}

// Create implements actuate.Actuator. It asks for one replica more and waits for no pod.
// What the node serves is the template's to say.
func (a *Actuator) Create(ctx context.Context, w actuate.Wanted) (actuate.Instance, error) {
	fail := func(err error) (actuate.Instance, error) {
		return actuate.Instance{}, wrapped(fmt.Sprintf("create node %q in %s", w.Key, a.name()), err)
	}
	if err := actuate.CheckKey(w.Key); err != nil {
		return fail(actuate.Refused(actuate.Settings, err))
	}
	asked := false
	v, _, err := a.pass(ctx, func(ctx context.Context, v *view, r *record) error {
		err := a.add(ctx, v, r, w.Key)
		asked = asked || err == nil
		return err
	})
	if v != nil && v.rec != nil && v.rec.find(w.Key) != nil && v.work.replicas >= v.rec.target() {
		a.later(err) // of another node: this one is asked for
		return a.instance(v, v.rec.find(w.Key), a.failure(ctx, v)), nil
	}
	refusal := actuate.AsRefusal(verdict(err))
	switch {
	case err == nil:
		return fail(errors.New("it was ended while it was made"))
	case refusal == nil:
		return fail(err)
	case asked:
		if undone := a.withdraw(ctx, w.Key); undone != nil {
			return fail(unknown(fmt.Errorf("%w; and it could not be taken back: %w", refusal, undone)))
		}
	}
	return fail(refusal)
}

// later says that a step failed that the next call takes again, once for each cause; nil is
// nothing.
func (a *Actuator) later(err error) {
	if err != nil {
		a.say(slog.LevelWarn, "a step in scaling a workload failed; it will be tried again", err)
	}
}

// add puts a key into the record, unless it is there or there is no room.
func (a *Actuator) add(ctx context.Context, v *view, r *record, key string) error {
	if r.find(key) != nil {
		return nil
	}
	if err := a.alone(ctx); err != nil {
		return err
	}
	count, waiting := 0, false
	for _, n := range r.Nodes {
		if n.Stage != leaving {
			count++
		}
		waiting = waiting || n.Stage == wanted && n.UID == ""
	}
	switch {
	case count >= a.opt.MaxNodes:
		return actuate.Refused(actuate.Quota, fmt.Errorf("the fleet %q has %d nodes in it, and may have %d", r.Fleet, count, a.opt.MaxNodes))
	case len(r.Nodes) >= MaxNodes:
		return actuate.Refused(actuate.Quota, fmt.Errorf("%d nodes fit its record, and so many there are, with those that end", MaxNodes))
	case waiting:
		// One more would only wait, too.
		if why := a.failure(ctx, v); overQuota(why) {
			return actuate.Refused(actuate.Quota, errors.New(why))
		}
	}
	r.Nodes = append(r.Nodes, node{Key: key})
	return nil
}

// withdraw takes a key back whose replica was refused.
func (a *Actuator) withdraw(ctx context.Context, key string) error {
	err := a.inTurn(ctx, func() error {
		return a.retry(ctx, func() error {
			v, err := a.load(ctx)
			if err != nil {
				return err
			}
			if v.rec == nil || v.rec.find(key) == nil {
				return nil
			}
			if n := v.rec.find(key); n.Stage != wanted || n.UID != "" {
				return errors.New("it has a pod")
			}
			r := v.rec.clone()
			r.drop(key)
			a.planner().retarget(v, r)
			return a.write(ctx, v, r)
		})
	})
	if refusal := actuate.AsRefusal(verdict(err)); refusal != nil && errors.Is(refusal, errNoWorkload) {
		return nil
	}
	return err
}

// Delete implements actuate.Actuator. It returns when the replicas are lowered, so that
// only the controller has to act. An error may come after the first step was taken; then
// the node is Ending, and the next call of any kind goes on.
func (a *Actuator) Delete(ctx context.Context, i actuate.Instance) error {
	err := a.delete(ctx, i)
	if errors.Is(err, errNoWorkload) {
		return nil // and so its pods are not
	}
	return wrapped(fmt.Sprintf("end node %q in %s", i.Key, a.name()), verdict(err))
}

func (a *Actuator) delete(ctx context.Context, i actuate.Instance) error {
	if err := actuate.CheckKey(i.Key); err != nil {
		return actuate.Refused(actuate.Settings, err)
	}
	if i.ID != "" && i.ID != a.id(i.Key) {
		return actuate.Refused(actuate.Settings, fmt.Errorf("its id is %q, and that of a node of that key here is %q", i.ID, a.id(i.Key)))
	}
	if a.opt.Kind == StatefulSet { // what others began changes which is the last
		if _, _, err := a.pass(ctx, nil); err != nil {
			return err
		}
	}
	for range mostWaits {
		v, s, err := a.pass(ctx, func(_ context.Context, v *view, r *record) error { return a.doom(v, r, i.Key) })
		switch {
		case v != nil && v.lowered(i.Key):
			a.later(err) // of another node: this one's pod is the controller's to end
			return nil
		case err != nil:
			return err
		case s.wait == 0:
			return errors.New(s.stuck)
		}
		if err := pause(ctx, s.wait); err != nil {
			return err
		}
	}
	return errors.New("its pod's deletion cost does not stay as it is set: find out who else sets it")
}

// lowered reports whether no replica is asked for any more for that node.
func (v *view) lowered(key string) bool {
	if v.rec == nil {
		return true
	}
	n := v.rec.find(key)
	return (n == nil || n.Stage == leaving) && v.work.replicas == v.rec.target()
}

// doom tells a node to end.
func (a *Actuator) doom(v *view, r *record, key string) error {
	n := r.find(key)
	if n == nil || n.Stage != wanted {
		return nil
	}
	if !v.canEnd(n) {
		return actuate.Refused(actuate.Settings, fmt.Errorf("its pod is %s, and a StatefulSet ends ordinal %d first: end that node before, or use a Deployment",
			either(n.Pod, "not there yet"), v.work.last()))
	}
	n.Stage = ending
	return nil
}

// List implements actuate.Actuator. It also gives pods their keys, and takes the next
// step for what is being ended; a step that fails is logged, and tried again by the
// next call. Of a workload that was deleted for good, and all its pods with it, the list is
// empty.
func (a *Actuator) List(ctx context.Context) ([]actuate.Instance, error) {
	v, _, err := a.pass(ctx, nil)
	if v == nil && ctx.Err() == nil && errors.Is(err, errNoWorkload) {
		if err = a.gone(ctx, err); err == nil {
			return nil, nil
		}
	}
	if v == nil || ctx.Err() != nil {
		return nil, wrapped("list nodes of "+a.name(), verdict(err))
	}
	a.seen()
	a.later(err)
	if v.rec == nil {
		return nil, nil
	}
	why := a.failure(ctx, v)
	all := make([]actuate.Instance, len(v.rec.Nodes))
	for i := range v.rec.Nodes {
		all[i] = a.instance(v, &v.rec.Nodes[i], why)
	}
	return all, nil
}

// failure returns why pods cannot be made, in the cluster's words, if one is missing.
func (a *Actuator) failure(ctx context.Context, v *view) string {
	if v.work.kind != StatefulSet || v.work.failure != "" {
		return v.work.failure
	}
	for _, n := range v.rec.Nodes {
		if n.Stage == wanted && n.UID == "" {
			return a.events(ctx, &v.work)
		}
	}
	return ""
}

// instance is a node as the cluster knows it; why is why pods cannot be made.
func (a *Actuator) instance(v *view, n *node, why string) actuate.Instance {
	i := actuate.Instance{Key: n.Key, ID: a.id(n.Key), Phase: actuate.Pending}
	if n.Stage != wanted {
		i.Phase = actuate.Ending
	}
	p := v.find(n.UID)
	if p == nil {
		if n.Stage == wanted {
			i.Detail = words("no pod yet", either(why, a.lost(v, n.Key)))
		}
		return i
	}
	i.URL, i.Since = p.url(a.opt.Port), p.CreationTimestamp.Time
	i.Detail = words("pod "+p.Name, p.detail())
	if i.Phase == actuate.Pending && (p.Status.Phase == "Running" || p.Status.Phase == "Unknown") {
		i.Phase = actuate.Running
	}
	return i
}

// lost says what became of the pod that had the key before, "" if nothing is known.
func (a *Actuator) lost(v *view, key string) string {
	for _, p := range v.pods {
		if !p.active() && p.Annotations[keyAnnotation] == key && p.Annotations[fleetAnnotation] == a.opt.Fleet {
			return "its pod " + words(p.Name+" is gone or goes", p.detail())
		}
	}
	return ""
}

// alone refuses a workload that an autoscaler scales, too: they would work against each
// other.
func (a *Actuator) alone(ctx context.Context) error {
	a.mu.Lock()
	recent := !a.autoscalers.IsZero() && time.Since(a.autoscalers) < autoscalersEvery
	a.mu.Unlock()
	if recent {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, a.opt.Timeout)
	defer cancel()
	all, err := a.opt.Client.HorizontalPodAutoscalers(a.opt.Namespace).List(within, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		a.say(slog.LevelInfo, "it cannot be seen whether an autoscaler scales the same workload", err)
		all = nil
	case err != nil:
		return fmt.Errorf("look for autoscalers: %w", err)
	}
	if all != nil {
		for i := range all.Items {
			ref := all.Items[i].Spec.ScaleTargetRef
			if ref.Name == a.opt.Name && strings.EqualFold(ref.Kind, a.opt.Kind) && strings.HasPrefix(ref.APIVersion, "apps/") {
				return actuate.Refused(actuate.Settings, fmt.Errorf("HorizontalPodAutoscaler %s/%s scales it, and would work against this: delete that, or scale another workload", a.opt.Namespace, all.Items[i].Name))
			}
		}
	}
	a.mu.Lock()
	a.autoscalers = time.Now()
	a.mu.Unlock()
	return nil
}

func either(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
