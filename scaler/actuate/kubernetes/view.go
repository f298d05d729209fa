package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"warmpath/scaler/actuate"
)

// workload is the Deployment or StatefulSet.
type workload struct {
	kind       string
	uid        types.UID
	generation int64  // changes with its spec
	version    string // changes with its status too
	replicas   int
	first      int // ordinal of a StatefulSet's first pod
	selector   *metav1.LabelSelector
	failure    string // why its controller cannot make pods, in its words; "" = nothing said
}

// view is what was read of the cluster, at one time but for the pods, which may be newer.
type view struct {
	work    workload
	rec     *record // nil = none that is of this workload
	stored  bool    // there is a ConfigMap
	version string  // of it
	pods    []pod   // the oldest first
	rollout bool    // pods of several revisions are wanted at once
}

// find returns the pod of that UID, nil if it is gone.
func (v *view) find(uid types.UID) *pod {
	for i := range v.pods {
		if uid != "" && v.pods[i].UID == uid {
			return &v.pods[i]
		}
	}
	return nil
}

func (v *view) active() (n int) {
	for _, p := range v.pods {
		if p.active() {
			n++
		}
	}
	return n
}

// errMoved says that the workload changed between two looks at it.
var errMoved = errors.New("the workload changes while it is read")

// load reads all there is to know. The workload is read first and last: if its spec is
// the same, then the record was read while its replicas were what they are said to be.
func (a *Actuator) load(ctx context.Context) (*view, error) {
	before, err := a.workload(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{}
	if err := a.loadRecord(ctx, v, before.uid); err != nil {
		return nil, err
	}
	if err := a.loadPods(ctx, v, &before); err != nil {
		return nil, err
	}
	if v.work, err = a.workload(ctx); err != nil {
		return nil, err
	}
	if v.work.uid != before.uid || v.work.generation != before.generation {
		return nil, errMoved
	}
	return v, nil
}

func (a *Actuator) workload(ctx context.Context) (workload, error) {
	ctx, cancel := context.WithTimeout(ctx, a.opt.Timeout)
	defer cancel()
	if a.opt.Kind == StatefulSet {
		s, err := a.opt.Client.StatefulSets(a.opt.Namespace).Get(ctx, a.opt.Name)
		if err != nil {
			return workload{}, a.absent(err)
		}
		w := workload{kind: StatefulSet, replicas: replicas(s.Spec.Replicas), selector: s.Spec.Selector}
		if s.Spec.Ordinals != nil {
			w.first = int(s.Spec.Ordinals.Start)
		}
		return w.of(&s.ObjectMeta), nil
	}
	d, err := a.opt.Client.Deployments(a.opt.Namespace).Get(ctx, a.opt.Name)
	if err != nil {
		return workload{}, a.absent(err)
	}
	w := workload{kind: Deployment, replicas: replicas(d.Spec.Replicas), selector: d.Spec.Selector}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			w.failure = words(c.Reason, c.Message)
		}
	}
	return w.of(&d.ObjectMeta), nil
}

func (w workload) of(m *metav1.ObjectMeta) workload {
	w.uid, w.generation, w.version = m.UID, m.Generation, m.ResourceVersion
	return w
}

// replicas is 1 where none are given.
func replicas(n *int32) int {
	if n == nil {
		return 1
	}
	return int(*n)
}

// errNoWorkload says that the workload is not there.
var errNoWorkload = errors.New("there is no such workload")

func (a *Actuator) absent(err error) error {
	if apierrors.IsNotFound(err) {
		return actuate.Refused(actuate.Settings, fmt.Errorf("%w: %w", errNoWorkload, err))
	}
	return err
}

// loadRecord reads the ConfigMap. One of an earlier workload of that name says nothing.
func (a *Actuator) loadRecord(ctx context.Context, v *view, workload types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, a.opt.Timeout)
	defer cancel()
	c, err := a.opt.Client.ConfigMaps(a.opt.Namespace).Get(ctx, a.record)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	v.stored, v.version = true, c.ResourceVersion
	r, err := decodeRecord(c.Data[recordKey])
	switch {
	case err != nil:
		return actuate.Refused(actuate.Settings, fmt.Errorf("ConfigMap %s/%s, key %q: %w; mend it, or delete it: the pods' annotations say which are nodes", a.opt.Namespace, a.record, recordKey, err))
	case r.Workload != workload:
		return nil
	case r.Fleet != a.opt.Fleet:
		return actuate.Refused(actuate.Settings, fmt.Errorf("%s belongs to the fleet %q: give the fleet %q a workload of its own, or delete ConfigMap %s", a.name(), r.Fleet, a.opt.Fleet, a.record))
	}
	v.rec = r
	return nil
}

// loadPods reads the pods that the workload's controller made, and no others, whatever
// their labels.
func (a *Actuator) loadPods(ctx context.Context, v *view, w *workload) error {
	labels := metav1.FormatLabelSelector(w.selector)
	owners := map[types.UID]bool{w.uid: w.kind == StatefulSet}
	kind := "StatefulSet"
	if w.kind == Deployment {
		kind = "ReplicaSet"
		within, cancel := context.WithTimeout(ctx, a.opt.Timeout)
		defer cancel()
		sets, err := a.opt.Client.ReplicaSets(a.opt.Namespace).List(within, metav1.ListOptions{LabelSelector: labels})
		if err != nil {
			return err
		}
		asked := 0
		for i := range sets.Items {
			s := &sets.Items[i]
			if ownedBy(&s.ObjectMeta, "Deployment") == w.uid {
				owners[s.UID] = true
				if replicas(s.Spec.Replicas) > 0 {
					asked++
				}
			}
		}
		v.rollout = asked > 1
	}
	within, cancel := context.WithTimeout(ctx, a.opt.Timeout)
	defer cancel()
	all, err := a.opt.Client.Pods(a.opt.Namespace).List(within, metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		return err
	}
	revisions := map[types.UID]bool{}
	for i := range all.Items {
		p := pod{&all.Items[i], ownedBy(&all.Items[i].ObjectMeta, kind)}
		if p.owner == "" || !owners[p.owner] {
			continue
		}
		v.pods = append(v.pods, p)
		if p.active() {
			revisions[p.owner] = true
		}
	}
	v.rollout = v.rollout || len(revisions) > 1
	sortPods(v.pods, w.kind)
	return nil
}

// events returns why the StatefulSet's controller cannot make pods, in its words, ""
// if nothing says so. Deployments say it in a condition.
func (a *Actuator) events(ctx context.Context, w *workload) string {
	ctx, cancel := context.WithTimeout(ctx, a.opt.Timeout)
	defer cancel()
	all, err := a.opt.Client.Events(a.opt.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(w.uid), "reason": "FailedCreate"}.String(),
	})
	if err != nil || len(all.Items) == 0 {
		return ""
	}
	last := slices.MaxFunc(all.Items, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return words(last.Reason, last.Message)
}
