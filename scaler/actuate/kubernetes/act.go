package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"warmpath/scaler/actuate"
)

const (
	mostTries  = 12 // of one pass, when others change the same things
	firstPause = 5 * time.Millisecond
	mostPause  = 300 * time.Millisecond
)

// ask changes a record that is tidy. It may be called again, with what others made of
// it meanwhile.
type ask func(ctx context.Context, v *view, r *record) error

// pass reads the cluster and takes all steps that can be taken now. It returns what it
// saw and did, the view also with an error if one was had, and what is left to do.
func (a *Actuator) pass(ctx context.Context, change ask) (v *view, left step, err error) {
	err = a.inTurn(ctx, func() error {
		return a.retry(ctx, func() error {
			seen, err := a.load(ctx)
			if err != nil {
				v = nil
				return err
			}
			v = seen
			left, err = a.advance(ctx, v, change)
			return err
		})
	})
	return v, left, err
}

// inTurn calls do when nobody else is at it.
func (a *Actuator) inTurn(ctx context.Context, do func() error) error {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-a.turn }()
	return do()
}

// retry calls do again while others change what it changes.
func (a *Actuator) retry(ctx context.Context, do func() error) error {
	for try := 0; ; try++ {
		err := do()
		if err == nil || try == mostTries || !(errors.Is(err, errMoved) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)) {
			return err
		}
		most := min(firstPause<<try, mostPause)
		if pause(ctx, most/2+rand.N(most/2+1)) != nil {
			return err
		}
	}
}

// pause waits, and returns ctx's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (a *Actuator) planner() *planner {
	return &planner{fleet: a.opt.Fleet, now: time.Now(), since: a.since, sure: a.sure, skip: a.skip}
}

// advance takes steps until none is left that can be taken.
func (a *Actuator) advance(ctx context.Context, v *view, change ask) (step, error) {
	for range 4*(len(v.pods)+MaxNodes) + 16 {
		a.look(v)
		p := a.planner()
		r := p.tidy(v)
		if change != nil {
			if r == nil {
				r = p.fresh(v)
			}
			if err := change(ctx, v, r); err != nil {
				return step{}, err
			}
			if v.rec == nil && len(r.Nodes) == 0 {
				r = nil // nothing was asked for
			}
		}
		if r == nil {
			return step{scale: -1}, nil
		}
		p.retarget(v, r)
		if !r.equal(v.rec) {
			if err := a.write(ctx, v, r); err != nil {
				return step{}, err
			}
			continue
		}
		s := p.next(v)
		if s.scale < 0 && s.end == nil && s.mark == nil && s.note == nil {
			return s, nil
		}
		if err := a.do(ctx, v, s); err != nil {
			return step{}, err
		}
	}
	return step{}, errors.New("BUG: steps without end")
}

// look notes which pods have their cost, and forgets those that are gone.
func (a *Actuator) look(v *view) {
	there := map[types.UID]bool{}
	for i := range v.pods {
		p := &v.pods[i]
		there[p.UID] = true
		if _, known := a.since[p.UID]; !known && p.cost() == lowestCost {
			a.since[p.UID] = time.Now()
		}
	}
	for uid := range a.since {
		if !there[uid] {
			delete(a.since, uid)
		}
	}
	for uid := range a.skip {
		if !there[uid] {
			delete(a.skip, uid)
		}
	}
}

// do takes one step and puts what became of it into the view.
func (a *Actuator) do(ctx context.Context, v *view, s step) error {
	ctx, cancel := context.WithTimeout(ctx, a.opt.Timeout)
	defer cancel()
	switch {
	case s.scale >= 0:
		return a.scale(ctx, v, s.scale)
	case s.end != nil:
		return a.end(ctx, s.end)
	case s.mark != nil:
		err := a.annotate(ctx, s.mark, map[string]string{corev1.PodDeletionCost: strconv.Itoa(lowestCost)})
		if err != nil {
			return fmt.Errorf("set the deletion cost of pod %s: %w", s.mark.Name, err)
		}
		return nil
	default:
		// Without it the record alone says whose the pod is, which is enough.
		if err := a.annotate(ctx, s.note, map[string]string{fleetAnnotation: a.opt.Fleet, keyAnnotation: s.key}); err != nil {
			if apierrors.IsConflict(err) || ctx.Err() != nil {
				return err
			}
			a.opt.Log.Warn("a pod cannot be told its key", "pod", s.note.Name, "key", s.key, "err", err)
			a.skip[s.note.UID] = true
		}
		return nil
	}
}

// write stores the record over the version that was read.
func (a *Actuator) write(ctx context.Context, v *view, r *record) error {
	ctx, cancel := context.WithTimeout(ctx, a.opt.Timeout)
	defer cancel()
	text, err := r.encode()
	if err != nil {
		return err
	}
	kind := map[string]string{Deployment: "Deployment", StatefulSet: "StatefulSet"}[v.work.kind]
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.record, Namespace: a.opt.Namespace, ResourceVersion: v.version,
			Labels:          map[string]string{"app.kubernetes.io/managed-by": "warmpath"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: a.opt.Name, UID: v.work.uid}},
		},
		Data: map[string]string{recordKey: text},
	}
	configs := a.opt.Client.ConfigMaps(a.opt.Namespace)
	if v.stored {
		c, err = configs.Update(ctx, c)
	} else {
		c, err = configs.Create(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", a.record, err)
	}
	v.rec, v.stored, v.version = r, true, c.ResourceVersion
	return nil
}

// scale asks for replicas, if the workload is as it was read.
func (a *Actuator) scale(ctx context.Context, v *view, n int) error {
	s := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: a.opt.Name, Namespace: a.opt.Namespace, ResourceVersion: v.work.version, UID: v.work.uid},
		Spec:       autoscalingv1.ScaleSpec{Replicas: int32(n)},
	}
	a.sure = false
	var err error
	if v.work.kind == StatefulSet {
		s, err = a.opt.Client.StatefulSets(a.opt.Namespace).UpdateScale(ctx, a.opt.Name, s)
	} else {
		s, err = a.opt.Client.Deployments(a.opt.Namespace).UpdateScale(ctx, a.opt.Name, s)
	}
	if err != nil {
		return fmt.Errorf("scale %s to %d: %w", a.name(), n, err)
	}
	a.sure = true
	a.opt.Log.Info("scaled a workload", "workload", a.name(), "from", v.work.replicas, "to", n)
	v.work.replicas, v.work.version = n, s.ResourceVersion
	return nil
}

// annotate changes the annotations of that very pod.
func (a *Actuator) annotate(ctx context.Context, p *pod, set map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "annotations": set}})
	if err != nil {
		return err
	}
	_, err = a.opt.Client.Pods(a.opt.Namespace).MergePatch(ctx, p.Name, patch)
	if apierrors.IsNotFound(err) {
		return errMoved // it is gone
	}
	if err != nil {
		return err
	}
	p.Pod = p.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	maps.Copy(p.Annotations, set)
	return nil
}

// end deletes that very pod.
func (a *Actuator) end(ctx context.Context, p *pod) error {
	uid := p.UID
	err := a.opt.Client.Pods(a.opt.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return errMoved
	}
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	a.opt.Log.Info("deleted a pod that others would have been ended before", "pod", p.Name)
	now := metav1.Now()
	p.Pod = p.DeepCopy()
	p.DeletionTimestamp = &now
	return nil
}

// verdict makes a refusal of an answer that is a definite no.
func verdict(err error) error {
	switch {
	case err == nil || actuate.AsRefusal(err) != nil:
	case apierrors.IsForbidden(err) && overQuota(err.Error()):
		return actuate.Refused(actuate.Quota, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return actuate.Refused(actuate.Credential, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsNotFound(err),
		apierrors.IsMethodNotSupported(err), apierrors.IsRequestEntityTooLargeError(err):
		return actuate.Refused(actuate.Settings, err)
	}
	return err
}

// overQuota finds the words of the API server's check of ResourceQuotas.
func overQuota(text string) bool { return strings.Contains(text, "exceeded quota") }

// wrapped says what failed; a refusal stays one.
func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	if r := actuate.AsRefusal(err); r != nil {
		return actuate.Refused(r.Reason, fmt.Errorf("%s: %w", what, r.Err))
	}
	return fmt.Errorf("%s: %w", what, err)
}

// unknown keeps the words of an error and takes away what it says of the outcome.
func unknown(err error) error { return errors.New(err.Error()) }
