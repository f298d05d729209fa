package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// control does what the controllers do, once: they count replicas, and make or end pods.
func (c *cluster) control() {
	for _, d := range sorted(c.deployments) {
		s := c.replicaSets[d.Name]
		if s == nil {
			s = &appsv1.ReplicaSet{ObjectMeta: c.meta(d.Name)}
			s.Labels, s.OwnerReferences = d.Spec.Selector.MatchLabels, controlled("Deployment", d.Name, d.UID)
			c.replicaSets[d.Name] = s
		}
		s.Spec.Replicas = d.Spec.Replicas
		var conditions []appsv1.DeploymentCondition
		if failure := c.replicate(s); failure != "" {
			conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: failure}}
		}
		if len(conditions) != len(d.Status.Conditions) {
			d.Status.Conditions = conditions
			d.ResourceVersion = c.next() // of the status: the generation stays
		}
	}
	for _, s := range sorted(c.sets) {
		c.number(s)
	}
}

func controlled(kind, name string, uid types.UID) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: uid, Controller: &yes}}
}

// of returns the pods of a controller that count.
func (c *cluster) of(uid types.UID) (out []pod) {
	for _, p := range sorted(c.pods) {
		if one := (pod{Pod: p}); p.OwnerReferences[0].UID == uid && one.active() {
			out = append(out, one)
		}
	}
	return out
}

// replicate does what a ReplicaSet does. Of pods that its rules hold for equal it ends
// the oldest, as it never would, so that nothing here relies on the rules that come last.
func (c *cluster) replicate(s *appsv1.ReplicaSet) (failure string) {
	there := c.of(s.UID)
	for range int(*s.Spec.Replicas) - len(there) {
		if c.quota > 0 && len(c.of(s.UID)) >= c.quota {
			return fmt.Sprintf("pods %q is forbidden: exceeded quota: gpus, requested: pods=1, used: pods=%d, limited: pods=%d", s.Name+"-x", c.quota, c.quota)
		}
		c.makePod(s.Name+"-"+strconv.Itoa(c.named+1), s.Labels, controlled("ReplicaSet", s.Name, s.UID))
	}
	slices.SortStableFunc(there, func(p, q pod) int {
		return cmp.Or(p.class(q), cmp.Compare(p.cost(), q.cost()), p.CreationTimestamp.Compare(q.CreationTimestamp.Time))
	})
	for i := range len(there) - int(*s.Spec.Replicas) {
		c.kill(there[i].Pod, "controller")
	}
	return ""
}

// number does what a StatefulSet does: one step up, in order, or one down.
func (c *cluster) number(s *appsv1.StatefulSet) {
	for i := range int(*s.Spec.Replicas) {
		name := s.Name + "-" + strconv.Itoa(i)
		p := c.pods[name]
		if p == nil {
			c.makePod(name, s.Spec.Selector.MatchLabels, controlled("StatefulSet", s.Name, s.UID))
			return
		}
		if !(pod{Pod: p}).ready() {
			return
		}
	}
	there := c.of(s.UID)
	sortPods(there, StatefulSet)
	if len(there) > int(*s.Spec.Replicas) {
		c.kill(there[len(there)-1].Pod, "controller")
	}
}

func (c *cluster) makePod(name string, labels map[string]string, owner []metav1.OwnerReference) {
	p := &corev1.Pod{ObjectMeta: c.meta(name)}
	p.Labels, p.OwnerReferences = labels, owner
	p.Spec.Containers = []corev1.Container{{Name: "engine", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8000}}}}
	p.Status.Phase = corev1.PodPending
	c.pods[name] = p
}

// kill tells a pod to end; one that is on no machine is gone at once.
func (c *cluster) kill(p *corev1.Pod, by string) {
	if p.DeletionTimestamp != nil {
		return
	}
	if c.killed != nil {
		c.killed(p, by)
	}
	if p.Spec.NodeName == "" {
		delete(c.pods, p.Name)
		return
	}
	now := metav1.Now()
	p.DeletionTimestamp = &now
	p.ResourceVersion = c.next()
}

// run does what its machine does with a pod, one step: it is placed, starts, becomes
// ready; and it goes when it was told to end.
func (c *cluster) run(p *corev1.Pod) {
	switch {
	case p.DeletionTimestamp != nil || (pod{Pod: p}).over():
		delete(c.pods, p.Name)
	case p.Spec.NodeName == "":
		p.Spec.NodeName = "machine"
	case p.Status.Phase == corev1.PodPending:
		p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.0.0."+string(p.UID[len("uid-"):])
	default:
		setReady(p, corev1.ConditionTrue)
	}
	p.ResourceVersion = c.next()
}

func setReady(p *corev1.Pod, status corev1.ConditionStatus) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
}

// evict ends a pod as a machine does that runs short of something.
func (c *cluster) evict(p *corev1.Pod) {
	p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory."
	p.ResourceVersion = c.next()
}

// settle lets controllers and machines do all that they have to do.
func (c *cluster) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range 40 {
		c.control()
		for _, p := range sorted(c.pods) {
			c.run(p)
		}
	}
}
